"""What a command line says about machine, run and settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct


class CheckRequest(Struct, frozen=True, kw_only=True):
    """What the command line says about machine, run and settings; ``None`` is not said."""

    hardware: str | None = None
    host_memory: str | None = None
    gpus: str | None = None
    framework: str | None = None
    values: Mapping[str, Any] | None = None
    config: Path | None = None
    isolated: bool = False
    project_root: Path | None = None
    select: tuple[str, ...] | None = None
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    baseline: Path | None = None
    without_baseline: bool = False
