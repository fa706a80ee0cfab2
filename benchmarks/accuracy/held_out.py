"""How well the bounds' half-widths carry over: ``python -m benchmarks.accuracy.held_out``.

Each publisher is left out in turn, the half-widths of ``oomlint/memory/bounds.py`` are chosen
anew on the others (coordinate descent over halves and doubles of each, for the most rows
inside at no more than the median width that the published half-widths have), and the left-out
rows are judged by them.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from benchmarks.accuracy.__main__ import SHARED, scored
from benchmarks.accuracy.counters import Kind, kind_of, limits_of
from benchmarks.accuracy.facts import left_out

from oomlint.memory import GpuLimits, bounds
from oomlint.memory.facts import Facts

_WIDTHS = (
    "_STATES_LESS", "_STATES_MORE", "_MOVING_LESS", "_MOVING_MORE", "_LOGITS_LESS",
    "_LOGITS_MORE", "_HOLES", "_SHORTER", "_PILE", "_SHORT_RUNS", "_UNREAD_LESS", "_UNREAD_MORE",
    "_IMAGES_LESS", "_IMAGES_MORE", "_TOWER_LESS", "_TOWER_MORE", "_ROUTED", "_ROUTED_TO_RANKS", "_OUTSIDE", "_TRACED",
)  # fmt: skip
_STEPS = (0.5, 0.75, 1.0, 1.5, 2.0)


class Case(NamedTuple):
    """One row with what its bounds are made of, in bytes: what was measured and what was estimated of it."""

    family: str
    kind: Kind
    real: float
    got: float
    facts: Facts
    limits: GpuLimits
    totals: bounds.Totals
    communicates: bool


def judge(cases: Sequence[Case], scales: Mapping[str, float]) -> tuple[list[bool], list[float]]:
    """Whether each row is inside its bounds, and their widths as shares of what is estimated."""
    hits, widths = [], []
    with scaled(scales):
        for case in cases:
            found = bounds.bounds(
                case.facts, case.limits, case.totals, communicates=case.communicates
            )
            low, high = found.allocated if case.kind == "allocated" else found.reserved
            if case.kind == "device":
                high = found.shown.high
            hits.append(low <= case.real <= high)
            widths.append((high - low) / case.got)
    return hits, widths


@contextmanager
def scaled(scales: Mapping[str, float]) -> Iterator[None]:
    """The half-widths times ``scales``."""
    kept = {name: getattr(bounds, name) for name in _WIDTHS}
    try:
        for name, factor in scales.items():
            setattr(bounds, name, kept[name] * factor)
        yield
    finally:
        for name, value in kept.items():
            setattr(bounds, name, value)


def chosen(cases: Sequence[Case], limit: float) -> dict[str, float]:
    """The scales with the most rows inside, at a median width of at most ``limit``."""
    best = dict.fromkeys(_WIDTHS, 1.0)

    def value(scales: Mapping[str, float]) -> float:
        hits, widths = judge(cases, scales)
        return sum(hits) / len(hits) - 10 * max(0.0, statistics.median(widths) - limit)

    score = value(best)
    for _ in range(2):
        for name in _WIDTHS:
            for step in _STEPS:
                trial = best | {name: step}
                found = value(trial)
                if found > score:
                    best, score = trial, found
    return best


def cases_of(truth: Path) -> list[Case]:
    """Every scored row, with the arguments that ``estimate`` gives to ``bounds``."""
    found = []
    whole = import_module("oomlint.memory.estimate")
    for row, plan, _, got, real in scored(truth):
        if row["id"] in left_out():
            continue
        seen: dict[str, Any] = {}

        def spy(
            f: Facts, limits: GpuLimits, at: bounds.Totals, *, communicates: bool,
            seen: dict[str, Any] = seen,
        ) -> bounds.Bounded:  # fmt: skip
            seen.update(facts=f, limits=limits, totals=at, communicates=communicates)
            return bounds.bounds(f, limits, at, communicates=communicates)

        with patch.object(whole, "bounds", spy):
            whole.estimate(plan, limits_of(row, plan))
        found.append(Case(row["family"], kind_of(row), real, got, **seen))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--truth", type=Path, default=SHARED)
    cases = cases_of(parser.parse_args().truth)
    hits, widths = judge(cases, {})
    limit = statistics.median(widths)
    print(f"as published: {sum(hits) / len(hits):.1%} inside, median width {limit:.1%}")
    every: list[bool] = []
    wide: list[float] = []
    shares = []
    for family in sorted({case.family for case in cases}):
        scales = chosen([case for case in cases if case.family != family], limit)
        hits, widths = judge([case for case in cases if case.family == family], scales)
        every += hits
        wide += widths
        shares.append(sum(hits) / len(hits))
        print(f"{family:<18}{len(hits):>4}{shares[-1]:>8.0%}")
    print(
        f"left out one by one: {sum(every) / len(every):.1%} inside "
        f"({statistics.mean(shares):.1%} over publishers), median width "
        f"{statistics.median(wide):.1%}"
    )


if __name__ == "__main__":
    main()
