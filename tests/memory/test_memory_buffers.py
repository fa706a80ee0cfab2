"""What data parallelism keeps beside the states: by hand, in bytes, of Llama-3-8B in bf16 on eight GPUs.

DeepSpeed's defaults are elements: buckets of 5e8, 1e9 live parameters, 5e7 fetched ahead, 1e5 as what stays
whole (deepspeed/runtime/zero/config.py); its largest tensor, of 128,256 words and a width of 4,096, has more.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.plans import LLAMA_8B, plan_of

from oomlint.memory.buffers import Comm, comm_buffers
from oomlint.memory.facts import Facts

NUMEL = 8_030_261_248
LARGEST = 128_256 * 4_096
# The same without the largest of its matrices in the way: adapters of rank 16 for q and v of 32 layers.
ADAPTERS = 32 * 16 * (4_096 + 4_096 + 4_096 + 1_024)
LEAVES: dict[str, Any] = {
    "model.dims": LLAMA_8B, "trainable.method": "full", "precision.param": "bf16",
    "precision.grad": "bf16", "precision.compute": "bf16", "batch.micro": 2, "seq.max_len": 512,
    "parallel.world": 8,
}  # fmt: skip


def buffers(backend: str, **changes: Any) -> Comm:
    return comm_buffers(Facts(plan_of({**LEAVES, "parallel.backend": backend}, **changes)))


def zero(stage: int, **changes: Any) -> Comm:
    return buffers("zero", **{"parallel__zero__stage": stage, **changes})


def test_ddp_keeps_gradients_in_buckets_which_may_be_the_gradients() -> None:
    assert buffers("ddp") == Comm(resident=2 * NUMEL, resident_at_step=2 * NUMEL)
    assert buffers("ddp", parallel__world=1) == Comm()
    views = buffers("ddp", parallel__ddp__bucket_view=True)
    assert views.holds_gradients
    assert views.resident == 2 * NUMEL
    sums = buffers("ddp", precision__grad_accum="fp32")
    assert sums == Comm(resident=6 * NUMEL, resident_at_step=6 * NUMEL)
    wide = buffers("ddp", precision__grad_accum="fp32", precision__grad="fp32")
    assert wide.resident == 4 * NUMEL


def test_one_gpu_keeps_sums_in_fp32_and_nothing_else() -> None:
    alone = {"parallel__world": 1}
    assert buffers("none", **alone) == Comm()
    sums = buffers("none", precision__grad_accum="fp32", **alone)
    assert sums == Comm(resident=4 * NUMEL, resident_at_step=4 * NUMEL)


def test_dataparallel_gathers_the_other_seven_outputs_in_fp32() -> None:
    found = buffers("dp")
    assert found == Comm(forward=4 * 128_256 * 1_024 * 7, backward=2 * NUMEL)
    assert buffers("dp", parallel__world=1) == Comm()


def test_dataparallel_adds_up_zeros_for_weights_that_nobody_trains() -> None:
    """As large as they are, and their sum on GPU 0; with every part that is recomputed by a backward pass of its own."""
    lora: dict[str, Any] = {
        "trainable__method": "lora", "trainable__r": 16, "trainable__targets": ("q_proj", "v_proj"),
    }  # fmt: skip
    assert buffers("dp", **lora).at_last == 4 * NUMEL
    again = {**lora, "checkpointing__mode": "full", "checkpointing__reentrant": True}
    found = buffers("dp", **again)
    assert (found.once_reduced, found.at_last) == (4 * NUMEL, 0)
    packed = buffers("dp", quant__method="gptq", quant__bits=4, **lora)
    assert (packed.once_reduced, packed.at_last) == (0, 0)


@pytest.mark.parametrize(("grad", "width"), [("bf16", 2), ("fp32", 4)])
def test_megatron_has_a_buffer_of_all_gradients(grad: str, width: int) -> None:
    found = buffers("megatron", precision__grad=grad)
    assert found == Comm(resident=width * NUMEL, resident_at_step=width * NUMEL)


def test_zero_below_one_has_no_buffers() -> None:
    assert zero(0) == Comm()


def test_zero1_fills_buckets_and_owns_an_eighth_of_the_gradients() -> None:
    assert zero(1) == Comm(backward=2 * 5e8 + 2 * NUMEL / 8)
    twice = zero(1, parallel__zero__overlap_comm=True)
    assert twice.backward == 2 * 2 * 5e8 + 2 * NUMEL / 8
    assert zero(1, offload__optimizer="cpu").backward == 2 * 5e8
    assert zero(1, parallel__zero__reduce_bucket_elems=10**8).backward == 2e8 + 2 * NUMEL / 8


def test_zero1_owns_gradients_when_its_first_bucket_is_full() -> None:
    """A bucket that all gradients have room in is reduced when backward is through, and the partition gets its place then."""
    found = zero(1, parallel__zero__reduce_bucket_elems=10**10)
    assert found == Comm(backward=2e10, once_reduced=2 * NUMEL / 8)


def test_sums_in_fp32_are_whole_under_zero1() -> None:
    """BF16_Optimizer fills no bucket; where the optimizer is offloaded, or weights are fp16, stage 1 itself adds up."""
    found = zero(1, precision__grad_accum="fp32")
    assert found == Comm(resident=4 * NUMEL, resident_at_step=4 * NUMEL)
    away = zero(1, precision__grad_accum="fp32", offload__optimizer="cpu")
    assert away == Comm(resident=4 * NUMEL, backward=2 * 5e8, resident_at_step=4 * NUMEL)
    half = zero(1, precision__grad_accum="fp32", precision__compute="fp16")
    assert half.backward == 2 * 5e8 + 2 * NUMEL / 8
    assert zero(1, precision__grad_accum="fp32", precision__compute="fp32").resident == 0


def test_zero2_puts_a_bucket_together_beside_it() -> None:
    assert zero(2) == Comm(backward=2 * 5e8 + 2 * 5e8)
    # A bucket that is larger than the largest tensor is not filled.
    large = zero(2, parallel__zero__reduce_bucket_elems=10**9)
    assert large.backward == 2 * 1e9 + 2 * LARGEST


def test_zero2_on_the_host_keeps_two_buffers_of_the_largest_parameter() -> None:
    found = zero(2, offload__optimizer="cpu")
    assert found == Comm(
        resident=4 * LARGEST, backward=2 * 5e8 + 8 * LARGEST, resident_at_step=4 * LARGEST
    )


def test_gradients_that_are_put_together_as_they_come_need_no_more_than_they_are() -> None:
    adapters: dict[str, Any] = {
        "trainable__method": "lora",
        "trainable__r": 16,
        "trainable__targets": ("q_proj", "v_proj"),
        "trainable__adapter_dtype": "bf16",
    }
    largest = 16 * 4_096
    loose = zero(2, parallel__zero__contiguous_grads=False, **adapters)
    assert loose.backward == 2 * ADAPTERS + 2 * largest
    assert zero(2, **adapters).backward == 2 * 5e8 + 2 * largest


def test_zero3_gathers_up_to_its_limit_and_what_it_fetches_ahead() -> None:
    norms = 32 * 2 * 4_096
    resident = 2 * 5e8 + 2 * norms
    gathered = 2 * (1e9 + 5e7)
    found = zero(3)
    assert (found.resident, found.resident_at_step) == (resident, resident)
    assert (found.forward, found.backward) == (gathered, gathered + 2 * 5e8)
    few = zero(3, parallel__zero__max_live_params=10**6, parallel__zero__prefetch_elems=10**6)
    # A module is gathered whole, however large.
    assert few.forward == 2 * (LARGEST + 1e6)
    large = zero(3, parallel__zero__reduce_bucket_elems=10**9)
    assert large.backward == gathered + 2 * LARGEST
    split = zero(3, parallel__zero__persistence_threshold=4_095)
    assert split.resident == 2 * 5e8
    assert zero(3, parallel__zero__persistence_threshold=4_096).resident == resident
    all_of_it = zero(3, parallel__zero__max_live_params=10**11)
    assert all_of_it.forward == 2 * NUMEL


def test_a_model_that_was_whole_before_zero3_keeps_the_head_and_a_block_it_gathered() -> None:
    """q, o of 4,096 squared, k and v of 1,024, three of 14,336: torch's layers hold their weight until backward."""
    block = 4_096 * (2 * 4_096 + 2 * 1_024 + 3 * 14_336)
    whole = {"load__zero3_init": False}
    none, full = (zero(3, checkpointing__mode=mode, **whole) for mode in ("none", "full"))
    unheld = zero(3, load__zero3_init=True)
    assert none.forward - unheld.forward == none.backward - unheld.backward == 2 * LARGEST
    assert full.forward - unheld.forward == full.backward - unheld.backward == 2 * (LARGEST + block)
    for other in (zero(2, **whole), zero(3, parallel__world=1, **whole)):
        assert other.forward <= unheld.forward
    assert zero(3) == unheld
