"""The most that still fits: micro batch, sequence length, or tokens a second."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from oomlint.judgement.planner.aims import Aim
from oomlint.judgement.planner.moves import Move, safe_moves, speeding_moves
from oomlint.judgement.planner.search import Accepts, Search, Way
from oomlint.plan.fields import f
from oomlint.runs.run import Run

# Lengths that kernels like, and fine enough to name.
_LENGTH_STEP = 256
_LONGEST = 1 << 20
_MOST_STATES = 4000


def largest(run: Run, aim: Aim, *, accepts: Accepts | None = None) -> Way | None:
    """The run with as large a value as its hardware holds, or ``None`` where none is larger
    than now, or nothing is known."""
    search = Search.of(run, accepts)
    if search is None:
        return None
    if aim == "throughput":
        return _fastest(search)
    meant = run.intended
    candidates = _micro_batches(meant) if aim == "micro_batch" else _lengths(meant)
    return _last_that_fits(search, list(candidates))


def _last_that_fits(search: Search, moves: list[Move]) -> Way | None:
    """By halving, since the peak grows with each move's value."""
    low, best = 0, None
    high = len(moves)
    while low < high:
        middle = (low + high) // 2
        way = search.way((moves[middle],))
        if way is None:
            high = middle
        else:
            low, best = middle + 1, way
    return best


def _micro_batches(run: Run) -> Iterator[Move]:
    """Larger micro batches, in order, that leave the global batch as it is; where it is one
    micro batch already, larger ones all the same."""
    micro, accumulation = run.plan.batch.micro, run.plan.batch.grad_accum or 1
    if micro is None:
        return
    sizes = [k for k in range(2, accumulation + 1) if accumulation % k == 0]
    for factor in sizes or [2**power for power in range(1, 12)]:
        left = max(1, accumulation // factor)
        given = "" if sizes else "the global batch grows"
        yield Move(
            "micro-batch-too-large",
            f"micro batch {micro * factor} x {left} accumulation steps",
            {f.batch.micro: micro * factor, f.batch.grad_accum: left},
            given,
        )


def _lengths(run: Run) -> Iterator[Move]:
    now = run.plan.seq.max_len or 0
    dims = run.plan.model.dims
    upto = min(_LONGEST, (dims.ctx if dims else None) or _LONGEST)
    for length in range(now - now % _LENGTH_STEP + _LENGTH_STEP, upto + 1, _LENGTH_STEP):
        title = f"samples of up to {length} tokens"
        yield Move("long-context-over-budget", title, {f.seq.max_len: length}, "samples are longer")


def _fastest(search: Search) -> Way | None:
    """Of all states of moves that train the same, the one that takes the least time and fits."""
    groups = (*safe_moves(search.run), *speeding_moves(search.run))
    deltas = search.deltas((), groups)
    if deltas is None:
        return None
    states = product(*(range(len(row)) for row in deltas.rows))
    timed = []
    for number, state in enumerate(states):
        if number >= _MOST_STATES:
            break
        timed.append((search.slowdown(search.planned(deltas, state)), sum(map(bool, state)), state))
    slowest = 1.0 if search.fits(search.base) else float("inf")
    for slowdown, _, state in sorted(timed):
        if slowdown >= slowest:
            return None
        if search.fits(search.planned(deltas, state)):
            way = search.way(deltas.moves(state))
            if way is not None:
                return way
    return None
