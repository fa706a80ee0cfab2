"""Dated facts: what is counted apart is said of cases that may be read, and why there was no alarm follows from bounds."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import date
from types import SimpleNamespace
from typing import Any, Literal, get_args

import pytest
from benchmarks.threads import READ, Lot, cases
from benchmarks.threads.__main__ import _HALVES, Answer
from benchmarks.threads.silences import Cause, cause_of, table

from oomlint.hardware import parse_hardware
from oomlint.plan.fields import f

GIB = 2**30


def test_what_files_cannot_decide_is_a_death_that_may_be_read() -> None:
    apart = [case for case in cases() if case.undecidable]
    assert apart
    assert {(case.half in READ, case.died) for case in apart} == {(True, True)}


def test_each_case_is_counted_in_one_half_or_lot() -> None:
    assert {*_HALVES} == {"shown", "scored", *get_args(Lot)}
    assert len({*_HALVES}) == len(_HALVES)
    counted = [case.name for half in _HALVES for case in cases(half)]
    assert sorted(counted) == sorted(case.name for case in cases())


def test_no_run_of_the_second_fresh_lot_may_be_read() -> None:
    fresh = cases("fresh2")
    read = {case.source for case in cases() if case.lot != "fresh2"}
    assert {case.lot for case in fresh} == {"fresh2"}
    assert {case.outcome for case in fresh} == {"died", "ran"}
    assert read.isdisjoint(case.source for case in fresh)
    assert not [case.name for case in fresh if case.undecidable]
    assert min(case.date for case in fresh) >= date(2024, 6, 1)
    for case in fresh:
        assert parse_hardware(case.hardware).gpu, case.name


@pytest.mark.parametrize(
    ("read", "fresh"), [("read3", "fresh3"), ("read4", "fresh4"), ("read5", "fresh5")]
)
def test_later_lots_are_divided_by_their_addresses(read: Lot, fresh: Lot) -> None:
    threads = {case.source: case.half for case in (*cases(read), *cases(fresh))}
    for source, half in threads.items():
        is_even = int(hashlib.sha256(source.encode()).hexdigest(), 16) % 2 == 0
        assert half == (fresh if is_even else read), source
    others = {case.source for case in cases() if case.half not in (read, fresh)}
    assert others.isdisjoint(threads)
    assert len(threads) >= 30
    assert min(sum(case.died for case in cases(half)) for half in (read, fresh)) >= 10


@pytest.mark.parametrize(
    ("resource", "high", "risk", "silence"),
    [
        ("gpu", (None, None), 0.1, "no prediction or limit"),
        ("gpu", (90, 10), None, "what was not read decides"),
        ("gpu", (90, 10), 0.3, "limit within bounds"),
        ("gpu", (70, 120), 0.1, "far below"),
        ("host", (90, 10), 0.1, "far below"),
        ("host", (70, 120), 0.3, "limit within bounds"),
    ],
)
def test_why_there_is_no_alarm(
    resource: Literal["gpu", "host"],
    high: tuple[int | None, int | None],
    risk: float | None,
    silence: str,
) -> None:
    gpu, host = (SimpleNamespace(high_bytes=None if each is None else each * GIB) for each in high)
    spoken = SimpleNamespace(
        hardware=parse_hardware("A100-80GB"),
        host_limit=100 * GIB,
        risk=risk,
        bounded=SimpleNamespace(estimate=SimpleNamespace(gpu=gpu, host=host)),
    )
    judgement: Any = SimpleNamespace(spoken=spoken)
    case = replace(cases()[0], resource=resource)
    assert Answer(case, judgement, frozenset()).silence == silence


def test_a_lot_is_a_half_of_its_own() -> None:
    lots = {case.lot for case in cases() if case.lot is not None}
    assert lots == {*get_args(Lot)}
    assert {case.half for case in cases("read2")} == {"read2"}
    assert all(case.lot is None for case in (*cases("shown"), *cases("scored")))


@pytest.mark.parametrize(
    ("changes", "high", "assumed", "length", "cause"),
    [
        ({"undecidable": "a leak"}, 10, (), 512, "what no file of a run says"),
        ({"phase": "save"}, 10, (), 512, "saving, or going on from a checkpoint"),
        ({"phase": "evaluation"}, 10, (), 512, "evaluating"),
        ({"kinds": ("grpo",)}, 10, (), 512, "answers while it trains"),
        ({}, 10, (f.model.vision.max_pixels,), 512, "images of which no file says the size"),
        ({}, 10, (), None, "samples of which no file says the length"),
        ({}, 90, (), 512, "near the limit"),
        ({}, 10, (), 512, "far below the limit"),
    ],
)
def test_a_silent_death_counts_under_one_cause(
    changes: dict[str, Any], high: int, assumed: tuple[Any, ...], length: int | None, cause: Cause
) -> None:
    gpu = SimpleNamespace(high_bytes=high * GIB)
    spoken = SimpleNamespace(
        hardware=parse_hardware("A100-80GB"),
        risk=SimpleNamespace(any=0.1),
        bounded=SimpleNamespace(estimate=SimpleNamespace(gpu=gpu)),
        assumptions=tuple(SimpleNamespace(field=field) for field in assumed),
        is_up_to_data=False,
        plan=SimpleNamespace(seq=SimpleNamespace(unbounded=False, max_len=length)),
    )
    plain = {"outcome": "died", "resource": "gpu", "phase": "first_step", "kinds": ()}
    case = replace(cases()[0], **{**plain, "undecidable": "", **changes})
    judgement: Any = SimpleNamespace(spoken=spoken, risk=spoken.risk)
    found = Answer(case, judgement, frozenset())
    assert cause_of(found) == cause
    near = 1 if high == 90 else 0
    assert table([found]).endswith(f"| {cause} | 1 | {near} |\n| all | 1 | {near} |")
