"""The model against steps that we measured: architectures and towers that other sets lack."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from oomlint.memory import GpuLimits, estimate, state_bytes

ROOT = Path(__file__).parents[2]
STEPS = [
    json.loads(line)
    for line in (Path(__file__).parent / "data/steps.jsonl").read_text("utf-8").splitlines()
]
# Nothing of the driver or of cuBLAS is in these rows.
BARE = GpuLimits(cublas_workspace=0, nccl=0, nccl_high=0)


def plan_of(row: dict[str, Any]) -> Any:
    sys.path.insert(0, str(ROOT))
    try:
        from benchmarks.accuracy.steps import step_plan
    finally:
        sys.path.remove(str(ROOT))
    return step_plan(row)


@pytest.mark.parametrize("row", STEPS, ids=[row["id"] for row in STEPS])
def test_the_peak_is_within_two_percent(row: dict[str, Any]) -> None:
    gpu = estimate(plan_of(row), BARE).gpu
    assert gpu.peak_bytes is not None
    predicted = gpu.peak_bytes - (gpu.components["context"] or 0)
    assert predicted == pytest.approx(row["peak_bytes"], rel=0.02)


def test_half_of_the_peaks_are_within_a_ten_thousandth() -> None:
    errors = []
    for row in STEPS:
        gpu = estimate(plan_of(row), BARE).gpu
        assert gpu.peak_bytes is not None
        predicted = gpu.peak_bytes - (gpu.components["context"] or 0)
        errors.append(abs(predicted / row["peak_bytes"] - 1))
    assert sorted(errors)[len(errors) // 2] < 0.0002


@pytest.mark.parametrize("row", STEPS, ids=[row["id"] for row in STEPS])
def test_parameters_are_counted(row: dict[str, Any]) -> None:
    states = state_bytes(plan_of(row))
    assert states is not None
    assert states.parameters == pytest.approx(row["param_bytes"], rel=0.012)
