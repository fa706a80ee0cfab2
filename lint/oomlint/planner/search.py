"""The cheapest sets of moves after which a run fits.

A state takes at most one move of each group. States are visited in order of cost, which is
how many moves give something up and then how much longer a step takes, so the first that
fits is the cheapest. Every state is computed on the plan alone; what is returned has been
resolved as a whole by the run's own framework.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import combinations, count, islice, product
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from oomlint.errors import CannotEdit
from oomlint.judgement import Risk, Verdict, settled
from oomlint.memory import Estimate, estimate
from oomlint.plan import Plan, leaf_paths
from oomlint.planner.moves import Move, safe_moves, unsafe_moves
from oomlint.planner.throughput import Rates, Sizes, rates, seconds_per_token
from oomlint.run import Misspelt, Run

Groups: TypeAlias = Sequence[Sequence[Move]]
Accepts: TypeAlias = Callable[[Run], bool]

_MOST_STATES = 1500
_MOST_WAYS = 5
_MOST_UNSAFE = 2

# A way that is slower must leave this much more room to be worth a line of its own, and one that
# gives something up must take this much less time than one that does not.
_MORE_ROOM = 0.75
_LESS_TIME = 0.9
# With no more than this share of the limit taken, nobody looks for more room, however wide the
# bounds of the prediction are.
_ROOMY = 0.6


class Way(Struct, frozen=True):
    """A set of changes to ``base`` and the run that comes of it. ``slowdown`` is the time of a token of training
    data over that of the run as it is; below 1 it trains faster.

    It starts from the run as its author means it, and takes the renaming of misspelt keys along.
    """

    moves: tuple[Move, ...]
    base: Run
    run: Run
    estimate: Estimate
    verdict: Verdict
    slowdown: float

    @property
    def changes(self) -> Mapping[Any, Any]:
        merged: dict[Any, Any] = {}
        for move in self.moves:
            merged.update(move.changes)
        return merged

    @property
    def renamed(self) -> tuple[Misspelt, ...]:
        """The keys that get their right names."""
        return tuple(each for each in self.base.misspelt if each.field not in self.run.wished)

    @property
    def dropped(self) -> tuple[Misspelt, ...]:
        """The misspelt keys that go, since the changes say otherwise what they mean."""
        return tuple(each for each in self.base.misspelt if each.field in self.run.wished)

    @property
    def titles(self) -> tuple[str, ...]:
        """All that is done, in the imperative."""
        names = (f"rename {each.key.path} to {each.new_key}" for each in self.renamed)
        return (*names, *(move.title for move in self.moves))

    @property
    def gives_up(self) -> tuple[str, ...]:
        return tuple(move.gives_up for move in self.moves if move.gives_up)

    @property
    def kind(self) -> tuple[frozenset[str], Verdict]:
        """What ways have in common that differ in degree only."""
        return frozenset(move.rule for move in self.moves), self.verdict

    @property
    def peak_bytes(self) -> int:
        return self.estimate.gpu.peak_bytes or 0

    @property
    def is_comfortable(self) -> bool:
        """Whether the prediction itself leaves room, however wide its bounds are."""
        return self.peak_bytes <= self.base.margin * (self.base.limits.gpu_bytes or 0)

    def dominates(self, other: Way) -> bool:
        """Whether nothing speaks for the other way. That it changes no more does, if it leaves
        enough room: time is estimated, and what costs none by that may well cost some."""
        if other.is_comfortable and len(other.moves) <= len(self.moves):
            return False
        return (
            self.slowdown <= other.slowdown
            and self.peak_bytes <= other.peak_bytes
            and len(self.gives_up) <= len(other.gives_up)
            and (self.verdict == "fits" or other.verdict == "tight")
        )

    @property
    def is_safe(self) -> bool:
        return not self.gives_up


def ways_to_fit(
    run: Run,
    *,
    unsafe: bool = True,
    takes: Callable[[Move], bool] | None = None,
    accepts: Accepts | None = None,
) -> list[Way]:
    """The ways to make a run fit, the cheapest first; empty where it fits or nothing helps. One that
    fits once its keys have their right names, and not as it is written, needs no more than these.

    Args:
        run: with known hardware and dimensions; of others nothing is known to fit.
        unsafe: also look at what changes the training result or what is saved.
        takes: which moves may be looked at, all by default.
        accepts: a last word on a changed run, such as what its framework refuses.
    """
    search = Search.of(run, accepts)
    if search is None:
        return []
    if search.fits(search.base):
        return list(search.renaming())
    safe = _taken(safe_moves(run), takes)
    found = list(islice(search.front((), safe), _MOST_WAYS))
    if not unsafe or len(found) >= _MOST_WAYS:
        return list(_undominated(found))
    # Something is given up only where nothing else is enough, or where it costs less time.
    limit = _LESS_TIME * found[0].slowdown if found else float("inf")
    for choices in _bundles(_taken(unsafe_moves(run), takes)):
        more = search.mildest(choices, safe, limit)
        if more is not None:
            found.append(more)
            limit = min(limit, more.slowdown)
        if len(found) >= _MOST_WAYS or (len(choices[0]) > 1 and found):
            break
    return list(_undominated(sorted(found, key=lambda way: (len(way.gives_up), way.slowdown))))


def _undominated(ways: Sequence[Way]) -> Iterator[Way]:
    for way in ways:
        if not any(other is not way and other.dominates(way) for other in ways):
            yield way


def _taken(groups: Groups, takes: Callable[[Move], bool] | None) -> Groups:
    if takes is None:
        return groups
    found = (tuple(move for move in group if takes(move)) for group in groups)
    return tuple(group for group in found if group)


def _bundles(groups: Groups) -> Iterator[list[tuple[Move, ...]]]:
    """What may be given up at once: a move of one group, then of two; the mildest first."""
    for size in range(1, _MOST_UNSAFE + 1):
        for chosen in combinations(groups, size):
            yield list(product(*chosen))


class Search(Struct, frozen=True):
    """A run to change, and what its changes are measured against."""

    run: Run
    base: Plan
    rate: Rates
    sizes: Sizes
    seconds: float
    accepts: Accepts | None

    @classmethod
    def of(cls, run: Run, accepts: Accepts | None) -> Search | None:
        base = settled(run)
        dims = base.plan.model.dims
        known = run.limits.gpu_bytes is not None and base.estimate.gpu.peak_bytes is not None
        if dims is None or not dims.params_total or not known:
            return None
        total = dims.params_total
        full = base.plan.trainable.method in ("full", None)
        trained = total if full else min(total, base.plan.trainable.params or 0)
        sizes = Sizes(dims.params_active or total, total, trained)
        rate = rates(run.hardware)
        seconds = seconds_per_token(base.plan, sizes, rate)
        return cls(run, base.plan, rate, sizes, seconds, accepts)

    def slowdown(self, plan: Plan) -> float:
        sizes = self.sizes
        if plan.trainable.method not in ("full", None, self.base.trainable.method):
            sizes = replace(sizes, trained=0)  # an adapter's share of the work does not show
        return seconds_per_token(plan, sizes, self.rate) / self.seconds

    def estimate(self, plan: Plan) -> Estimate:
        from oomlint.memory.limits import gpu_limits

        hardware = self.run.hardware
        return estimate(plan, None if hardware is None else gpu_limits(hardware, plan))

    def fits(self, plan: Plan) -> bool:
        return _holds(self.run, self.estimate(plan))

    def renaming(self) -> Iterator[Way]:
        """Right names for misspelt keys alone, where a run that fits as it is meant does not as it is
        written."""
        if self.run.misspelt and not _holds(self.run, self.run.placed.estimate):
            way = self.way(())
            if way is not None:
                yield way

    def mildest(
        self, choices: Iterable[tuple[Move, ...]], safe: Groups, slower_than: float
    ) -> Way | None:
        """The first of several things to give up that makes the run fit in less time."""
        for given in choices:
            way = next(self.front(given, safe, slower_than=slower_than), None)
            if way is not None:
                return way
        return None

    def front(
        self, given: tuple[Move, ...], groups: Groups, *, slower_than: float = float("inf")
    ) -> Iterator[Way]:
        """The cheapest way with ``given`` and safe moves, then slower ones that leave more room.

        ``slower_than`` is the slowdown of a way already found: what is no faster is left out.
        """
        deltas = self.deltas(given, groups)
        if deltas is None:
            return
        best: int | None = None
        seen: set[tuple[frozenset[str], Verdict]] = set()
        for state, slowdown in self._in_order(deltas):
            if slowdown >= slower_than:
                return
            plan = self.planned(deltas, state)
            if not self._leaves_more_room(self.estimate(plan), best):
                continue
            way = self._shortest(given, groups, state, best)
            if way is None or way.slowdown >= slower_than:
                continue
            if not self._leaves_more_room(way.estimate, best):
                continue
            if way.kind not in seen:
                yield way
            seen.add(way.kind)
            best = way.estimate.gpu.peak_bytes
            if (best or 0) <= _ROOMY * (self.run.limits.gpu_bytes or 0):
                return

    def _leaves_more_room(self, estimate: Estimate, best: int | None) -> bool:
        if not _holds(self.run, estimate):
            return False
        peak = estimate.gpu.peak_bytes
        return best is None or (peak is not None and peak <= _MORE_ROOM * best)

    def deltas(self, given: Sequence[Move], groups: Groups) -> Deltas | None:
        """What each move changes in the resolved plan."""
        start = self._changed(given)
        if start is None:
            return None
        rows = []
        for group in groups:
            row = [self._difference(start, self._changed((*given, move))) for move in group]
            rows.append([{}, *(delta for delta in row if delta is not None)])
        return Deltas(start, rows)

    def _changed(self, moves: Sequence[Move]) -> Plan | None:
        merged: dict[Any, Any] = {}
        for move in moves:
            merged.update(move.changes)
        try:
            return settled(self.run.what_if(merged)).plan if merged else self.base
        except CannotEdit:
            return None

    def _difference(self, before: Plan, after: Plan | None) -> dict[Any, Any] | None:
        if after is None:
            return None
        return {p: after.get(p) for p in leaf_paths() if after.get(p) != before.get(p)}

    def planned(self, deltas: Deltas, state: State) -> Plan:
        merged: dict[Any, Any] = {}
        for row, index in zip(deltas.rows, state, strict=True):
            merged.update(row[index])
        return deltas.start.with_values(merged) if merged else deltas.start

    def _in_order(self, deltas: Deltas) -> Iterator[tuple[State, float]]:
        """States from cheap to dear; of equally dear ones the one with fewer moves."""
        start: State = (0,) * len(deltas.rows)
        number = count()
        queue = [(self.slowdown(deltas.start), 0, next(number), start)]
        seen = {start}
        while queue and len(seen) <= _MOST_STATES:
            slowdown, _, _, state = heappop(queue)
            yield state, slowdown
            for place, row in enumerate(deltas.rows):
                if state[place] + 1 >= len(row):
                    continue
                after = (*state[:place], state[place] + 1, *state[place + 1 :])
                if after not in seen:
                    seen.add(after)
                    cost = self.slowdown(self.planned(deltas, after))
                    moves = sum(index > 0 for index in after)
                    heappush(queue, (cost, moves, next(number), after))

    def _shortest(
        self, given: tuple[Move, ...], groups: Groups, state: State, best: int | None
    ) -> Way | None:
        """A state as the run's framework has it, without the moves that turn out needless."""
        moves = [*given, *(g[i - 1] for g, i in zip(groups, state, strict=True) if i)]
        way = self.way(moves)
        if way is None:
            return None
        for move in moves[len(given) :]:
            fewer = [other for other in moves if other is not move]
            without = self.way(fewer) if fewer else None
            if without is None or without.slowdown > way.slowdown:
                continue
            if best is None or self._leaves_more_room(without.estimate, best):
                moves, way = fewer, without
        if self.accepts is not None and not self.accepts(way.run):
            return None
        return way

    def way(self, moves: Sequence[Move]) -> Way | None:
        """The run with all of ``moves``, where its framework can say them and it then fits."""
        merged: dict[Any, Any] = {}
        for move in moves:
            merged.update(move.changes)
        try:
            changed = self.run.what_if(merged)
        except CannotEdit:
            return None
        probe = settled(changed)
        if not _holds(self.run, probe.estimate):
            return None
        verdict = _risk(self.run, probe.estimate).verdict
        return Way(
            tuple(moves), self.run, changed, probe.estimate, verdict, self.slowdown(probe.plan)
        )


def _risk(run: Run, estimate: Estimate) -> Risk:
    """The risk of a changed run, without what is open about it: that is the same before and after."""
    return Risk.by(estimate, run.limits.gpu_bytes, run.limits.host_bytes)


def _holds(run: Run, estimate: Estimate) -> bool:
    """Whether a changed run rather fits than not."""
    risk = _risk(run, estimate)
    return risk.any is not None and not risk.is_lost


State: TypeAlias = tuple[int, ...]


class Deltas(Struct, frozen=True):
    """The plan to start from, and for each group what its moves change; the first is nothing."""

    start: Plan
    rows: Sequence[Sequence[Mapping[Any, Any]]]
