"""How far readings lay from what was predicted of them before anybody had looked at their publishers.

Each of the fresh sets (``benchmarks/accuracy/fresh*.jsonl``) was committed before a row of it was estimated. A line of
``readings.jsonl`` is what the commit that brought a set (``at``) said of one of its rows: :mod:`.collect` writes it, from
that state's own code, rows and facts. Sizes are GiB.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean, median
from typing import TypeAlias

from msgspec import Struct, convert

TABLE = Path(__file__).with_name("readings.jsonl")

CHOOSING = ("fresh", "fresh-2", "fresh-3", "fresh-4", "fresh-5")
"""Sets that the shares in force were chosen on."""
LATER = ("fresh-6", "fresh-7")
"""Sets that came after: of these the shares are a forecast."""

# What learns from preferences or from its own answers (oomlint/plan/training.py names more of them; these are read here).
_PREFERRING = frozenset({"dpo", "kto", "orpo", "grpo", "ppo", "rloo"})
_SHARDS = frozenset({"fsdp1", "fsdp2", "zero"})
# Of either end. What is chosen on some sets holds a little less on others, so that they are asked for less than the 7.5%
# that leave 85% inside.
_OUTSIDE = 0.04
# A reading of more times its estimate counts as one of so many: the two largest of the table took MB for GiB.
_MOST = 4.0
_GRID = tuple(n / 100 for n in range(251))


class Reading(Struct, frozen=True, rename={"of_set": "set", "widest": "class"}):
    """What was read of one run, and what was said of it at first sight.

    ``read``, ``predicted``, ``low`` and ``high`` are of the ``counter`` that was read; the others of the estimate's peak.
    ``widest`` is what widened its bounds most; ``chosen`` are fields that the plan left open, ``assumed`` and ``unread`` those
    of which the files tell no more.
    """

    of_set: str
    at: str
    id: str
    publisher: str
    counter: str
    widest: str
    dialect: str | None
    is_program: bool
    trains: str | None
    objective: str | None
    sharding: str | None
    compiled: bool
    lengths_vary: bool
    assumed: tuple[str, ...]
    unread: tuple[str, ...]
    read: float
    predicted: float
    low: float
    high: float
    activations: float
    logits: float
    moving: float

    @property
    def misread(self) -> float:
        """What comes and goes within a step, where nothing else makes bounds wide enough for it."""
        return 0.0 if self.lengths_vary else self.activations + self.logits + self.moving

    @property
    def prefers(self) -> bool:
        return self.objective in _PREFERRING

    @property
    def is_sharded(self) -> bool:
        return self.sharding in _SHARDS


class Shares(Struct, frozen=True):
    """How much less and more of what comes and goes there may be than was read."""

    less: float = 0.0
    more: float = 0.0


class Outcome(Struct, frozen=True):
    """A reading with bounds."""

    reading: Reading
    low: float
    high: float

    @property
    def is_above(self) -> bool:
        return self.reading.read > self.high

    @property
    def is_below(self) -> bool:
        return self.reading.read < self.low

    @property
    def width(self) -> float:
        return (self.high - self.low) / self.reading.predicted


Classes: TypeAlias = Callable[[Reading], object]
"""What a class of readings is told by."""

TRIED: dict[str, Classes] = {
    "one for all": lambda reading: None,
    "preferences and answers": lambda reading: reading.prefers,
    "full or adapter": lambda reading: reading.trains == "full",
    "sharded": lambda reading: reading.is_sharded,
    "counter": lambda reading: reading.counter,
    "program or config": lambda reading: reading.is_program,
    "own loop": lambda reading: reading.dialect == "loop",
    "something unread": lambda reading: bool(reading.unread),
    "something assumed": lambda reading: bool(reading.assumed),
    "compiled": lambda reading: reading.compiled,
}
"""Classes by what is known of a run, each of which may have shares of its own."""


def readings(*, are_all: bool = False, of: Sequence[str] = CHOOSING) -> list[Reading]:
    """The readings of sets, of runs that a dialect reads or of all: what no dialect reads was said outright, as a plan, and
    no user's file leads there."""
    lines = TABLE.read_text("utf-8").splitlines()
    found = [convert(json.loads(line), Reading) for line in lines]
    return [r for r in found if r.of_set in of and (are_all or r.dialect is not None)]


def as_said(reading: Reading) -> Outcome:
    """With the bounds that were printed then."""
    return Outcome(reading, reading.low, reading.high)


def widened(reading: Reading, shares: Shares) -> Outcome:
    """With what may have been read otherwise added in quadrature."""
    less, more = reading.predicted - reading.low, reading.high - reading.predicted
    # Of a trainer beside an engine's process the fourth set had bounds of both, which may lie to one side.
    less = math.hypot(max(0.0, less), shares.less * reading.misread)
    more = math.hypot(max(0.0, more), shares.more * reading.misread)
    return Outcome(reading, max(0.0, reading.predicted - less), reading.predicted + more)


def chosen(group: Sequence[Reading]) -> Shares:
    """The shares that leave so many of a group outside at either end: quantiles of its residuals, found by the loss whose
    least they are (Koenker and Bassett 1978, Regression quantiles), in which a publisher counts by the root of its rows."""
    weight = {name: 1 / math.sqrt(rows) for name, rows in _rows_of(group).items()}

    def loss(shares: Shares) -> tuple[float, float]:
        below, above = 0.0, 0.0
        for reading in group:
            found = widened(reading, shares)
            size = reading.predicted
            read = min(reading.read, _MOST * size)
            below += weight[reading.publisher] * _quantile_loss((found.low - read) / size)
            above += weight[reading.publisher] * _quantile_loss((read - found.high) / size)
        return below, above

    losses = {share: loss(Shares(share, share)) for share in _GRID}
    return Shares(
        min(_GRID, key=lambda share: losses[share][0]),
        min(_GRID, key=lambda share: losses[share][1]),
    )


def _quantile_loss(beyond: float) -> float:
    return (1 - _OUTSIDE) * beyond if beyond > 0 else -_OUTSIDE * beyond


def left_out(
    group: Sequence[Reading], classes: Classes = TRIED["one for all"]
) -> Iterator[Outcome]:
    """Each set with the shares that the other sets choose, for each class its own."""
    for name in sets_of(group):
        others: dict[object, list[Reading]] = {}
        for reading in group:
            if reading.of_set != name:
                others.setdefault(classes(reading), []).append(reading)
        shares = {kind: chosen(found) for kind, found in others.items()}
        here = [reading for reading in group if reading.of_set == name]
        strange = {classes(reading) for reading in here} - shares.keys()
        if strange:  # of a class that no other set has, what all of them choose
            everywhere = chosen([reading for reading in group if reading.of_set != name])
            shares.update(dict.fromkeys(strange, everywhere))
        yield from (widened(reading, shares[classes(reading)]) for reading in here)


def sets_of(group: Sequence[Reading]) -> list[str]:
    return sorted({reading.of_set for reading in group})


class Counted(Struct, frozen=True):
    """What became of some readings; shares are means over publishers, and of all rows where they say so."""

    rows: int
    publishers: int
    inside_of_rows: float
    inside: float
    above: float
    below: float
    width: float


def counted(outcomes: Sequence[Outcome]) -> Counted:
    publishers = _rows_of([each.reading for each in outcomes])

    def share(holds: Callable[[Outcome], bool]) -> float:
        hits = Counter(each.reading.publisher for each in outcomes if holds(each))
        return mean(hits[name] / rows for name, rows in publishers.items())

    above, below = share(lambda each: each.is_above), share(lambda each: each.is_below)
    inside = sum(not (each.is_above or each.is_below) for each in outcomes)
    width = median(each.width for each in outcomes)
    return Counted(
        len(outcomes), len(publishers), inside / len(outcomes), 1 - above - below, above, below, width
    )  # fmt: skip


def _rows_of(group: Sequence[Reading]) -> Counter[str]:
    return Counter(reading.publisher for reading in group)
