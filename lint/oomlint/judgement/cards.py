"""The cards that people can rent, for runs of which nobody says where they are to run."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oomlint.hardware import Gpu

# A card is said to hold a run if a twentieth of it stays free: at 95 % of the limit a run is about as
# likely to die as not (:mod:`oomlint.judgement.risk_model`).
_ROOM = 0.95
# A card is larger than another from so much more memory on: an A100 and an H100 of 80 GB differ by a thousandth.
_LARGER = 1.05


def cards_that_hold(peak: int, *, beyond: int = 0) -> tuple[Gpu, ...]:
    """The common cards whose usable memory holds a peak with room to spare, the smallest first; only those that have
    more than one with ``beyond`` bytes."""
    least = max(peak / _ROOM, beyond * _LARGER)
    return tuple(gpu for gpu, usable in _common_cards() if usable >= least)


def smallest_card(peak: int) -> str | None:
    """The name of the smallest of them."""
    return next((gpu.name for gpu in cards_that_hold(peak)), None)


def card_holds(name: str, peak: int) -> bool:
    """Whether a peak fits a GPU, by its name."""
    return peak <= _usable(name)


@cache
def _usable(name: str) -> int:
    from oomlint.hardware import parse_hardware, usable_bytes

    return usable_bytes(parse_hardware(name).gpu)


@cache
def _common_cards() -> tuple[tuple[Gpu, int], ...]:
    """Cards and usable bytes, the smallest first."""
    from oomlint.hardware import common_cards, usable_bytes

    return tuple((gpu, usable_bytes(gpu)) for gpu in common_cards())
