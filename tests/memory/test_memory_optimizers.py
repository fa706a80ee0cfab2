"""Optimizer states, what a step needs beside them, and packed weights: by hand, of a model of two blocks.

A block has 36,864 elements in matrices (q and o 64 x 64, k and v 64 x 32, three of 64 x 128) and two norms of 64; the
embedding and the head have 1,000 x 64 each, the last norm 64.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.plans import plan_of

from oomlint.memory.facts import Facts
from oomlint.memory.states import (
    buffer_bytes,
    frozen_weight_bytes,
    optimizer_bytes,
    quantised_bytes,
    state_bytes_of,
)
from oomlint.memory.step import optimizer_temporaries
from oomlint.plan.model import ModelDims, Moe, Quant

TINY = ModelDims(
    arch="llama", layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=1000,
    tie_embeddings=False, act="swiglu", norm="rms",
)  # fmt: skip
ENDS = 64_000
MATRICES = 2 * 36_864
BLOCK = 36_864 + 128
NUMEL = 2 * BLOCK + 2 * ENDS + 64
LEAVES: dict[str, Any] = {
    "model.dims": TINY, "trainable.method": "full", "precision.param": "bf16",
    "precision.grad": "bf16", "precision.optim_state": "fp32", "precision.compute": "bf16",
    "optimizer.kind": "adamw",
}  # fmt: skip


def facts(**changes: Any) -> Facts:
    return Facts(plan_of(LEAVES, **changes))


@pytest.mark.parametrize(
    ("kind", "width"),
    [
        ("adamw", 8), ("lamb", 8), ("anyprecision_adamw", 8), ("schedule_free", 8), ("ademamix", 12),
        ("lion", 4), ("momentum_sgd", 4), ("rmsprop", 4), ("adagrad", 4), ("adam_mini", 4),
        ("dion", 4), ("shampoo", 16), ("sgd", 0), ("lomo", 0), ("paged_adamw", 0), ("paged_lion8bit", 0),
        ("adamw8bit", 2 + 8 / 256), ("lion8bit", 1 + 4 / 256), ("adamw4bit", 1 + 8 / 128),
    ],
)  # fmt: skip
def test_states_are_so_many_bytes_an_element(kind: str, width: float) -> None:
    assert optimizer_bytes(facts(optimizer__kind=kind), NUMEL) == pytest.approx(width * NUMEL)


def test_states_in_16_bit_are_half_as_wide_unless_they_are_packed() -> None:
    half = {"precision__optim_state": "bf16"}
    assert optimizer_bytes(facts(**half), NUMEL) == 4 * NUMEL
    packed = optimizer_bytes(facts(optimizer__kind="adamw8bit", **half), NUMEL)
    assert packed == pytest.approx((2 + 8 / 256) * NUMEL)
    counted = facts(optimizer__state_elems_per_param=1.5, **half)
    assert optimizer_bytes(counted, NUMEL) == 3 * NUMEL


def test_paged_states_are_the_hosts() -> None:
    assert optimizer_bytes(facts(optimizer__paged=True), NUMEL) == 0


def test_embeddings_in_32_bit_leave_the_rest_in_8() -> None:
    wide: dict[str, Any] = {"optimizer__embed_fp32_states": True}
    rest = NUMEL - ENDS
    adam = optimizer_bytes(facts(optimizer__kind="adamw8bit", **wide), NUMEL)
    assert adam == pytest.approx((2 + 8 / 256) * rest + 8 * ENDS)
    lion = optimizer_bytes(facts(optimizer__kind="lion8bit", **wide), NUMEL)
    assert lion == pytest.approx((1 + 4 / 256) * rest + 4 * ENDS)
    # None of them is trained beside adapters.
    lora: dict[str, Any] = {"trainable__method": "lora", "trainable__r": 8}
    beside = optimizer_bytes(facts(optimizer__kind="adamw8bit", **wide, **lora), 1_000)
    assert beside == pytest.approx((2 + 8 / 256) * 1_000)


def test_muon_has_one_momentum_for_matrices_and_adam_for_the_rest() -> None:
    muon = optimizer_bytes(facts(optimizer__kind="muon"), NUMEL)
    assert muon == 4 * MATRICES + 8 * (NUMEL - MATRICES)
    # Adapters are matrices all.
    lora = facts(optimizer__kind="muon", trainable__method="lora", trainable__r=8)
    assert optimizer_bytes(lora, 1_000_000) == 4 * 1_000_000


def test_badam_keeps_one_block_in_fp32_with_its_states() -> None:
    assert optimizer_bytes(facts(optimizer__kind="badam"), BLOCK) == 12 * BLOCK


def test_factored_states_are_rows_and_columns() -> None:
    rows = 2 * (1_000 + 64)  # of embedding and head
    # q, k, v, o and three of the feed-forward layer; norms keep all.
    block = 128 + 96 + 96 + 128 + 3 * 192 + 128
    factored = 4 * (rows + 2 * block)
    assert optimizer_bytes(facts(optimizer__kind="adafactor"), NUMEL) == pytest.approx(factored)
    came = optimizer_bytes(facts(optimizer__kind="came"), NUMEL)
    assert came == pytest.approx(4 * NUMEL + 2 * factored)
    half = optimizer_bytes(facts(optimizer__kind="adafactor"), NUMEL / 2)
    assert half == pytest.approx(factored / 2)
    experts = facts(
        optimizer__kind="adafactor",
        model__dims=ModelDims(
            arch="mixtral", layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128,
            vocab=1000, tie_embeddings=True, act="swiglu", norm="rms", moe=Moe(experts=4, topk=2, moe_ffn=32),
        ),
    )  # fmt: skip
    model = experts.model
    assert model is not None
    # Three matrices an expert, of 64 and 32 each, instead of the feed-forward layer; a tied head has none.
    block = 128 + 96 + 96 + 128 + 128 + 4 * (3 * 64 + 3 * 32)
    router = 64 + 4
    found = optimizer_bytes(experts, model.numel)
    assert found == pytest.approx(4 * (1_064 + 2 * block), abs=4 * 2 * router)


@pytest.mark.parametrize(
    ("more", "is_flat"),
    [
        ({"parallel__backend": "fsdp1", "parallel__world": 4}, True),
        ({"parallel__backend": "fsdp1", "parallel__world": 4, "parallel__fsdp__strategy": "no_shard"}, False),
        ({"parallel__backend": "fsdp2", "parallel__world": 4}, False),
        ({"parallel__backend": "zero", "parallel__world": 4, "parallel__zero__stage": 2}, True),
        ({"parallel__backend": "zero", "parallel__world": 4, "parallel__zero__stage": 0}, False),
    ],
)  # fmt: skip
def test_a_flat_parameter_has_no_rows_and_columns(more, is_flat):
    whole = optimizer_bytes(facts(optimizer__kind="adafactor", **more), NUMEL)
    assert (whole == 4 * NUMEL) == is_flat
    came = optimizer_bytes(facts(optimizer__kind="came", **more), NUMEL)
    assert (came == 8 * NUMEL) == is_flat


# -- the step ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"optimizer__fused": True}, 0),
        # One copy of all at once, in their own width; two of the largest where it loops.
        ({"optimizer__foreach": True}, 2 * NUMEL),
        ({}, 2 * NUMEL),
        ({"optimizer__foreach": False}, 2 * 2 * ENDS),
        ({"optimizer__foreach": False, "precision__param": "fp32", "precision__compute": "fp32"}, 2 * 4 * ENDS),
        ({"optimizer__kind": "rmsprop"}, 2 * NUMEL),
        ({"optimizer__kind": "adagrad"}, 2 * 2 * NUMEL),
        ({"optimizer__kind": "adagrad", "optimizer__fused": True}, 0),
        ({"optimizer__kind": "adagrad", "optimizer__foreach": False}, 2 * 2 * ENDS),
        ({"optimizer__in_backward": True}, 2 * ENDS),
        ({"optimizer__kind": "sgd"}, 0),
        ({"optimizer__kind": "adafactor"}, 16 * ENDS),
        ({"optimizer__kind": "adafactor", "precision__param": "fp32", "precision__compute": "fp32"}, 8 * ENDS),
        ({"optimizer__kind": "adafactor", "optimizer__name": "torch_adafactor"}, 2 * NUMEL),
        ({"optimizer__kind": "adafactor", "optimizer__name": "Torch_adafactor", "optimizer__foreach": False}, 2 * ENDS),
        ({"optimizer__kind": "muon"}, (5.15 + 2) * ENDS),
        ({"optimizer__kind": "badam"}, 2 * NUMEL),
        ({"optimizer__kind": "badam", "precision__param": "fp32", "precision__compute": "fp32"}, 0),
        ({"optimizer__kind": "galore"}, 9.4 * ENDS),
        ({"optimizer__kind": "galore", "precision__param": "fp32", "precision__compute": "fp32"}, 8.4 * ENDS),
        ({"optimizer__kind": "shampoo"}, 8 * ENDS),
        ({"offload__optimizer": "cpu"}, 0),
        ({"offload__optimizer": "nvme"}, 0),
        ({"parallel__backend": "fsdp2", "parallel__world": 2, "parallel__fsdp__cpu_offload": True}, 0),
        # fp32 masters are stepped instead; ZeRO beside a copy of its gradients that is as wide.
        ({"precision__master": "fp32"}, 4 * NUMEL),
        ({"parallel__backend": "fsdp2", "parallel__world": 4}, 2 * NUMEL / 4),
        ({"parallel__backend": "fsdp2", "parallel__world": 4, "precision__param": "fp32"}, 4 * NUMEL / 4),
    ],
)  # fmt: skip
def test_a_step_needs_so_much_beside_states_and_gradients(
    changes: dict[str, Any], expected: float
) -> None:
    assert optimizer_temporaries(facts(**changes), NUMEL) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kind", "release", "copies"),
    [("adamw", "2.0.1", 2), ("adamw", "2.1.0", 1), ("rmsprop", "2.0.1", 1), ("lamb", "2.0.1", 1)],
)
def test_only_adam_made_its_root_twice(kind: str, release: str, copies: int) -> None:
    found = facts(optimizer__kind=kind, versions={"torch": release})
    assert optimizer_temporaries(found, NUMEL) == copies * 2 * NUMEL


def test_before_torch_2_nobody_steps_all_at_once_unasked() -> None:
    found = facts(versions={"torch": "1.13.1"})
    assert optimizer_temporaries(found, NUMEL) == 2 * 2 * ENDS


def test_zero_steps_a_partition_beside_its_gradients_in_fp32() -> None:
    zero: dict[str, Any] = {
        "parallel__backend": "zero",
        "parallel__world": 4,
        "precision__master": "fp32",
    }
    part = NUMEL / 4
    for stage in (1, 2):
        found = facts(**zero, parallel__zero__stage=stage, optimizer__fused=True)
        assert optimizer_temporaries(found, NUMEL) == pytest.approx(4 * part)
        loops = facts(**zero, parallel__zero__stage=stage, optimizer__foreach=False)
        assert optimizer_temporaries(loops, NUMEL) == pytest.approx((4 + 2 * 4) * part)
    groups = facts(
        **zero,
        parallel__zero__stage=3,
        parallel__zero__sub_group_elems=10_000,
        optimizer__fused=True,
    )
    assert optimizer_temporaries(groups, NUMEL) == 4 * 10_000
    one = facts(**zero, parallel__zero__stage=3, optimizer__fused=True)
    assert optimizer_temporaries(one, NUMEL) == pytest.approx(4 * part)


def test_adapters_are_stepped_in_their_own_width() -> None:
    lora: dict[str, Any] = {"trainable__method": "lora", "trainable__r": 8}
    wide = facts(**lora, trainable__adapter_dtype="fp32")
    assert optimizer_temporaries(wide, 5_000) == 4 * 5_000
    half = facts(**lora, trainable__adapter_dtype="bf16")
    assert optimizer_temporaries(half, 5_000) == 2 * 5_000
    loops = facts(**lora, trainable__adapter_dtype="bf16", optimizer__foreach=False)
    # A pair of factors has no more than four times the rank and the width.
    assert optimizer_temporaries(loops, 5_000) == 2 * 2 * 64 * 8 * 4
    assert optimizer_temporaries(loops, 100) == 2 * 2 * 100


# -- packed weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quant", "width"),
    [
        (Quant(), None),
        (Quant(method="none"), None),
        (Quant(method="bnb4"), 0.5 + 4 / 64),
        (Quant(method="bnb4", double=True), 0.5 + 1 / 64 + 4 / 16_384),
        (Quant(method="nf4_torchao"), 0.5 + 1 / 64 + 4 / 16_384),
        (Quant(method="bnb8"), 1),
        (Quant(method="gptq"), 0.5 + 2.5 / 128),
        (Quant(method="gptq", bits=8), 1 + 2.5 / 128),
        (Quant(method="gptq", bits=3), 0.375 + 2.5 / 128),
        (Quant(method="awq", bits=4), 0.5 + 2.5 / 128),
        (Quant(method="hqq", bits=2), 0.25 + 4 / 64),
        (Quant(method="aqlm"), 0.25),
        (Quant(method="aqlm", bits=1), 0.125),
        (Quant(method="eetq"), 1),
        (Quant(method="bnb8", bits=4), 1),
        (Quant(method="mxfp4"), 0.5 + 1 / 32),
        (Quant(method="nvfp4"), 0.5 + 1 / 16),
        (Quant(method="fp8_weight"), 1),
        (Quant(method="mxfp4", dequantised_on_load=True), None),
    ],
)
def test_packed_weights_are_so_many_bytes_an_element(quant: Quant, width: float | None) -> None:
    assert quantised_bytes(quant) == (None if width is None else pytest.approx(width))


def test_what_is_not_packed_keeps_16_bit_or_is_prepared_in_fp32() -> None:
    lora: dict[str, Any] = {
        "trainable__method": "lora", "trainable__r": 8, "quant__method": "bnb8",
        "precision__param": "int8",
    }  # fmt: skip
    rest = NUMEL - MATRICES
    assert frozen_weight_bytes(facts(**lora)) == MATRICES + 2 * rest
    assert frozen_weight_bytes(facts(**lora, quant__prepares_kbit=True)) == MATRICES + 4 * rest
    head = facts(**lora, quant__skip_modules=())
    assert frozen_weight_bytes(head) == MATRICES + ENDS + 2 * (rest - ENDS)


def test_parts_in_fp32_are_counted_by_name() -> None:
    assert frozen_weight_bytes(facts()) == 2 * NUMEL
    norms = 2 * 2 * 64 + 64
    assert frozen_weight_bytes(facts(precision__norms_fp32=True)) == 2 * NUMEL + 2 * norms
    assert frozen_weight_bytes(facts(precision__embeddings_fp32=True)) == 2 * NUMEL + 2 * ENDS
    assert frozen_weight_bytes(facts(precision__lm_head_fp32=True)) == 2 * NUMEL + 2 * ENDS
    wide = facts(precision__param="fp32", precision__lm_head_fp32=True)
    assert frozen_weight_bytes(wide) == 4 * NUMEL


def test_packed_weights_in_buffers_are_all_of_the_matrices() -> None:
    lora: dict[str, Any] = {"trainable__method": "lora", "trainable__r": 8}
    assert buffer_bytes(facts(**lora, quant__method="gptq")) == pytest.approx(
        (0.5 + 2.5 / 128) * MATRICES
    )
    assert buffer_bytes(facts(**lora, quant__method="bnb4")) == 0
    assert buffer_bytes(facts()) == 0


# -- ranks ---------------------------------------------------------------------------------------------


def test_the_largest_stage_of_a_pipeline_has_its_blocks_and_one_end() -> None:
    staged = facts(parallel__backend="megatron", parallel__world=2, parallel__pp=2)
    # The head's stage has the last norm besides.
    assert frozen_weight_bytes(staged) == 2 * (BLOCK + ENDS + 64)
    split = facts(parallel__backend="megatron", parallel__world=2, parallel__tp=2)
    assert frozen_weight_bytes(split) == 2 * (MATRICES / 2 + 2 * 128 + (2 * ENDS + 64) / 2)


def test_hpz_keeps_a_second_share_in_the_node() -> None:
    zero: dict[str, Any] = {
        "parallel__backend": "zero", "parallel__world": 16, "parallel__zero__stage": 3,
        "precision__master": "fp32",
    }  # fmt: skip
    plain = state_bytes_of(facts(**zero)).parameters
    assert plain == 2 * NUMEL / 16
    assert state_bytes_of(facts(**zero, parallel__zero__hpz=8)).parameters == plain + 2 * NUMEL / 8
    assert state_bytes_of(facts(**zero, parallel__zero__hpz=1)).parameters == plain
    below = facts(**{**zero, "parallel__zero__stage": 2}, parallel__zero__hpz=8)
    assert state_bytes_of(below).parameters == 2 * NUMEL


def test_what_is_offloaded_is_not_on_the_gpu() -> None:
    zero: dict[str, Any] = {
        "parallel__backend": "zero",
        "parallel__world": 4,
        "precision__master": "fp32",
    }
    away = state_bytes_of(facts(**zero, parallel__zero__stage=2, offload__optimizer="cpu"))
    assert (away.master, away.optimizer, away.gradients) == (0, 0, 0)
    assert away.parameters == 2 * NUMEL
    first = state_bytes_of(facts(**zero, parallel__zero__stage=1, offload__optimizer="cpu"))
    assert (first.master, first.gradients) == (0, 2 * NUMEL)
    part = {"offload__optimizer": "cpu", "offload__optimizer_ratio": 0.75}
    some = state_bytes_of(facts(**zero, parallel__zero__stage=3, **part))
    assert some.optimizer == pytest.approx(8 * NUMEL / 4 * 0.25)
    assert some.master == pytest.approx(4 * NUMEL / 4 * 0.25)
    params = state_bytes_of(facts(**zero, parallel__zero__stage=3, offload__params="cpu"))
    assert (params.parameters, params.optimizer) == (0, 8 * NUMEL / 4)
    fsdp = facts(parallel__backend="fsdp1", parallel__world=4, parallel__fsdp__cpu_offload=True)
    assert state_bytes_of(fsdp).total == 0


def test_steps_in_backward_leave_no_gradients() -> None:
    assert state_bytes_of(facts()).gradients == 2 * NUMEL
    assert state_bytes_of(facts(optimizer__in_backward=True)).gradients == 0
    assert state_bytes_of(facts(optimizer__kind="lomo")).gradients == 0


def test_fsdp_shards_all_of_it_or_nothing() -> None:
    ranks: dict[str, Any] = {"parallel__backend": "fsdp1", "parallel__world": 8}
    whole = state_bytes_of(facts(**ranks, parallel__fsdp__strategy="no_shard"))
    assert (whole.parameters, whole.optimizer) == (2 * NUMEL, 8 * NUMEL)
    shared = state_bytes_of(facts(**ranks))
    assert (shared.parameters, shared.gradients) == (2 * NUMEL / 8, 2 * NUMEL / 8)
    node = facts(
        **ranks, parallel__nodes=2, parallel__gpus_per_node=4, parallel__fsdp__strategy="hybrid"
    )
    assert state_bytes_of(node).optimizer == 8 * NUMEL / 4


def test_megatron_shares_what_it_steps_among_ranks_of_data_and_context() -> None:
    ranks: dict[str, Any] = {
        "parallel__backend": "megatron", "parallel__world": 8, "parallel__cp": 2, "precision__master": "fp32",
    }  # fmt: skip
    shared = state_bytes_of(facts(**ranks))
    assert (shared.master, shared.optimizer) == (4 * NUMEL / 8, 8 * NUMEL / 8)
    whole = state_bytes_of(facts(**ranks, parallel__megatron__dist_optimizer=False))
    assert (whole.master, whole.optimizer) == (4 * NUMEL, 8 * NUMEL)
