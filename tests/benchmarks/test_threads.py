"""Dated facts: what is counted apart is said of cases that may be read, and why there was no alarm follows from bounds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.threads import cases
from benchmarks.threads.__main__ import Answer

from oomlint.hardware import parse_hardware

GIB = 2**30


def test_what_files_cannot_decide_is_a_death_that_may_be_read() -> None:
    apart = [case for case in cases() if case.undecidable]
    assert apart
    assert {(case.half in ("shown", "read"), case.died) for case in apart} == {(True, True)}


@pytest.mark.parametrize(
    ("gpu_high", "host_high", "risk", "silence"),
    [
        (None, None, 0.1, "no prediction"),
        (90, 10, None, "what was not read decides"),
        (90, 10, 0.3, "limit within bounds"),
        (70, 120, 0.3, "limit within bounds"),
        (70, 10, 0.1, "far below"),
    ],
)
def test_why_there_is_no_alarm(
    gpu_high: int | None, host_high: int | None, risk: float | None, silence: str
) -> None:
    def device(high: int | None) -> Any:
        return SimpleNamespace(high_bytes=None if high is None else high * GIB)

    spoken = SimpleNamespace(
        hardware=parse_hardware("A100-80GB"),
        host_limit=100 * GIB,
        risk=risk,
        estimate=SimpleNamespace(gpu=device(gpu_high), host=device(host_high)),
    )
    judgement: Any = SimpleNamespace(spoken=spoken)
    assert Answer(next(iter(cases())), judgement, frozenset()).silence == silence
