"""The cards that people can rent, for runs of which nobody says where they are to run."""

from __future__ import annotations

from functools import cache


def smallest_card(peak: int) -> str | None:
    """The smallest common card whose usable memory holds a peak with room to spare."""
    return next((name for name, usable in _common_cards() if usable * 0.95 >= peak), None)


def card_holds(name: str, peak: int) -> bool:
    """Whether a peak fits a GPU, by its name."""
    return peak <= _usable(name)


@cache
def _usable(name: str) -> int:
    from oomlint.hardware import parse_hardware, usable_bytes

    return usable_bytes(parse_hardware(name).gpu)


@cache
def _common_cards() -> tuple[tuple[str, int], ...]:
    """Names and usable bytes, the smallest first."""
    from oomlint.hardware import common_cards, usable_bytes

    return tuple((gpu.name, usable_bytes(gpu)) for gpu in common_cards())
