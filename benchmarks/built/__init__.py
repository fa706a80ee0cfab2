"""Models that examples of frameworks come to, as oomlint reads them and as the frameworks' own classes are built."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

ROWS = Path(__file__).parent / "built.jsonl"


class Built(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One example and what its framework's class holds on the meta device.

    ``model`` is the id that oomlint read, whose dimensions are the catalogue's; ``dims`` are those that it read where
    there is none, ``trainable`` what is trained if not everything, ``frozen_tower`` whether that of pictures is not. ``off`` says why oomlint counts otherwise.
    """

    framework: str
    commit: str
    example: str
    class_: str = msgspec.field(name="class")
    parameters: int
    trained: int
    layers: int
    heads: int | None = None
    kv_heads: int | None = None
    model: str | None = None
    dims: dict[str, Any] | None = None
    trainable: dict[str, Any] | None = None
    frozen_tower: bool = False
    off: str | None = None


def rows() -> Iterator[Built]:
    for line in ROWS.read_text("utf-8").splitlines():
        yield msgspec.json.decode(line, type=Built)
