"""The bounds: what widens them, and how causes add."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from tests.plans import LLAMA_8B, plan_of

from oomlint.memory import Bounds, DeviceEstimate, GpuLimits, estimate
from oomlint.models import lookup
from oomlint.plan import Plan
from oomlint.plan.model import Moe

PACKED: dict[str, Any] = {
    "model.dims": LLAMA_8B,
    "model.attn_impl": "flash2",
    "trainable.method": "full",
    "precision.param": "bf16",
    "precision.grad": "bf16",
    "precision.optim_state": "bf16",
    "precision.compute": "bf16",
    "optimizer.kind": "adamw",
    "optimizer.fused": True,
    "parallel.backend": "none",
    "batch.micro": 2,
    "seq.max_len": 4096,
    "seq.packing": "multipack",
    "checkpointing.mode": "full",
    "eval.enabled": False,
}


def spread(gpu: GpuLimits | None = None, **changes: Any) -> tuple[int, int]:
    """Bytes from the lower bound to the peak, and from there to the upper one."""
    plan = plan_of(PACKED, **changes)
    found = estimate(plan, gpu).gpu
    assert found.peak_bytes is not None
    assert found.low_bytes is not None
    assert found.high_bytes is not None
    return found.peak_bytes - found.low_bytes, found.high_bytes - found.peak_bytes


def counters(gpu: GpuLimits | None = None, **changes: Any) -> DeviceEstimate:
    return estimate(plan_of(PACKED, **changes), gpu).gpu


def width(bounds: Bounds | None, at: int | None) -> float:
    """The width of bounds as a share of what they are around."""
    assert bounds is not None
    assert at is not None
    assert bounds.low < at < bounds.high
    return (bounds.high - bounds.low) / at


def test_packed_runs_of_a_known_class_on_a_known_card_are_narrow() -> None:
    found = counters(GpuLimits(context=450 << 20, context_high=600 << 20))
    assert found.peak_bytes is not None
    allocated = found.peak_bytes - (found.components["context"] or 0)
    assert width(found.allocated, allocated) < 0.3
    assert width(found.reserved, found.reserved_bytes) < 0.3


def test_what_is_reserved_is_bounded_apart_from_what_is_allocated() -> None:
    found = counters()
    assert found.allocated is not None
    assert found.reserved is not None
    # With 64 GiB of states, gradients and half a dozen of logits cached, the one begins where the other ends.
    assert found.allocated.low < found.reserved.low
    assert found.allocated.high < found.reserved.high
    assert found.low_bytes == found.allocated.low
    assert found.high_bytes is not None
    assert found.high_bytes > found.reserved.high + (found.components["context"] or 0)


def test_lengths_that_vary_are_a_class_of_their_own() -> None:
    one, varied = counters(), counters(seq__packing="none")
    assert not one.lengths_vary
    assert varied.lengths_vary
    assert width(varied.reserved, varied.reserved_bytes) > width(one.reserved, one.reserved_bytes)
    # The pile may never come, but no run reserves less than it allocates.
    assert varied.reserved is not None
    assert varied.allocated is not None
    assert varied.reserved.low >= varied.allocated.low


def test_varied_lengths_reach_further_both_ways() -> None:
    less, more = spread()
    shorter, longer = spread(seq__packing="none")
    assert shorter > less
    assert longer > more


def test_a_class_that_nobody_read_is_less_certain() -> None:
    less, more = spread()
    wider = spread(model__dims=replace(LLAMA_8B, arch="unheard_of"))
    assert wider[0] > 2 * less
    assert wider[1] > 1.5 * more


def test_a_tower_is_less_uncertain_than_a_class_that_nobody_read_and_images_add_to_it() -> None:
    found = lookup("Qwen/Qwen2.5-VL-7B-Instruct")
    assert found is not None
    seen: dict[str, Any] = {
        "model__dims": found.dims,
        "trainable__method": "lora",
        "trainable__r": 8,
    }
    small = counters(**seen, model__vision__max_pixels=28 * 28 * 4)
    large = counters(**seen, model__vision__max_pixels=28 * 28 * 1024)
    unread = counters(**{**seen, "model__dims": replace(found.dims, arch="new_thing", vision=None)})
    assert width(small.allocated, small.allocated_bytes) < width(
        large.allocated, large.allocated_bytes
    )
    assert width(large.allocated, large.allocated_bytes) < width(
        unread.allocated, unread.allocated_bytes
    )


def test_experts_may_get_more_tokens_than_their_share() -> None:
    moe = Moe(experts=8, topk=2, moe_ffn=4096)
    gpu = GpuLimits(usable=None)
    sparse = spread(gpu, model__dims=replace(LLAMA_8B, arch="mixtral", moe=moe))
    dense = spread(gpu)
    peaks = [
        estimate(Plan().with_values(PACKED | {"model.dims": dims}), gpu).gpu.peak_bytes or 0
        for dims in (replace(LLAMA_8B, arch="mixtral", moe=moe), LLAMA_8B)
    ]
    assert sparse[1] / peaks[0] > 1.15 * dense[1] / peaks[1]
    ranks = {"parallel.backend": "megatron", "parallel.world": 8, "parallel.ep": 4}
    apart = Plan().with_values(
        PACKED | ranks | {"model.dims": replace(LLAMA_8B, arch="mixtral", moe=moe)}
    )
    together = apart.with_values({"parallel.ep": 1, "parallel.world": 2})
    shares = []
    for plan in (apart, together):
        found = estimate(plan, gpu).gpu
        assert found.high_bytes is not None
        assert found.peak_bytes is not None
        shares.append(found.high_bytes / found.peak_bytes)
    assert shares[0] > shares[1] + 0.05


def test_independent_causes_add_in_quadrature() -> None:
    wide = GpuLimits(context_high=GpuLimits().context + (4 << 30))
    narrow = GpuLimits(context_high=GpuLimits().context)
    added = spread(wide)[1] - spread(narrow)[1]
    assert 0 < added < 4 << 30


def test_a_guess_counts_by_itself() -> None:
    kept = {"checkpointing__mode": "none"}
    one, guessed = spread(batch__micro=1, **kept), spread(batch__micro=None, **kept)
    assert guessed[0] > 2 * one[0]
    assert guessed[1] > 1.3 * one[1]


def test_transformer_engine_widens_both_bounds_and_torchao_none() -> None:
    plain = spread(checkpointing__mode="none")
    wider = spread(checkpointing__mode="none", precision__fp8_train="te")
    assert wider[0] > plain[0]
    assert wider[1] > plain[1]
    assert spread(checkpointing__mode="none", precision__fp8_train="torchao") == plain
