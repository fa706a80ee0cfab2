"""What one rank of several has of a model, and every instant of its step: two small models, worked out by hand.

A dense one with two blocks of 36,992 elements between an embedding and a head of 64,000 each, and a mixture of two
blocks with 12,288 elements in attention, eight experts of 24,576 and a router of 512.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.plans import plan_of

from oomlint.memory.checkpoint import reordered_bytes
from oomlint.memory.facts import Facts
from oomlint.memory.logits import logits_of
from oomlint.memory.states import (
    buffer_bytes,
    frozen_weight_bytes,
    frozen_weight_bytes_of,
    largest_trained,
    local_trained,
    state_bytes_of,
)
from oomlint.memory.step import (
    Point,
    optimizer_temporaries,
    replicated_points,
    selective_bytes,
    stack_of,
)
from oomlint.memory.units import units_of
from oomlint.plan.model import ModelDims, Moe

SMALL = ModelDims(
    arch="llama", layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=1000,
    tie_embeddings=False, act="swiglu", norm="rms",
)  # fmt: skip
MIXED = replace(SMALL, arch="mixtral", moe=Moe(experts=8, topk=2, moe_ffn=128))
BLOCK, END, NORM = 36_992, 64_000, 64
NUMEL = 2 * (BLOCK + END) + NORM
# Of two blocks of the mixture.
ATTENTION, EXPERTS, REST = 2 * 12_288, 2 * 8 * 24_576, 2 * (512 + 128)
TOKENS = 32
LEAVES: dict[str, Any] = {
    "model.dims": SMALL, "trainable.method": "full", "precision.param": "bf16",
    "precision.grad": "bf16", "precision.optim_state": "fp32", "precision.compute": "bf16",
    "optimizer.kind": "adamw", "optimizer.fused": True, "batch.micro": 1, "seq.max_len": TOKENS,
    "checkpointing.mode": "full",
}  # fmt: skip
LORA: dict[str, Any] = {
    "trainable__method": "lora", "trainable__r": 8, "trainable__targets": ("q_proj", "v_proj"),
    "trainable__adapter_dtype": "bf16",
}  # fmt: skip


def facts(**changes: Any) -> Facts:
    return Facts(plan_of(LEAVES, **changes))


def mixture(backend: str = "megatron", **changes: Any) -> Facts:
    sizes = {f"parallel__{name}": value for name, value in changes.items() if name in _SIZES}
    rest = {name: value for name, value in changes.items() if name not in _SIZES}
    return facts(
        model__dims=MIXED, parallel__backend=backend, **{"parallel__world": 16, **sizes}, **rest
    )


_SIZES = frozenset({"world", "tp", "pp", "ep", "etp", "dp", "cp", "expert_shard"})


# -- elements of a rank ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "ends", "attention", "experts", "rest"),
    [
        ({}, 2 * END + NORM, ATTENTION, EXPERTS, REST),
        ({"tp": 2}, (2 * END + NORM) / 2, ATTENTION / 2, EXPERTS / 2, REST),
        ({"pp": 2}, END + NORM, ATTENTION / 2, EXPERTS / 2, REST / 2),
        ({"ep": 4}, 2 * END + NORM, ATTENTION, EXPERTS / 4, REST),
        # Each expert is split like the rest of the layer unless somebody says otherwise.
        ({"tp": 2, "ep": 4}, (2 * END + NORM) / 2, ATTENTION / 2, EXPERTS / 8, REST),
        ({"tp": 2, "ep": 4, "etp": 1}, (2 * END + NORM) / 2, ATTENTION / 2, EXPERTS / 4, REST),
        ({"tp": 2, "pp": 2, "ep": 2}, (END + NORM) / 2, ATTENTION / 4, EXPERTS / 8, REST / 2),
    ],
)
def test_a_rank_has_so_many_elements(
    sizes: dict[str, Any], ends: float, attention: float, experts: float, rest: float
) -> None:
    f = mixture(**sizes)
    local = ends + attention + experts + rest
    assert frozen_weight_bytes_of(f, 3.0) == 3 * local
    assert frozen_weight_bytes(f) == 2 * local
    assert local_trained(f) == pytest.approx(local)


@pytest.mark.parametrize(
    ("sizes", "dense", "experts"),
    [
        ({}, (2 * END + NORM + ATTENTION + REST) / 16, EXPERTS / 16),
        # Of 16 ranks four have the same experts.
        ({"ep": 4}, (2 * END + NORM + ATTENTION + REST) / 16, EXPERTS / 4 / 4),
        ({"ep": 16}, (2 * END + NORM + ATTENTION + REST) / 16, EXPERTS / 16),
        ({"ep": 4, "expert_shard": 2}, (2 * END + NORM + ATTENTION + REST) / 16, EXPERTS / 4 / 2),
        ({"tp": 2, "ep": 4}, ((2 * END + NORM + ATTENTION) / 2 + REST) / 8, EXPERTS / 8 / 2),
        ({"tp": 2, "ep": 4, "etp": 1}, ((2 * END + NORM + ATTENTION) / 2 + REST) / 8, EXPERTS / 4 / 4),
        # Whole experts on each of 16 ranks, that share them among all (Megatron's expert data parallelism).
        ({"tp": 2, "etp": 1}, ((2 * END + NORM + ATTENTION) / 2 + REST) / 8, EXPERTS / 16),
        # More experts than ranks would share: each has its own.
        ({"tp": 2, "ep": 16}, ((2 * END + NORM + ATTENTION) / 2 + REST) / 8, EXPERTS / 32),
        # Ranks of one sequence share too.
        ({"cp": 2, "ep": 4}, (2 * END + NORM + ATTENTION + REST) / 16, EXPERTS / 4 / 4),
    ],
)  # fmt: skip
def test_ranks_share_dense_weights_and_their_own_experts(
    sizes: dict[str, Any], dense: float, experts: float
) -> None:
    states = state_bytes_of(mixture(**sizes, precision__master="fp32"))
    assert states.master == pytest.approx(4 * (dense + experts))
    assert states.optimizer == pytest.approx(8 * (dense + experts))


def test_adapters_of_experts_lie_where_the_experts_do() -> None:
    """Rank 8: for each expert 64 + 256 of gate and up, 128 + 64 of down, in two blocks; q and v of 64 + 64 and 64 + 32."""
    adapted: dict[str, Any] = {**LORA, "trainable__target_params": "experts"}
    experts, dense = 8 * 2 * 8 * (64 + 256 + 128 + 64), 8 * 2 * (128 + 96)
    assert local_trained(mixture(**adapted)) == experts + dense
    assert local_trained(mixture(**adapted, ep=4)) == experts / 4 + dense
    assert local_trained(mixture(**adapted, ep=4, pp=2)) == (experts / 4 + dense) / 2


def test_units_have_the_experts_of_their_rank() -> None:
    block = 12_288 + 8 * 24_576 + 512 + 128
    f = mixture("fsdp1", ep=4)
    assert units_of(f).blocks == (pytest.approx(block - 8 * 24_576 * 3 / 4),)
    assert units_of(mixture("fsdp1")).blocks == (block,)
    # Split over two ranks, of each of which an eighth of the experts is.
    split = mixture("fsdp1", tp=2, ep=4)
    assert units_of(split).blocks == (pytest.approx(block / 2 - 8 * 24_576 * (1 / 2 - 1 / 8)),)


def test_packed_weights_make_units_smaller_and_adapters_larger() -> None:
    packed: dict[str, Any] = {
        "parallel__backend": "fsdp1", "parallel__world": 4, "quant__method": "bnb4", **LORA,
    }  # fmt: skip
    adapters = 8 * (64 + 64 + 64 + 32)
    assert units_of(facts(**packed)).blocks == (
        pytest.approx(128 + 36_864 * (0.5 + 4 / 64) / 2 + adapters),
    )
    # In buffers they are no parameters.
    gone = facts(**{**packed, "quant__method": "gptq"})
    assert units_of(gone).blocks == (pytest.approx(128 + adapters),)
    # Under FSDP2 each factor is a parameter, of which dim 0 is padded: 8 rows to 9, 64 to 66, 32 to 33.
    each = {**packed, "parallel__backend": "fsdp2", "parallel__world": 3, "quant__method": "none"}
    padded = 132 + 4 * 66 * 64 + 33 * 128 + 2 * 129 * 64 - 2 * 66 * 64 + 66 * 128
    factors = 9 * 64 + 66 * 8 + 9 * 64 + 33 * 8
    assert units_of(facts(**each)).blocks == (pytest.approx(padded + factors),)
    counted = facts(**each, trainable__params=5_000)
    assert units_of(counted).blocks == (pytest.approx(padded + 5_000 / 2),)


def test_fsdp2_pads_each_parameter_to_the_ranks() -> None:
    """On three ranks 1,000 rows become 1,002, 64 become 66, 32 become 33, 128 become 129."""
    ranks: dict[str, Any] = {"parallel__backend": "fsdp2", "parallel__world": 3}
    block = 66 * 2 + 2 * 66 * 64 + 2 * 33 * 64 + 2 * 129 * 64 + 66 * 128
    whole = 2 * block + 2 * 1_002 * 64 + 66
    states = state_bytes_of(facts(**ranks))
    assert states.parameters == pytest.approx(2 * whole / 3)
    assert states.gradients == pytest.approx(2 * whole / 3)
    assert states.optimizer == pytest.approx(8 * whole / 3)
    adapters = 2 * (9 * 64 + 66 * 8 + 9 * 64 + 33 * 8)
    lora = state_bytes_of(facts(**ranks, **LORA))
    assert lora.parameters == pytest.approx(2 * (whole + adapters) / 3)
    assert lora.gradients == pytest.approx(2 * adapters / 3)
    flat = state_bytes_of(facts(**{**ranks, "parallel__backend": "fsdp1"}))
    assert flat.parameters == pytest.approx(2 * NUMEL / 3)
    f = facts(**ranks)
    assert units_of(f).blocks == (block,)
    assert (units_of(f).embed, units_of(f).tail) == (1_002 * 64, 66 + 1_002 * 64)


def test_experts_that_ranks_split_among_themselves_are_not_padded() -> None:
    """On 32 ranks eight experts would be padded to 32; split over two, 16 ranks share four of them by their columns."""
    ranks: dict[str, Any] = {
        "model__dims": MIXED,
        "parallel__backend": "fsdp2",
        "parallel__world": 32,
    }
    experts = 8 * 24_576
    # Norms, attention's layers and the router, which is padded from 8 rows to 32.
    rest = 64 * 2 + 2 * 64 * 64 + 2 * 32 * 64 + 32 * 64
    assert units_of(facts(**ranks)).blocks == (pytest.approx(4 * experts + rest),)
    assert units_of(facts(**ranks, parallel__ep=2)).blocks == (pytest.approx(experts / 2 + rest),)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # Experts stacked in one parameter are no linear layers.
        ({"quant__method": "bnb4"}, ATTENTION * 0.5625 + 2 * (EXPERTS + REST + 2 * END + NORM)),
        (
            {"quant__method": "bnb4", "quant__quantises_moe_experts": True},
            (ATTENTION + EXPERTS) * 0.5625 + 2 * (REST + 2 * END + NORM),
        ),
        ({"quant__method": "gptq"}, (ATTENTION + EXPERTS) * (0.5 + 2.5 / 128) + 2 * (REST + 2 * END + NORM)),
        (
            {"quant__method": "gptq", "quant__quantises_moe_experts": False},
            ATTENTION * (0.5 + 2.5 / 128) + 2 * (EXPERTS + REST + 2 * END + NORM),
        ),
        # Each expert had linear layers of its own before transformers 5.
        (
            {"quant__method": "bnb8", "versions": {"transformers": "4.57.0"}},
            (ATTENTION + EXPERTS) + 2 * (REST + 2 * END + NORM),
        ),
        (
            {"quant__method": "bnb8", "quant__skip_modules": ()},
            ATTENTION + END + 2 * (EXPERTS + REST + END + NORM),
        ),
        ({"quant__method": "mxfp4"}, EXPERTS * (0.5 + 1 / 32) + 2 * (ATTENTION + REST + 2 * END + NORM)),
        (
            {"quant__method": "mxfp4", "precision__param": "fp32"},
            EXPERTS * (0.5 + 1 / 32) + 4 * (ATTENTION + REST + 2 * END + NORM),
        ),
        (
            {"quant__method": "bnb4", "precision__param": "fp32"},
            ATTENTION * 0.5625 + 4 * (EXPERTS + REST + 2 * END + NORM),
        ),
        (
            {"quant__method": "bnb4", "quant__prepares_kbit": True},
            ATTENTION * 0.5625 + 2 * EXPERTS + 4 * (REST + 2 * END + NORM),
        ),
    ],
)  # fmt: skip
def test_packed_mixtures(changes: dict[str, Any], expected: float) -> None:
    assert frozen_weight_bytes(mixture("none", world=1, **LORA, **changes)) == pytest.approx(
        expected
    )


def test_packed_weights_are_split_over_stages_and_ranks() -> None:
    packed: dict[str, Any] = {**LORA, "quant__method": "gptq"}
    width = 0.5 + 2.5 / 128
    found = mixture(tp=2, pp=2, ep=4, **packed)
    assert buffer_bytes(found) == pytest.approx((ATTENTION / 4 + EXPERTS / 16) * width)
    whole = (END + NORM) / 2 + REST / 2
    assert frozen_weight_bytes(found) == pytest.approx(buffer_bytes(found) + 2 * whole)
    head = mixture(tp=2, **packed, quant__skip_modules=())
    assert buffer_bytes(head) == pytest.approx((ATTENTION + EXPERTS + END) / 2 * width)
    copied: dict[str, Any] = {
        **LORA, "quant__method": "bnb8", "versions": {"bitsandbytes": "0.38.1"},
    }  # fmt: skip
    assert reordered_bytes(mixture(tp=2, pp=2, **copied)) == 2 * ATTENTION / 4
    assert reordered_bytes(mixture(**copied, quant__quantises_moe_experts=True)) == 2 * (
        ATTENTION + EXPERTS
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, END),
        # Rank times the wider end of a layer that carries an adapter.
        (LORA, 8 * 64),
        ({**LORA, "trainable__targets": ("down_proj",)}, 8 * 128),
        ({**LORA, "trainable__r": 5_000, "trainable__targets": ("down_proj",)}, END),
        ({**LORA, "trainable__modules_to_save": ("embed_tokens",)}, END),
        ({**LORA, "trainable__modules_to_save": ("lm_head",)}, END),
    ],
)
def test_the_largest_trained_tensor(changes: dict[str, Any], expected: float) -> None:
    assert largest_trained(facts(**changes)) == expected


def test_selective_checkpointing_keeps_a_part_on_each_rank() -> None:
    """Outputs of q, k, v, o and three of the feed-forward layer, the attention's output with 4 bytes a head."""
    f = facts(
        checkpointing__mode="selective_op", parallel__backend="megatron", parallel__world=2,
        parallel__tp=2,
    )  # fmt: skip
    (profile,) = stack_of(f).walk.kinds
    outputs = 64 + 32 + 32 + 64 + 128 + 128 + 64
    assert selective_bytes(f, profile) == (outputs + 2 * 64 + 4 * 4) / 2 + 2 * 64


# -- a step on whole layers -----------------------------------------------------------------------------

BARE = 16 * TOKENS + 2 * TOKENS * 16 * 2
HIDDEN = 2 * TOKENS * 64
SAVED = 2 * HIDDEN
ZERO: dict[str, Any] = {
    "parallel__backend": "zero", "parallel__world": 4, "precision__master": "fp32",
    "parallel__zero__reduce_bucket_elems": 1_000, "parallel__zero__max_live_params": 1_000,
    "parallel__zero__prefetch_elems": 1_000,
}  # fmt: skip


def zero(stage: int, **changes: Any) -> Facts:
    return facts(**{**ZERO, "parallel__zero__stage": stage, **changes})


# By case: the plan, the gradients of earlier micro batches, what an element of a finished layer adds, and what those
# of the layer itself take, of which there are so many.
def _whole(own: float) -> float:
    return 2 * own


def _largest(own: float) -> float:
    """A partition is filled tensor by tensor."""
    return 2 * min(own, END)


CASES: dict[str, tuple[Facts, float, float, Any]] = {
    "alone": (facts(), 0, 2, _whole),
    "later": (facts(batch__grad_accum=2), 2 * NUMEL, 0, lambda own: 0),
    "torch 1": (facts(versions={"torch": "1.13.1"}), 2 * NUMEL, 0, lambda own: 0),
    "at once": (facts(optimizer__in_backward=True), 0, 0, _largest),
    "lomo": (facts(optimizer__kind="lomo"), 0, 0, _largest),
    "stage 0": (zero(0), 0, 2, _whole),
    "stage 1": (zero(1), 0, 2, _whole),
    "stage 2": (zero(2), 0, 2 / 4, _largest),
    "stage 2, later": (zero(2, batch__grad_accum=2), 2 * NUMEL / 4, 2 / 4, _largest),
    # Measured with DeepSpeed 0.19.8 where gradients add up in fp32: 4 bytes an element of the partition.
    "stage 2 in fp32": (zero(2, precision__grad_accum="fp32"), 0, 4 / 4, _largest),
    "stage 2 in fp32, later": (
        zero(2, precision__grad_accum="fp32", batch__grad_accum=2), 4 * NUMEL / 4, 2 / 4, _largest,
    ),
    "stage 3 in fp32": (zero(3, precision__grad_accum="fp32"), 4 * NUMEL / 4, 0, _largest),
    "stage 1 in fp32": (zero(1, precision__grad_accum="fp32"), 0, 2, _whole),
    "stage 2 on the host": (zero(2, offload__optimizer="cpu"), 0, 0, _largest),
    "stage 3": (zero(3), 2 * NUMEL / 4, 0, _largest),
    "stage 3 on the host": (zero(3, offload__optimizer="nvme"), 0, 0, _largest),
    "megatron": (facts(parallel__backend="megatron", parallel__world=4), 0, 0, _largest),
    "views": (
        facts(parallel__backend="ddp", parallel__world=4, parallel__ddp__bucket_view=True),
        0, 0, _largest,
    ),
    "buckets": (facts(parallel__backend="ddp", parallel__world=4), 0, 2, _whole),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_backward_is_highest_at_some_instant_of_some_layer(name: str) -> None:
    """Gradients of what is through, those of the layer, what lies below it, and what the layer computes."""
    f, before, each, made = CASES[name]
    # Stage 3's partition is there from the start whatever it offloads.
    if name == "stage 3 on the host":
        before = 0
    points = replicated_points(f)
    (profile,) = stack_of(f).walk.kinds
    every = [
        (before + each * (END + above * BLOCK) + made(m.grads),
         BARE + SAVED - above * HIDDEN + m.token * TOKENS + m.score * TOKENS**2, m.fixed)
        for above in range(2)
        for m in profile.backward
    ]  # fmt: skip
    highest = points["backward"][1]
    assert highest[:2] + highest[4:5] in [pytest.approx(instant) for instant in every]
    assert highest.gradients + highest.activations + highest.temporary == pytest.approx(
        max(map(sum, every))
    )
    head = logits_of(f, f.samples.tokens)
    instants = head.late or [(head.norm, max(head.early, head.kept), 0)]
    late = max(made(own) + norm + bytes_ for norm, bytes_, own in instants)
    first = points["backward"][0]
    assert first.gradients + first.activations + first.logits == pytest.approx(
        before + BARE + SAVED + late
    )
    assert all(point.gradients == before for point in points["forward"])


@pytest.mark.parametrize(
    ("name", "last", "extra", "step", "idle"),
    [
        ("alone", 2 * NUMEL, 0, 2 * NUMEL, 0),
        # The embedding's is made anew and added.
        ("later", 2 * NUMEL, 2 * END, 2 * NUMEL, 0),
        ("at once", 2 * END, 0, 0, 0),
        ("stage 1", 2 * NUMEL, 0, 0, 0),
        ("stage 2", 2 * NUMEL / 4 + 2 * END, 0, 0, 0),
        ("stage 2, later", 2 * 2 * NUMEL / 4 + 2 * END, 0, 0, 0),
        ("stage 2 in fp32", 4 * NUMEL / 4 + 2 * END, 0, 0, 0),
        ("stage 3", 2 * NUMEL / 4 + 2 * END, 0, 2 * NUMEL / 4, 2 * NUMEL / 4),
        ("stage 3 in fp32", 4 * NUMEL / 4 + 2 * END, 0, 4 * NUMEL / 4, 4 * NUMEL / 4),
        ("megatron", 2 * END, 0, 0, 0),
    ],
)
def test_the_embedding_comes_last(
    name: str, last: float, extra: float, step: float, idle: float
) -> None:
    points = replicated_points(CASES[name][0])
    end = points["backward"][-1]
    assert (end.gradients, end.activations, end.temporary) == (last, BARE + HIDDEN, extra)
    assert points["optimizer_step"][0].gradients == step
    assert points["idle"][0].gradients == idle


def test_sums_of_stage_1_in_fp32_are_reduced_whole_when_backward_is_over() -> None:
    """BF16_Optimizer on two ranks, every live byte counted (deepspeed 0.18.9 on a CPU, 8 layers of 512 by 512): an element has
    10 bytes when backward is over, 12 while one group is reduced, 16 while two small ones are, and 10 in the step: weights
    2, sums 4, half of a master of 4, gradients 2 that wait until then, and what is reduced. Adam's 8 come with the step."""
    f = zero(1, precision__grad_accum="fp32")
    points = replicated_points(f)
    end = points["backward"][-1]
    assert (end.gradients, end.activations) == (2 * NUMEL, BARE)
    assert end.communication == (4 + 2) * NUMEL
    (step,) = points["optimizer_step"]
    assert (step.gradients, step.communication) == (2 * NUMEL, 4 * NUMEL)
    assert points["idle"][0].gradients == 0
    two = zero(1, precision__grad_accum="fp32", optimizer__groups=2)
    assert replicated_points(two)["backward"][-1].communication == (4 + 6) * NUMEL
    # Gradients were not let go of before 0.16.5.
    for release, stay in (("0.16.4", 2 * NUMEL), ("0.16.5", 0)):
        f = zero(1, precision__grad_accum="fp32", versions={"deepspeed": release})
        assert {point.gradients for point in replicated_points(f)["forward"]} == {stay}
    # Offloaded or in fp16, stage 1 itself adds up.
    for changes in ({"offload__optimizer": "cpu"}, {"precision__compute": "fp16"}):
        f = zero(1, precision__grad_accum="fp32", **changes)
        assert replicated_points(f)["optimizer_step"][0].gradients == 0


def test_bf16_optimizer_steps_a_view_of_its_sums() -> None:
    fused: dict[str, Any] = {"optimizer__fused": True, "precision__master": "fp32"}
    copied = zero(1, **fused)
    assert optimizer_temporaries(copied, NUMEL) == 4 * NUMEL / 4
    assert optimizer_temporaries(zero(1, **fused, precision__grad_accum="fp32"), NUMEL) == 0


def test_forward_has_what_layers_keep_and_the_widest_of_them() -> None:
    for mode in ("full", "none"):
        f = facts(checkpointing__mode=mode)
        stack = stack_of(f)
        (profile,) = stack.walk.kinds
        head = logits_of(f, f.samples.tokens)
        found = profile.inference if mode == "full" else profile.forward
        layer = max(s.token * TOKENS + s.score * TOKENS**2 + s.fixed for s in found)
        if mode == "none":
            layer -= stack.kept[0]
        assert replicated_points(f)["forward"] == [
            Point(0, BARE, 0, 0, 0),
            Point(0, BARE + stack.saved + layer, 0, 0, 0),
            Point(0, BARE + stack.saved + head.norm, head.loss, 0, 0),
        ]


def test_gradients_that_nobody_steps_are_made_twice() -> None:
    plain = replicated_points(facts(**LORA))
    strays = replicated_points(facts(**LORA, trainable__unstepped="embeddings"))
    for phase in plain:
        for one, other in zip(plain[phase], strays[phase], strict=True):
            assert other.gradients - one.gradients == 2 * END
    assert strays["backward"][-1].temporary - plain["backward"][-1].temporary == 2 * END


def test_the_last_stage_holds_fewer_micro_batches_than_the_first() -> None:
    """Of two stages with a layer each: two micro batches wait on the first, one on the last, where the head is."""
    f = facts(
        parallel__backend="megatron", parallel__world=2, parallel__pp=2, batch__grad_accum=4
    )  # fmt: skip
    _, layers, head = replicated_points(f)["forward"]
    found = logits_of(f, f.samples.tokens)
    assert layers.activations > BARE + 2 * HIDDEN
    assert head.activations == BARE + HIDDEN + found.norm
    spread = facts(parallel__backend="device_map_pp", parallel__world=2, batch__grad_accum=4)
    norm = logits_of(spread, spread.samples.tokens).norm
    assert replicated_points(spread)["forward"][2].activations == BARE + HIDDEN + norm
