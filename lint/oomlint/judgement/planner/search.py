"""The cheapest sets of moves after which a run fits.

A state takes at most one move of each group. States are visited in order of cost, which is
how many moves give something up and then how much longer a step takes, so the first that
fits is the cheapest. Every state is computed on the plan alone; what is returned has been
resolved as a whole by the run's own framework, and judged as any run is, with all that is open
about it.

A run fits where its risk is below ``TIGHT``: what is changed for it need not be changed again. Only
where no state gets there is one that rather fits than not (``EVEN``) better than none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import combinations, count, islice, product
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from oomlint.errors import CannotEdit
from oomlint.judgement import EVEN, TIGHT, Risk, Verdict, is_open, settled, starves_engine
from oomlint.judgement.lengths import usual_length
from oomlint.judgement.planner.moves import Move, safe_moves, unsafe_moves
from oomlint.judgement.planner.throughput import Rates, Sizes, rates, seconds_per_token
from oomlint.memory import Estimate
from oomlint.plan import Plan, leaf_paths
from oomlint.runs.misspelt import Misspelt
from oomlint.runs.run import Run

Groups: TypeAlias = Sequence[Sequence[Move]]
Accepts: TypeAlias = Callable[[Run], bool]

_MOST_STATES = 1500
# Of all that may be given up, together: three in a thousand seconds each, so that a model which no change fits into its
# machine (405B on a node) is given up on within a few seconds.
_MOST_IN_ALL = 15_000
_MOST_WAYS = 5
_MOST_UNSAFE = 2

# A way that is slower must leave this much more room to be worth a line of its own, and one that
# gives something up must take this much less time than one that does not.
_MORE_ROOM = 0.75
_LESS_TIME = 0.9
# With no more than this share of the limit taken, nobody looks for more room, however wide the
# bounds of the prediction are.
_ROOMY = 0.6

# A state that is worth judging with all that is open about it needs this much less of the GPU or of the host than one
# that was judged and does not fit.
_LESS_NEED = 0.97
# A change is needless where the run fits without it and takes no longer than this times as much: the roofline that times
# are estimated by hides all communication behind computing, and knows them no better than that.
_NO_SLOWER = 1.02
# Of ways that leave a risk, those this close to the least are as good, and the cheapest of them is taken.
_AS_GOOD = 0.05
_MOST_NEAR = 12


class Effort(Struct):
    """How many more combinations of changes a search may look at."""

    left: int = _MOST_IN_ALL

    @property
    def is_spent(self) -> bool:
        """Whether a search ended before it had seen them all."""
        return self.left <= 0


class Way(Struct, frozen=True):
    """A set of changes to ``base`` and the run that comes of it. ``slowdown`` is the time of a token of training
    data over that of the run as it is; below 1 it trains faster.

    It starts from the run as its author means it, and takes the renaming of misspelt keys along.
    """

    moves: tuple[Move, ...]
    base: Run
    run: Run
    estimate: Estimate
    risk: Risk
    slowdown: float

    @property
    def verdict(self) -> Verdict:
        return self.risk.verdict

    @property
    def danger(self) -> float:
        """How likely the run dies all the same, which is known of every way that is taken."""
        known = self.risk.any
        assert known is not None
        return known

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
    effort: Effort | None = None,
) -> list[Way]:
    """The ways to make a run fit, the cheapest first; empty where it fits or nothing helps. One that
    fits once its keys have their right names, and not as it is written, needs no more than these.

    Args:
        run: with known hardware and dimensions; of others nothing is known to fit.
        unsafe: also look at what changes the training result or what is saved.
        takes: which moves may be looked at, all by default.
        accepts: a last word on a changed run, such as what its framework refuses.
        effort: how many combinations are looked at; it tells afterwards whether that ended the search.
    """
    search = Search.of(run, accepts, effort)
    if search is None:
        return []
    if search.is_settled:
        return list(search.renaming())
    safe = _taken(safe_moves(run), takes)
    same = _taken(safe, lambda move: move.is_safe)
    near: list[Near] = []
    found = list(islice(search.front((), same, near), _MOST_WAYS)) or search.nearest(near)
    if not unsafe or len(found) >= _MOST_WAYS:
        return list(_undominated(found))
    # Something is given up only where nothing else is enough, or where it costs less time.
    fitting = (way.slowdown for way in found if way.verdict == "fits")
    limit = _LESS_TIME * next(fitting, float("inf"))
    near = []
    if same != safe:
        others = search.front((), safe, near, slower_than=limit)
        more = list(islice(others, _MOST_WAYS - len(found)))
        found += more
        limit = min([limit, *(_LESS_TIME * way.slowdown for way in more)])
    for choices in _bundles(_taken(unsafe_moves(run), takes)):
        way = search.mildest(choices, same, limit, near)
        if way is None and not found and same != safe:
            way = search.mildest(choices, safe, limit, near)
        if way is not None:
            found.append(way)
            limit = min(limit, way.slowdown)
        if len(found) >= _MOST_WAYS or (len(choices[0]) > 1 and found) or search.effort.is_spent:
            break
    found = found or search.nearest(near)
    return list(_undominated(sorted(found, key=lambda way: (len(way.gives_up), way.slowdown))))


def seconds_of(run: Run) -> float:
    """How long a token of training takes, to compare runs of one model on one machine."""
    search = Search.of(run)
    return float("inf") if search is None else search.seconds


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
    usual: int | None
    """Tokens of a sample on the mean, where it may have more."""
    seconds: float
    accepts: Accepts | None
    effort: Effort

    @classmethod
    def of(
        cls, run: Run, accepts: Accepts | None = None, effort: Effort | None = None
    ) -> Search | None:
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
        usual = usual_length(base)
        seconds = seconds_per_token(base.plan, sizes, rate, usual)
        return cls(run, base.plan, rate, sizes, usual, seconds, accepts, effort or Effort())

    def slowdown(self, plan: Plan) -> float:
        sizes = self.sizes
        if plan.trainable.method not in ("full", None, self.base.trainable.method):
            sizes = replace(sizes, trained=0)  # an adapter's share of the work does not show
        return seconds_per_token(plan, sizes, self.rate, self.usual) / self.seconds

    def estimate(self, plan: Plan) -> Estimate:
        return self.run.estimated(plan)

    def fits(self, plan: Plan) -> bool:
        """Whether a plan fits, but for what is open about the run."""
        return self._tried(plan)[1] < TIGHT

    def _tried(self, plan: Plan) -> tuple[Estimate, float]:
        """What a plan needs, and its risk, but for what is open about the run; a starved engine is sure to stop."""
        estimate = self.estimate(plan)
        return estimate, 1.0 if self.starves(plan) else self.risk_by(estimate)

    def starves(self, plan: Plan) -> bool:
        """Whether the engine of a changed run cannot start, however much room training has."""
        return starves_engine(plan, self.run.limits.gpu_bytes)

    def risk_by(self, estimate: Estimate) -> float:
        """The risk of a changed run, without what is open about it."""
        limits = self.run.limits
        risk = Risk.by(estimate, limits.gpu_bytes, limits.host_bytes).any
        return 1.0 if risk is None else risk

    @property
    def is_settled(self) -> bool:
        """Whether the run fits as its author means it, and its engine has what it needs to start."""
        return not self.starves(self.run.intended.plan) and _fits(Risk.of(self.run.intended))

    def renaming(self) -> Iterator[Way]:
        """Right names for misspelt keys alone, where a run that fits as it is meant does not as it is
        written."""
        if self.run.misspelt and not _fits(Risk.of(self.run)):
            way = self.way(())
            if way is not None:
                yield way

    def nearest(self, near: Sequence[Near]) -> list[Way]:
        """Where nothing makes a run fit that rather dies than not: of the states that it rather survives, the
        cheapest of those that leave about the least risk. A run that survives as it is stays so."""
        intended = self.run.intended
        if not Risk.of(intended).is_lost and not self.starves(intended.plan):
            return []
        by_risk = sorted(near, key=lambda each: (each.risk, each.slowdown))
        tried = (
            (self.way((*each.given, *each.moves), EVEN), len(each.given))
            for each in by_risk[:_MOST_NEAR]
        )
        found = [(way, given) for way, given in tried if way is not None]
        least = min((way.danger for way, _ in found), default=0.0)
        good = [each for each in found if each[0].danger <= least + _AS_GOOD]
        good.sort(key=lambda each: (each[0].slowdown, len(each[0].moves)))
        shortest = (self._shortest(way, given, None, EVEN) for way, given in good)
        first = next((way for way in shortest if way is not None), None)
        return [] if first is None else [first]

    def mildest(
        self,
        choices: Iterable[tuple[Move, ...]],
        safe: Groups,
        slower_than: float,
        near: list[Near],
    ) -> Way | None:
        """The first of several things to give up that makes the run fit in less time; what only comes near is
        noted where nothing milder does."""
        noted = bool(near)
        for given in choices:
            mine: list[Near] = []
            way = next(self.front(given, safe, mine, slower_than=slower_than), None)
            if way is not None:
                return way
            if not noted:
                near += mine
        return None

    def front(
        self,
        given: tuple[Move, ...],
        groups: Groups,
        near: list[Near],
        *,
        slower_than: float = float("inf"),
    ) -> Iterator[Way]:
        """The cheapest way with ``given`` and safe moves, then slower ones that leave more room.

        ``slower_than`` is the slowdown of a way already found: what is no faster is left out. States that
        the run rather survives, though it does not fit, are noted in ``near``.
        """
        deltas = self.deltas(given, groups)
        if deltas is None:
            return
        best: int | None = None
        seen: set[tuple[frozenset[str], Verdict]] = set()
        judged: list[Estimate] = []
        for state, slowdown in self._in_order(deltas):
            if slowdown >= slower_than:
                return
            estimate, risk = self._tried(self.planned(deltas, state))
            moves = deltas.moves(state)
            if risk < EVEN and best is None:
                near.append(Near(risk, slowdown, given, moves))
            if (
                risk >= TIGHT
                or not _is_roomier(estimate, best)
                or any(_needs_no_less(estimate, other) for other in judged)
            ):
                continue
            way = self.resolved((*given, *moves))
            if way is not None and not _fits(way.risk):
                judged.append(estimate)
                continue
            way = None if way is None else self._shortest(way, len(given), best)
            if way is None or way.slowdown >= slower_than or not _is_roomier(way.estimate, best):
                continue
            if way.kind not in seen:
                yield way
            seen.add(way.kind)
            best = way.estimate.gpu.peak_bytes
            if (best or 0) <= _ROOMY * (self.run.limits.gpu_bytes or 0):
                return

    def deltas(self, given: Sequence[Move], groups: Groups) -> Deltas | None:
        """What each move changes in the resolved plan."""
        start = self._changed(given)
        if start is None:
            return None
        rows: list[list[tuple[Move | None, Mapping[Any, Any]]]] = []
        for group in groups:
            row = [(move, self._difference(start, self._changed((*given, move)))) for move in group]
            rows.append([(None, {}), *((move, delta) for move, delta in row if delta is not None)])
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
            merged.update(row[index][1])
        return deltas.start.with_values(merged) if merged else deltas.start

    def _in_order(self, deltas: Deltas) -> Iterator[tuple[State, float]]:
        """States from cheap to dear; of equally dear ones the one with fewer moves."""
        start: State = (0,) * len(deltas.rows)
        number = count()
        queue = [(self.slowdown(deltas.start), 0, next(number), start)]
        seen = {start}
        while queue and len(seen) <= _MOST_STATES and not self.effort.is_spent:
            self.effort.left -= 1
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

    def _shortest(self, way: Way, given: int, best: int | None, below: float = TIGHT) -> Way | None:
        """A way without the moves, behind the first ``given``, that turn out needless; ``None`` where it
        would be refused."""
        for move in way.moves[given:]:
            fewer = tuple(other for other in way.moves if other is not move)
            without = self.way(fewer, below) if fewer else None
            if without is None or without.slowdown > _NO_SLOWER * way.slowdown:
                continue
            if below > TIGHT and not _is_as_good(without, way):
                continue
            if _is_roomier(without.estimate, best):
                way = without
        if self.accepts is not None and not self.accepts(way.run):
            return None
        return way

    def way(self, moves: Sequence[Move], below: float = TIGHT) -> Way | None:
        """The run with all of ``moves``, where its risk is then ``below``."""
        way = self.resolved(moves)
        return way if way is not None and _fits(way.risk, below) else None

    def resolved(self, moves: Sequence[Move]) -> Way | None:
        """The run with all of ``moves``, where its framework can say them and it is known whether it then
        fits."""
        merged: dict[Any, Any] = {}
        for move in moves:
            merged.update(move.changes)
        try:
            changed = self.run.what_if(merged)
        except CannotEdit:
            return None
        if is_open(changed.intended) or self.starves(changed.intended.plan):
            return None
        probe, risk = settled(changed), Risk.of(changed.intended)
        return Way(tuple(moves), self.run, changed, probe.estimate, risk, self.slowdown(probe.plan))


def _fits(risk: Risk, below: float = TIGHT) -> bool:
    return risk.any is not None and risk.any < below


def _is_roomier(estimate: Estimate, best: int | None) -> bool:
    """Whether it leaves so much more room than the best way as yet, in bytes, that it is worth a line."""
    peak = estimate.gpu.peak_bytes
    return best is None or (peak is not None and peak <= _MORE_ROOM * best)


def _needs_no_less(estimate: Estimate, other: Estimate) -> bool:
    here = (estimate.gpu.peak_bytes or 0, estimate.host.peak_bytes or 0)
    there = (other.gpu.peak_bytes or 0, other.host.peak_bytes or 0)
    return all(a > _LESS_NEED * b for a, b in zip(here, there, strict=True))


def _is_as_good(one: Way, other: Way) -> bool:
    return one.danger <= other.danger + _AS_GOOD


State: TypeAlias = tuple[int, ...]


class Deltas(Struct, frozen=True):
    """The plan to start from, and for each group its moves with what they change; the first is nothing."""

    start: Plan
    rows: Sequence[Sequence[tuple[Move | None, Mapping[Any, Any]]]]

    def moves(self, state: State) -> tuple[Move, ...]:
        chosen = (row[index][0] for row, index in zip(self.rows, state, strict=True))
        return tuple(move for move in chosen if move is not None)


class Near(Struct, frozen=True):
    """A state that a run rather survives, by the prediction alone, though it does not fit."""

    risk: float
    slowdown: float
    given: tuple[Move, ...]
    moves: tuple[Move, ...]
