"""What oomlint predicts for a case, to stand beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def predicted(case: Mapping[str, Any]) -> dict[str, int | None]:
    """Columns of the prediction; empty where oomlint is not installed."""
    try:
        from benchmarks.accuracy.simulated import single_plan

        from oomlint.memory import estimate
    except ImportError:
        return {}
    plan = single_plan(case)
    if case["loss"] == "fused":
        plan = plan.with_values({"loss.liger.flce": True, "loss.logits_materialised": "fused"})
    # The lengths of a row do not vary, so that nothing piles up in the allocator's cache.
    plan = plan.with_values({"seq.packing": "concat"}) if plan.seq.pad == "none" else plan
    gpu = estimate(plan).gpu
    if gpu.allocated_bytes is None:
        return {}
    return {
        "estimated_peak_bytes": gpu.allocated_bytes,
        "estimated_reserved_bytes": gpu.reserved_bytes,
        "estimated_low_bytes": gpu.low_bytes,
        "estimated_high_bytes": gpu.high_bytes,
    }
