"""The model against measured steps: every live byte of real transformers models."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from oomlint.memory import GpuLimits, estimate, state_bytes

ROOT = Path(__file__).parents[2]
TRUTH = ROOT / "../shared/truth"
pytestmark = pytest.mark.skipif(not TRUTH.is_dir(), reason="the measured sets are not here")
# Nothing of the driver or of cuBLAS is in these rows.
BARE = GpuLimits(cublas_workspace=0, nccl=0, nccl_high=0)


def rows(name: str) -> list[dict[str, Any]]:
    with (TRUTH / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def errors(name: str, make: str) -> list[float]:
    sys.path.insert(0, str(ROOT))
    try:
        from benchmarks.accuracy import simulated
    finally:
        sys.path.remove(str(ROOT))
    found = []
    for row in rows(name):
        gpu = estimate(getattr(simulated, make)(row), BARE).gpu
        assert gpu.peak_bytes is not None
        found.append(
            abs((gpu.peak_bytes - (gpu.components["context"] or 0)) / row["peak_bytes"] - 1)
        )
    return sorted(found)


def test_single_gpu_peaks_are_within_half_a_percent() -> None:
    found = errors("simulated", "single_plan")
    assert found[len(found) // 2] < 0.0005
    assert found[int(len(found) * 0.9)] < 0.005


def test_sharded_peaks_are_within_half_a_percent() -> None:
    found = errors("sharded", "sharded_plan")
    assert found[len(found) // 2] < 0.0005
    assert found[-1] < 0.005


def test_states_are_exact() -> None:
    sys.path.insert(0, str(ROOT))
    try:
        from benchmarks.accuracy.simulated import single_plan
    finally:
        sys.path.remove(str(ROOT))
    for row in rows("simulated"):
        states = state_bytes(single_plan(row))
        assert states is not None
        assert states.parameters == row["param_bytes"], row["id"]
        assert states.gradients == row["grad_bytes"], row["id"]
        if row["optimizer"].startswith(("adamw", "sgd")):
            # torch keeps a step count a tensor beside the states.
            assert states.optimizer == pytest.approx(row["optim_state_bytes"], rel=1e-4), row["id"]
