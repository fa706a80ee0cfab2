"""Which way is better than another, of ways that are given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oomlint.judgement import Risk
from oomlint.judgement.planner import search
from oomlint.judgement.planner.moves import Move
from oomlint.judgement.planner.search import Near, Search, Way
from oomlint.memory import DeviceEstimate, Estimate, HostEstimate
from oomlint.plan import Plan
from oomlint.runs.run import Limits

GIB = 2**30
HALF, LESS, ADAPTER = (
    Move("micro-batch-too-large", "half the batch", {"a": 1}),
    Move("no-gradient-checkpointing", "recompute", {"b": 2}),
    Move("full-ft-where-adapter-needed", "train an adapter", {"c": 3}, "not all weights"),
)


def given(gpu: float | None, host: float | None = 1.0) -> Estimate:
    peaks = [None if gib is None else int(gib * GIB) for gib in (gpu, host)]
    return Estimate(
        DeviceEstimate(peak_bytes=peaks[0]), HostEstimate(peak_bytes=peaks[1]), None, (), ()
    )


def way(
    *moves: Move, gpu: float = 50, risk: float = 0.1, slowdown: float = 1.0, margin: float = 0.9
) -> Way:
    base: Any = SimpleNamespace(margin=margin, limits=Limits(gpu_bytes=80 * GIB), misspelt=())
    return Way(moves or (HALF,), base, base, given(gpu), Risk(risk, None), slowdown)


def test_of_two_ways_one_is_better_in_nothing() -> None:
    """76 of 80 GiB leave no room, so that a way of as few moves may still be worse in all."""
    full = way(gpu=76, risk=0.15)
    assert way(gpu=70).dominates(way(gpu=76, risk=0.3))
    assert way(gpu=76, risk=0.1).dominates(full)
    assert not way(gpu=77).dominates(full)
    assert not way(gpu=70, slowdown=1.1).dominates(full)
    assert not way(ADAPTER, gpu=70).dominates(full)
    assert way(gpu=70).dominates(way(ADAPTER, gpu=76))
    # What leaves a risk dominates nothing that leaves none, but another that leaves one.
    assert not way(gpu=70, risk=0.3).dominates(full)
    assert way(gpu=70, risk=0.3).dominates(way(gpu=76, risk=0.3))
    # 72 GiB are nine tenths: enough room, with no more moves.
    assert not way(gpu=70).dominates(way(gpu=72))
    assert way(gpu=70).dominates(way(HALF, LESS, gpu=72))
    assert not way(HALF, LESS, gpu=70).dominates(way(HALF, LESS, gpu=72))


def test_what_a_way_says_of_its_moves() -> None:
    both = way(HALF, ADAPTER)
    assert both.changes == {"a": 1, "c": 3}
    assert both.titles == ("half the batch", "train an adapter")
    assert both.gives_up == ("not all weights",)
    assert not both.is_safe
    assert way(HALF, LESS).is_safe
    assert way(risk=0.1).kind == (frozenset({"micro-batch-too-large"}), "fits")
    assert way(risk=0.1).kind != way(risk=0.3).kind
    assert [way(gpu=gpu).is_comfortable for gpu in (72, 72.1)] == [True, False]


def test_ways_that_another_dominates_are_left_out() -> None:
    first, second, third = way(gpu=76), way(gpu=70), way(gpu=60, slowdown=1.2)
    assert list(search._undominated([first, second, third])) == [second, third]
    assert list(search._undominated([first])) == [first]


def test_what_may_be_given_up_at_once_is_a_move_of_one_group_or_of_two() -> None:
    groups = ((HALF, LESS), (ADAPTER,), (HALF,))
    assert list(search._bundles(groups)) == [
        [(HALF,), (LESS,)], [(ADAPTER,)], [(HALF,)],
        [(HALF, ADAPTER), (LESS, ADAPTER)], [(HALF, HALF), (LESS, HALF)], [(ADAPTER, HALF)],
    ]  # fmt: skip
    assert search._taken(groups, None) == groups
    assert search._taken(groups, lambda move: move is HALF) == ((HALF,), (HALF,))


@pytest.mark.parametrize(
    ("gpu", "best", "is_roomier"),
    [(75, None, True), (75, 100, True), (75.1, 100, False), (None, 100, False), (None, None, True)],
)
def test_a_quarter_less_is_roomier(gpu: float | None, best: int | None, is_roomier: bool) -> None:
    assert search._is_roomier(given(gpu), None if best is None else best * GIB) is is_roomier


@pytest.mark.parametrize(
    ("gpu", "host", "no_less"),
    [(100, 100, True), (97, 100, False), (98, 98, True), (100, 97, False), (200, 50, False), (None, 100, False)],
)  # fmt: skip
def test_three_hundredths_less_of_either_are_worth_a_judgement(
    gpu: float | None, host: float, no_less: bool
) -> None:
    assert search._needs_no_less(given(gpu, host), given(100, 100)) is no_less


def test_what_fits_is_below_a_fifth() -> None:
    assert [search._fits(Risk(risk, None)) for risk in (0.19, 0.2, None)] == [True, False, False]
    assert search._fits(Risk(0.49, 0.1), 0.5)
    assert not search._fits(Risk(0.1, 0.5), 0.5)


def test_risks_within_a_twentieth_are_as_good() -> None:
    assert search._is_as_good(way(risk=0.25), way(risk=0.21))
    assert not search._is_as_good(way(risk=0.27), way(risk=0.21))
    assert search._is_as_good(way(risk=0.1), way(risk=0.4))


@pytest.mark.parametrize(
    ("gpu", "host", "either"),
    [(0.3, None, 0.3), (0.3, 0.4, 0.4), (None, 0.5, 0.5), (None, 0.49, None), (None, None, None), (0.0, 0.0, 0.0)],
)  # fmt: skip
def test_the_risk_of_either(gpu: float | None, host: float | None, either: float | None) -> None:
    found = Risk(gpu, host)
    assert found.any == either
    assert found.is_lost is ((either or 0) >= 0.5)


class Told(Search, frozen=True):
    """A search whose ways are told by their moves."""

    @property
    def told(self) -> dict[tuple[str, ...], Way]:
        return self.run.told  # type: ignore[attr-defined, no-any-return]

    def resolved(self, moves: Any) -> Way | None:
        return self.told.get(tuple(move.title for move in moves))


def searching(lost: bool = True, **told: Way | None) -> Told:
    named = {"h": HALF, "l": LESS, "a": ADAPTER}
    ways = {tuple(named[letter].title for letter in name): found for name, found in told.items()}
    intended, no_limits = SimpleNamespace(lost=lost, plan=Plan()), SimpleNamespace(gpu_bytes=None)
    run: Any = SimpleNamespace(told=ways, intended=intended, limits=no_limits)
    nothing: Any = None
    return Told(run, nothing, nothing, nothing, None, 1.0, None, search.Effort())


@pytest.fixture
def risks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Risk, "of", staticmethod(lambda run: Risk(0.9 if run.lost else 0.3, None)))


@pytest.mark.usefixtures("risks")
def test_where_nothing_fits_the_cheapest_of_the_least_risks_is_taken() -> None:
    near = [
        Near(0.4, 1.0, (), (HALF,)),
        Near(0.3, 1.2, (), (LESS,)),
        Near(0.3, 1.1, (), (ADAPTER,)),
    ]
    least = way(LESS, risk=0.3, slowdown=1.2)
    as_good = way(ADAPTER, risk=0.34, slowdown=1.1)
    cheap = way(HALF, risk=0.4, slowdown=1.0)
    assert searching(h=cheap, l=least, a=as_good).nearest(near) == [as_good]
    assert searching(h=cheap, l=least).nearest(near) == [least]
    assert searching(h=cheap).nearest(near) == [cheap]
    assert searching(h=way(risk=0.5)).nearest(near) == []
    assert searching().nearest(near) == []
    assert searching(lost=False, h=cheap).nearest(near) == []


def test_a_move_that_turns_out_needless_is_left_out() -> None:
    both = way(HALF, LESS, slowdown=1.0)

    def shortened(
        alone: Way | None, given: int = 0, best: int | None = None, below: float = 0.2
    ) -> Way | None:
        return searching(h=alone)._shortest(both, given, best, below)

    alone = way(HALF, slowdown=1.02)
    assert shortened(alone) is alone
    # It takes longer; it does not fit; it is asked for; it leaves no more room than what was found.
    assert shortened(way(HALF, slowdown=1.03)) is both
    assert shortened(way(HALF, risk=0.3)) is both
    assert shortened(None) is both
    assert shortened(alone, given=2) is both
    assert shortened(alone, best=60 * GIB) is both
    # It fits, and no more is asked.
    assert shortened(way(HALF, risk=0.19)) is not both
    # Where a risk is left, one more than a twentieth higher is no bargain.
    assert shortened(way(HALF, risk=0.14), below=0.5) is not both
    assert shortened(way(HALF, risk=0.16), below=0.5) is both
