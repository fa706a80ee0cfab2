"""Layers that take adapters, as lists of names say it: PEFT's word for all of them may stand among these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

Targets: TypeAlias = "Literal['all_linear'] | tuple[str, ...]"

# peft 0.21.2 utils/constants.py INCLUDE_LINEAR_LAYERS_SHORTHAND.
_ALL = "all-linear"


def targets_of(names: Sequence[str]) -> Targets:
    return "all_linear" if _ALL in names else tuple(names)


def names_of(targets: Targets) -> tuple[str, ...]:
    return (_ALL,) if targets == "all_linear" else tuple(targets)
