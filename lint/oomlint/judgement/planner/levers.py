"""What lowers the need of a run, a change at a time, whether or not it has to be lowered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from oomlint.errors import CannotEdit
from oomlint.judgement import settled
from oomlint.judgement.planner.moves import Move, safe_moves, unsafe_moves
from oomlint.memory import Estimate
from oomlint.runs.run import Run

# Of steps of one thing (half the length, a quarter) the mildest is named that brings this share of
# what the furthest does.
_SHARE = 0.45
# What lowers a peak by less is lost in what a prediction is uncertain by.
_LEAST = 0.02


class Lever(Struct, frozen=True):
    """One change alone, the need after it, and what it takes off the peak of a GPU in bytes."""

    move: Move
    estimate: Estimate
    saving: int


def levers(run: Run) -> list[Lever]:
    """The changes that lower the peak of a GPU, the one that lowers it most first; at most one of each group."""
    peak = settled(run).estimate.gpu.peak_bytes
    if not peak:
        return []
    groups = (*safe_moves(run), *unsafe_moves(run))
    found = [lever for group in groups for lever in _mildest(list(_each(run, group, peak)))]
    return sorted(
        (each for each in found if each.saving >= _LEAST * peak), key=lambda each: -each.saving
    )


def _each(run: Run, group: Sequence[Move], peak: int) -> Iterator[Lever]:
    for move in group:
        changes: dict[Any, Any] = dict(move.changes)
        try:
            estimate = settled(run.what_if(changes)).estimate
        except CannotEdit:
            continue
        after = estimate.gpu.peak_bytes
        if after is not None and after < peak:
            yield Lever(move, estimate, peak - after)


def _mildest(group: Sequence[Lever]) -> Iterator[Lever]:
    most = max((lever.saving for lever in group), default=0)
    enough = (lever for lever in group if lever.saving >= _SHARE * most)
    found = next(enough, None)
    if found is not None:
        yield found
