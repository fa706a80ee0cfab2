"""How much a reading of one run tells of another."""

from __future__ import annotations

from typing import Any

import pytest
from tests.plans import LLAMA_8B, plan_of

from oomlint.hardware import parse_hardware
from oomlint.memory import estimate
from oomlint.memory.limits import gpu_limits
from oomlint.memory.measured import Measurement, Nearest, nearest_of

HARDWARE = parse_hardware("1xA100-80GB")
GIB = 2**30
LORA: dict[str, Any] = {
    "model.dims": LLAMA_8B,
    "precision.param": "bf16",
    "precision.compute": "bf16",
    "parallel.backend": "none",
    "parallel.world": 1,
    "trainable.method": "lora",
    "trainable.r": 8,
    "batch.micro": 1,
    "seq.max_len": 2048,
    "seq.packing": "none",
    "checkpointing.mode": "full",
}


def _nearest(read: dict[str, int], there: dict[str, Any], **here: Any) -> Nearest:
    plan = plan_of(LORA, **here)
    found = estimate(plan, gpu_limits(HARDWARE, plan))
    kept = Measurement(plan_of({**LORA, **there}), HARDWARE, "here", **read)
    nearest = nearest_of(plan, found, [kept])
    assert nearest is not None
    return nearest


@pytest.mark.parametrize(("key", "other"), [("seq.max_len", 2304), ("parallel.world", 2)])
def test_what_is_reserved_for_varied_batches_tells_little_of_others(key: str, other: int) -> None:
    """The pile of shorter batches is another where batches are, by as much as torch reserves beyond what it allocates."""
    there = {key: other}
    allocated = _nearest({"allocated": 20 * GIB}, there)
    reserved = _nearest({"reserved": 26 * GIB}, there)
    plans = [plan_of(LORA), plan_of({**LORA, **there})]
    found = [estimate(plan, gpu_limits(HARDWARE, plan)).gpu for plan in plans]
    pile = max((gpu.reserved_bytes or 0) - (gpu.allocated_bytes or 0) for gpu in found)
    assert allocated.gpu is not None
    assert reserved.gpu is not None
    assert pile > GIB
    more = pile / max(gpu.peak_bytes or 0 for gpu in found)
    assert reserved.gpu == pytest.approx(min(0.3, allocated.gpu + more))


def test_a_run_that_differs_in_more_than_three_sections_is_another() -> None:
    there = {"seq.max_len": 2304, "optimizer.kind": "adamw", "checkpointing.offload": "cpu"}
    assert _nearest({"allocated": 20 * GIB}, there).gpu is not None
    kept = Measurement(plan_of({**LORA, **there, "batch.micro": 2}), HARDWARE, "", 20 * GIB)
    plan = plan_of(LORA)
    assert nearest_of(plan, estimate(plan, gpu_limits(HARDWARE, plan)), [kept]) is None


def test_where_batches_are_of_one_length_or_the_same_all_of_it_tells() -> None:
    packed = {"seq__packing": "multipack"}
    there = {"seq.packing": "multipack", "seq.max_len": 2304}
    allocated = _nearest({"allocated": 20 * GIB}, there, **packed)
    assert _nearest({"reserved": 26 * GIB}, there, **packed).gpu == allocated.gpu
    optimizer = {"optimizer.kind": "adamw"}
    assert (
        _nearest({"reserved": 26 * GIB}, optimizer).gpu
        == _nearest({"allocated": 20 * GIB}, optimizer).gpu
    )
    assert _nearest({"reserved": 26 * GIB}, {}).is_same
    assert _nearest({"reserved": 26 * GIB}, {}).gpu == 0
