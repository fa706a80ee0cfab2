"""The law of risk: a probability, higher with the need, flatter where less is known."""

from __future__ import annotations

from typing import Literal

import pytest
from msgspec.structs import replace

from oomlint.judgement import EVEN, LOST, SURE, TIGHT, Risk, Severity
from oomlint.judgement.risk_model import LAW, has_room, holds, probability, risk_in, risk_of_need
from oomlint.judgement.severity import bound, severity_at, verdict_at
from oomlint.memory import DeviceEstimate, Estimate, HostEstimate
from oomlint.plan.evidence import Level

GIB = 2.0**30


def _risk(peak: float, spread: float = 1.2) -> float:
    return probability(peak, peak / spread, peak * spread, 100.0)


def test_risk_rises_with_the_need_from_none_to_certain() -> None:
    risks = [_risk(peak) for peak in range(1, 400)]
    assert risks == sorted(risks)
    assert risks[20] < TIGHT
    assert risks[-1] >= LOST
    assert all(0.0 <= risk <= 1.0 for risk in risks)


def test_at_the_limit_it_is_open() -> None:
    assert TIGHT < _risk(93.0) < LOST
    assert _risk(100.0) == pytest.approx(_risk(100.0, spread=2.0))


def test_what_is_less_sure_is_nearer_to_that_at_the_limit() -> None:
    for peak in (70.0, 140.0):
        assert abs(_risk(peak, spread=1.6) - _risk(100)) < abs(_risk(peak, spread=1.1) - _risk(100))


def test_nothing_is_needed_or_nothing_is_there() -> None:
    assert probability(0, 0, 0, 100) == 0.0
    assert probability(1, 1, 1, 0) == 1.0


def test_a_need_of_one_instant_is_as_unsure_as_the_peak() -> None:
    device = DeviceEstimate(peak_bytes=100, low_bytes=80, high_bytes=130)
    assert risk_of_need(device, 50, 60) == probability(50, 40, 65, 60)
    assert risk_of_need(device, None, 60) is None
    assert risk_of_need(DeviceEstimate(), 50, 60) is None


def test_words_and_severities_are_ranges_of_it() -> None:
    for risk, word, severity in (
        (0.0, "fits", None),
        (TIGHT, "tight", Severity.INFO),
        (EVEN, "tight", Severity.INFO),
        (LOST, "does_not_fit", Severity.WARNING),
        (SURE, "does_not_fit", Severity.ERROR),
        (1.0, "does_not_fit", Severity.ERROR),
    ):
        assert verdict_at(risk) == word
        assert severity_at(risk) is severity


def test_weak_evidence_bounds_the_severity() -> None:
    assert bound(Severity.ERROR, Level.DEFAULT) is Severity.ERROR
    assert bound(Severity.ERROR, Level.ASSUMED) is Severity.INFO
    assert bound(Severity.ERROR, Level.UNREAD) is Severity.INFO
    assert bound(Severity.ERROR, None) is Severity.ERROR


def test_either_resource_kills() -> None:
    assert Risk(0.5, 0.6).any == 0.6
    assert Risk(0.5, None).any == 0.5
    assert Risk(None, 0.3).any is None
    assert Risk(None, 0.3).verdict == "unknown"


def test_what_the_host_kills_dies_on_any_gpu() -> None:
    assert Risk(None, 0.9).any == 0.9
    assert Risk(None, 0.9).verdict == "does_not_fit"


def test_what_an_engine_takes_of_the_card_is_no_guess() -> None:
    """A pool of 60 of 80 GiB beside 14 that are sure is less than 74 that are not."""
    device = DeviceEstimate(
        peak_bytes=74,
        low_bytes=72,
        high_bytes=77,
        peak_phase="forward",
        parts={"forward": {"parameters": 14.0, "engine": 60.0}},
    )
    taken = risk_of_need(device, 74, 80, taken=60)
    assert taken == probability(14, 12, 17, 20)
    alone = risk_of_need(device, 74, 80)
    assert taken is not None
    assert alone is not None
    assert taken < alone
    estimate = Estimate(device, HostEstimate(), None, (), ())
    law = replace(LAW, floor=0.0, ceiling=0.0)
    assert risk_in(estimate, "gpu", 80, law=law) == pytest.approx(taken)


@pytest.mark.parametrize("resource", ["gpu", "host"])
def test_what_fits_is_what_rather_lives_whoever_asks(resource: Literal["gpu", "host"]) -> None:
    """A peak, a need of one instant as large, and a risk: one answer, which is not that of the limit."""
    for peak in range(800, 1200, 5):
        low, high = peak * 9 // 10, peak * 11 // 10
        device = DeviceEstimate(
            peak_bytes=peak, low_bytes=low, high_bytes=high, peak_phase="forward"
        )
        host = HostEstimate(peak_bytes=peak, low_bytes=low, high_bytes=high, peak_phase="load")
        estimate = Estimate(device, host, None, (), ())
        risk = risk_in(estimate, resource, 1000)
        fits = risk is not None and risk < EVEN
        assert holds(estimate, resource, 1000) == fits
        assert has_room(estimate, resource, peak, 1000) == fits
    unknown = Estimate(DeviceEstimate(), HostEstimate(), None, (), ())
    assert not holds(unknown, resource, 1000)


def test_severities_have_names_of_their_own_in_their_order() -> None:
    assert [(each.label, int(each)) for each in Severity] == [
        ("info", 1),
        ("warning", 2),
        ("error", 3),
    ]
