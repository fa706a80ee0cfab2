"""How often bounds hold what publishers read that nobody had looked at: ``python -m benchmarks.accuracy.first_sight``.

Printed are the bounds of that day, by classes of runs; the same with what :mod:`oomlint.memory.bounds` adds for a run that
may be another than it was read as; and what is left of that on a set by which it was not chosen, with one pair of shares
for all or with some for each class of what is known.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.accuracy.first_sight import (
    CHOOSING,
    LATER,
    TRIED,
    Outcome,
    Shares,
    as_said,
    chosen,
    counted,
    left_out,
    readings,
    widened,
)

from oomlint.memory.bounds import MISREAD_LESS, MISREAD_MORE
from oomlint.validation.toml import loads

HERE = Path(__file__).parent
IN_FORCE = Shares(MISREAD_LESS, MISREAD_MORE)
_HEAD = "| | rows | publishers | inside: rows | publishers | read more | read less | median width |"
_RULE = "|---|---|---|---|---|---|---|---|"
_CAUSES = ("| cause | publishers | mean error | of all errors |", "|---|---|---|---|")
_LATER = {"the sixth set": LATER[:1], "the seventh set": LATER[1:], "both": LATER}


def line(name: str, outcomes: Sequence[Outcome]) -> str:
    found = counted(outcomes)
    return (
        f"| {name} | {found.rows} | {found.publishers} | {found.inside_of_rows:.0%} | {found.inside:.0%} |"
        f" {found.above:.0%} | {found.below:.0%} | {found.width:.0%} |"
    )


def by_class(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """A line for each class of runs."""
    groups: dict[str, list[Outcome]] = {}
    for each in outcomes:
        reading = each.reading
        for name in (
            reading.of_set,
            reading.counter,
            reading.widest,
            "preferences and answers" if reading.prefers else "other objectives",
            f"trains {reading.trains}",
            "sharded" if reading.is_sharded else "not sharded",
            "a program" if reading.is_program else "a config or a command",
            *(["something unread"] if reading.unread else []),
            *(["something assumed"] if reading.assumed else []),
        ):
            groups.setdefault(name, []).append(each)
    for name, group in groups.items():
        yield line(name, group)


def of_later() -> Iterator[str]:
    """Of sets by which nothing was chosen, as they were said and with the shares in force."""
    for name, of in _LATER.items():
        later = readings(of=of)
        yield line(f"{name}, as said", [as_said(reading) for reading in later])
        yield line(f"{name}, with the shares", [widened(reading, IN_FORCE) for reading in later])


def errors_of() -> dict[str, float]:
    """The median error of each publisher of all sets."""
    errors: dict[str, list[float]] = {}
    for reading in readings(are_all=True, of=(*CHOOSING, *LATER)):
        errors.setdefault(reading.publisher, []).append(abs(reading.predicted / reading.read - 1))
    return {publisher: statistics.median(found) for publisher, found in errors.items()}


def said_causes() -> list[dict[str, Any]]:
    """What errors came of, by whoever opened the rows: a name, whether there was something to read, the publishers."""
    found: list[dict[str, Any]] = loads((HERE / "causes.toml").read_text("utf-8"))["cause"]
    return found


def of_causes() -> Iterator[str]:
    """A line for each cause, and one for all that could be known."""
    errors, causes = errors_of(), said_causes()
    groups = {cause["name"]: [errors[name] for name in cause["publishers"]] for cause in causes}
    known = [size for cause in causes if cause["is_known"] for size in groups[cause["name"]]]
    total = sum(map(sum, groups.values()))
    for name, sizes in (*groups.items(), ("of these, in what there was to read", known)):
        yield f"| {name} | {len(sizes)} | {statistics.mean(sizes):.0%} | {sum(sizes) / total:.0%} |"


def tables() -> Iterator[str]:
    group = readings()
    yield from ("As they were said", "", _HEAD, _RULE)
    said = [as_said(reading) for reading in group]
    yield line("all", [as_said(reading) for reading in readings(are_all=True)])
    yield line("those that a dialect reads", said)
    yield from by_class(said)
    yield from (
        "",
        f"With the shares in force, {IN_FORCE.less} and {IN_FORCE.more}",
        "",
        _HEAD,
        _RULE,
    )
    now = [widened(reading, IN_FORCE) for reading in group]
    yield line("those that a dialect reads", now)
    yield from by_class(now)
    yield from ("", "Of sets that came later", "", _HEAD, _RULE)
    yield from of_later()
    yield from ("", "What errors came of", "", *_CAUSES)
    yield from of_causes()
    best = chosen(group)
    yield from (
        "",
        f"All sets choose {best.less} and {best.more}. Each set by the others:",
        "",
        _HEAD,
        _RULE,
    )
    for name, classes in TRIED.items():
        yield line(name, list(left_out(group, classes)))


if __name__ == "__main__":
    print("\n".join(tables()))
