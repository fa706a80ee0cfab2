"""What a save gathers, writes, and what waits in RAM on the way to NVMe: by hand, in bytes.

The model of two blocks that tests/memory/test_memory_optimizers.py counts: 202,048 elements, 36,992 in a block.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.plans import plan_of

from oomlint.memory import skeleton
from oomlint.memory.checkpoint import (
    largest_module,
    model_file_bytes,
    reordered_bytes,
    save_peaks,
    save_peaks_of,
)
from oomlint.memory.facts import Facts
from oomlint.memory.host import nvme_buffers_of
from oomlint.plan import Plan
from oomlint.plan.model import ModelDims, Moe

TINY = ModelDims(
    arch="llama", layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=1000,
    tie_embeddings=False, act="swiglu", norm="rms",
)  # fmt: skip
ENDS, BLOCK, MATRICES = 64_000, 36_992, 2 * 36_864
NUMEL = 2 * BLOCK + 2 * ENDS + 64
LEAVES: dict[str, Any] = {
    "model.dims": TINY, "trainable.method": "full", "precision.param": "bf16",
    "precision.grad": "bf16", "precision.optim_state": "fp32", "precision.compute": "bf16",
    "precision.master": "fp32", "optimizer.kind": "adamw",
}  # fmt: skip
# Rank 4 for q and v: 4 * (64 + 64 + 64 + 32) elements in each of two blocks.
LORA: dict[str, Any] = {
    "trainable__method": "lora", "trainable__r": 4, "trainable__targets": ("q_proj", "v_proj"),
    "trainable__adapter_dtype": "fp32",
}  # fmt: skip
ADAPTERS = 2 * 4 * (64 + 64 + 64 + 32)


def facts(**changes: Any) -> Facts:
    return Facts(plan_of(LEAVES, **changes))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 2 * NUMEL),
        ({"precision__param": "fp32"}, 4 * NUMEL),
        ({"precision__param": "fp32", "save__dtype": "bf16"}, 2 * NUMEL),
        ({"precision__param": "fp32", "save__dtype": "fp16"}, 2 * NUMEL),
        ({"save__dtype": "fp32"}, 4 * NUMEL),
        # ZeRO and Megatron save what they compute with.
        ({"parallel__backend": "zero", "precision__param": "fp32"}, 2 * NUMEL),
        ({"parallel__backend": "megatron", "precision__param": "fp32"}, 2 * NUMEL),
        (
            {"parallel__backend": "zero", "precision__param": "fp32", "precision__compute": "fp32"},
            4 * NUMEL,
        ),
        ({"parallel__backend": "fsdp2", "precision__param": "fp32"}, 4 * NUMEL),
        (LORA, 4 * ADAPTERS),
    ],
)
def test_a_saved_model_is_as_wide_as_what_saves_it(changes: dict[str, Any], expected: int) -> None:
    assert model_file_bytes(facts(**changes)) == expected


def test_a_checkpoint_has_masters_and_states_unless_only_the_model_is_saved() -> None:
    whole = save_peaks_of(facts())
    assert (whole.gpu, whole.host, whole.disk) == (0, 0, (2 + 4 + 8) * NUMEL)
    assert save_peaks_of(facts(save__save_only_model=True)).disk == 2 * NUMEL
    assert save_peaks_of(facts(save__contents=("model",))).disk == 2 * NUMEL
    named = facts(save__contents=("model", "optimizer"), save__save_only_model=True)
    assert save_peaks_of(named).disk == 14 * NUMEL
    none = save_peaks_of(facts(save__strategy="no"))
    assert (none.gpu, none.host, none.disk) == (0, 0, 0)


def test_zero3_gathers_module_by_module_into_the_host() -> None:
    zero: dict[str, Any] = {
        "parallel__backend": "zero",
        "parallel__world": 8,
        "parallel__zero__stage": 3,
    }
    found = save_peaks_of(facts(**zero))
    assert (found.gpu, found.host) == (2 * ENDS, 2 * NUMEL)
    adapter = save_peaks_of(facts(**zero, **LORA))
    assert (adapter.gpu, adapter.host) == (2 * ENDS, 4 * ADAPTERS)
    for changes in ({"parallel__zero__stage": 2}, {"parallel__zero__gather16_on_save": False}):
        kept = save_peaks_of(facts(**{**zero, **changes}))
        assert (kept.gpu, kept.host) == (0, 0)


def test_fsdp_gathers_a_full_state_dict_unit_by_unit() -> None:
    fsdp: dict[str, Any] = {"parallel__backend": "fsdp2", "parallel__world": 8}
    found = save_peaks_of(facts(**fsdp))
    assert (found.gpu, found.host) == (2 * BLOCK, (2 + 4 + 8) * NUMEL)
    model = save_peaks_of(facts(**fsdp, save__save_only_model=True))
    assert model.host == 2 * NUMEL
    wide = save_peaks_of(facts(**fsdp, precision__param="fp32", save__save_only_model=True))
    assert (wide.gpu, wide.host) == (4 * BLOCK, 4 * NUMEL)
    sharded: dict[str, Any] = {"parallel__fsdp__state_dict": "sharded"}
    apart = save_peaks_of(facts(**fsdp, **sharded))
    assert (apart.gpu, apart.host) == (0, 0)
    asked = save_peaks_of(facts(**fsdp, **sharded, save__full_gather=True))
    assert asked.gpu == 2 * BLOCK
    on_gpu = save_peaks_of(facts(**fsdp, save__gather_device="gpu"))
    assert on_gpu.gpu == 2 * NUMEL
    adapter = save_peaks_of(facts(**fsdp, **LORA, save__save_only_model=True))
    assert adapter.host == 4 * ADAPTERS


def test_a_save_that_adds_the_adapter_to_its_base_holds_both() -> None:
    merged: dict[str, Any] = {**LORA, "save__contents": ("model", "adapter")}
    sharded: dict[str, Any] = {"parallel__backend": "fsdp2", "parallel__world": 8}
    found = save_peaks_of(facts(**sharded, **merged))
    assert (found.host, found.disk) == (2 * NUMEL + 4 * ADAPTERS, 2 * NUMEL + 4 * ADAPTERS)
    alone = save_peaks_of(facts(**sharded, **LORA, save__contents=("adapter",)))
    assert (alone.host, alone.disk) == (4 * ADAPTERS, 4 * ADAPTERS)
    turned = save_peaks_of(facts(**sharded, **merged, save__rewritten=("q", "k")))
    assert turned.host - found.host == 2 * 2 * (64 * 64 + 64 * 32)


def test_one_device_may_copy_its_weights_to_the_host_to_save_them() -> None:
    copied: dict[str, Any] = {"parallel__backend": "none", "save__full_gather": True}
    assert save_peaks_of(facts(**copied)).host == 2 * NUMEL
    merged = facts(**copied, **LORA, save__contents=("model", "adapter"))
    assert save_peaks_of(merged).host == 2 * NUMEL + 4 * ADAPTERS
    assert save_peaks_of(facts(parallel__backend="none")).host == 0


def test_what_a_save_lays_out_anew_is_there_twice() -> None:
    """Queries are 64 x 64 and keys 64 x 32 in each of two blocks; of eight experts two of three matrices become one."""
    saved: dict[str, Any] = {
        "parallel__backend": "fsdp2",
        "parallel__world": 8,
        "save__save_only_model": True,
    }
    turned = save_peaks_of(facts(**saved, save__rewritten=("q", "k")))
    assert turned.host == 2 * (NUMEL + 2 * (64 * 64 + 64 * 32))
    moe = Moe(experts=8, topk=2, moe_ffn=128)
    mixture = replace(TINY, arch="mixtral", moe=moe)
    plain = save_peaks_of(facts(**saved, model__dims=mixture)).host
    joined = save_peaks_of(facts(**saved, model__dims=mixture, save__rewritten=("experts",)))
    assert joined.host - plain == 2 * 2 * 8 * 2 * 64 * 128
    apart = facts(**saved, save__rewritten=("q", "k"), parallel__fsdp__state_dict="sharded")
    assert save_peaks_of(apart).host == 0


def test_stacked_experts_are_one_module() -> None:
    moe = ModelDims(
        arch="mixtral", layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=1000,
        tie_embeddings=False, act="swiglu", norm="rms", moe=Moe(experts=8, topk=2, moe_ffn=128),
    )  # fmt: skip
    assert largest_module(facts(model__dims=moe)) == 8 * 3 * 64 * 128
    assert largest_module(facts()) == ENDS


@pytest.mark.parametrize(
    ("release", "quant", "copies"),
    [
        ("0.37.2", "bnb8", 0),
        ("0.38.1", "bnb8", 2),
        ("0.39.0", "bnb8", 0),
        ("0.38.1", "bnb4", 0),
        (None, "bnb8", 0),
    ],
)
def test_one_release_of_bitsandbytes_left_copies_in_plain_order(
    release: str | None, quant: str, copies: int
) -> None:
    versions = {"bitsandbytes": release} if release else {}
    found = facts(**LORA, quant__method=quant, versions=versions)
    assert reordered_bytes(found) == copies * MATRICES


def test_without_dimensions_nothing_is_said_of_a_save() -> None:
    assert save_peaks(Plan()) is None
    assert skeleton(ModelDims()) is None


# -- NVMe ----------------------------------------------------------------------------------------------

ZERO3: dict[str, Any] = {
    "parallel__backend": "zero", "parallel__world": 4, "parallel__zero__stage": 3,
}  # fmt: skip


def test_optimizer_states_pass_through_four_buffers_and_the_gradients() -> None:
    part = NUMEL / 4
    away = facts(**ZERO3, offload__optimizer="nvme")
    assert nvme_buffers_of(away, NUMEL) == pytest.approx(4 * 4 * part + 2 * part)
    six = facts(**ZERO3, offload__optimizer="nvme", offload__optimizer_buffers=6)
    assert nvme_buffers_of(six, NUMEL) == pytest.approx(6 * 4 * part + 2 * part)
    small = facts(
        **ZERO3, offload__optimizer="nvme", parallel__zero__sub_group_elems=1_000
    )  # fmt: skip
    assert nvme_buffers_of(small, NUMEL) == pytest.approx(4 * 4 * 1_000 + 2 * part)
    assert nvme_buffers_of(facts(**ZERO3), NUMEL) == 0


def test_parameters_pass_through_five_buffers_beside_those_that_stay() -> None:
    away: dict[str, Any] = {**ZERO3, "offload__params": "nvme"}
    part = NUMEL / 4
    assert nvme_buffers_of(facts(**away), NUMEL) == 2 * 5 * 1e8 + 2 * part
    told = facts(**away, offload__param_buffers=3, offload__param_buffer_elems=1_000)
    assert nvme_buffers_of(told, NUMEL) == 2 * 3 * 1_000 + 2 * part
    few = facts(**away, offload__params_in_cpu_elems=10)
    assert nvme_buffers_of(few, NUMEL) == 2 * 5 * 1e8 + 2 * 10
