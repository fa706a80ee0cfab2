"""Amounts of memory, as schedulers and containers write them."""

from __future__ import annotations

import re
from typing import Any

from oomlint.dialects.kinds import Kind

_GIB = 2**30
_AMOUNT = r"(?i)(\d{1,15}(?:\.\d{1,6})?)\s*([kmgtp]?)(i?)b?"


def read_gib(raw: Any, *, bare_unit: str = "", decimal: bool = False) -> float | None:
    """An amount of memory in GiB; ``None`` for zero (no limit of its own) and what is none.

    Args:
        bare_unit: the unit of a number without one: ``"M"`` for Slurm, bytes elsewhere.
        decimal: a prefix without ``i`` is a power of 1000 (Kubernetes), else of 1024.
    """
    match = re.fullmatch(_AMOUNT, str(raw).strip())
    if isinstance(raw, bool) or match is None:
        return None
    number, prefix, binary = match.groups()
    prefix = (prefix or bare_unit).lower()
    power = " kmgtp".index(prefix) if prefix else 0
    amount = float(number) * (1000 if decimal and not binary else 1024) ** power
    return amount / _GIB or None


def whole_units(gib: float) -> tuple[int, str]:
    """An amount in the largest unit that writes it: ``(96, "G")``, ``(1536, "M")``."""
    if float(gib).is_integer():
        return int(gib), "G"
    return max(1, -int(-gib * 1024 // 1)), "M"


def _write_docker(value: Any) -> str:
    number, unit = whole_units(value)
    return f"{number}{unit.lower()}"


# docker run and compose: "64m", "16gb", a bare number is bytes; lower-case letters are usual.
DOCKER_MEMORY = Kind(read_gib, _write_docker)
