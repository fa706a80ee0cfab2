"""What a plan's numbers come to: ranks, samples, dtypes and kernels, each worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.plans import LLAMA_8B, plan_of

from oomlint.memory.facts import Facts
from oomlint.memory.regimes import checkpointed_share
from oomlint.memory.step import last_depth, offloads_activations, pipeline_depth, stack_of
from oomlint.plan.fields import f as fields
from oomlint.plan.model import Mla

LEAVES: dict[str, Any] = {
    "model.dims": LLAMA_8B, "trainable.method": "full", "precision.param": "bf16",
    "precision.compute": "bf16", "batch.micro": 2, "seq.max_len": 512,
}  # fmt: skip


def facts(**changes: Any) -> Facts:
    return Facts(
        plan_of(
            LEAVES, **{f"parallel__{k}" if k in _PARALLEL else k: v for k, v in changes.items()}
        )
    )


_PARALLEL = frozenset(
    {
        "backend",
        "world",
        "nodes",
        "gpus_per_node",
        "dp",
        "dp_shard",
        "tp",
        "pp",
        "cp",
        "ulysses",
        "ep",
        "sp",
        "vpp",
        "pp_schedule",
    }
)


@pytest.mark.parametrize(
    ("changes", "world", "dp", "shard"),
    [
        ({}, 1, 1, 1),
        ({"backend": "ddp", "world": 8}, 8, 8, 1),
        ({"backend": "ddp", "nodes": 2, "gpus_per_node": 4}, 8, 8, 1),
        # Nobody says how many: a node has eight.
        ({"backend": "zero"}, 8, 8, 8),
        ({"backend": "zero", "world": 16, "tp": 2, "pp": 2}, 16, 4, 4),
        ({"backend": "zero", "world": 16, "cp": 2}, 16, 8, 16),
        ({"backend": "zero", "world": 16, "parallel__zero__mics": 4}, 16, 16, 4),
        ({"backend": "zero", "world": 16, "parallel__zero__mics": -1}, 16, 16, 16),
        ({"backend": "zero", "world": 16, "dp": 4, "ulysses": 4}, 16, 4, 16),
        ({"backend": "zero", "world": 16, "ulysses": 4}, 16, 16, 16),
        ({"backend": "zero", "world": 16, "dp": 4, "cp": 4}, 16, 4, 16),
        # One rank is left over.
        ({"backend": "zero", "world": 7, "dp": 3, "cp": 2}, 7, 3, 6),
        ({"backend": "zero", "world": 16, "dp": 2, "cp": 4, "tp": 2}, 16, 2, 8),
        ({"backend": "mics", "nodes": 2, "gpus_per_node": 8}, 16, 16, 8),
        ({"backend": "mics", "world": 16, "parallel__zero__mics": 4}, 16, 16, 4),
        ({"backend": "fsdp2", "world": 16}, 16, 16, 16),
        ({"backend": "fsdp2", "world": 16, "tp": 4}, 16, 4, 4),
        ({"backend": "fsdp2", "world": 16, "dp_shard": 8}, 16, 16, 8),
        ({"backend": "fsdp2", "world": 16, "cp": 2}, 16, 8, 16),
        ({"backend": "fsdp2", "world": 16, "dp": 4, "ulysses": 4}, 16, 4, 16),
        ({"backend": "fsdp1", "world": 16, "parallel__fsdp__strategy": "no_shard"}, 16, 16, 1),
        (
            {
                "backend": "fsdp1",
                "nodes": 2,
                "gpus_per_node": 8,
                "parallel__fsdp__strategy": "hybrid",
            },
            16, 16, 8,
        ),
        (
            {"backend": "fsdp1", "world": 4, "gpus_per_node": 8, "parallel__fsdp__strategy": "hybrid"},
            4, 4, 4,
        ),
        ({"backend": "megatron", "world": 16, "tp": 2, "pp": 2, "cp": 2}, 16, 2, 2),
        ({"backend": "megatron", "world": 16, "tp": 32}, 16, 1, 1),
        ({"backend": "device_map_pp", "world": 4}, 4, 1, 1),
        ({"backend": "device_map_pp", "world": 4, "pp": 2}, 4, 2, 1),
        ({"backend": "none", "gpus_per_node": 4}, 4, 4, 1),
    ],
)  # fmt: skip
def test_ranks_are_shared_out(changes: dict[str, Any], world: int, dp: int, shard: int) -> None:
    f = facts(**changes)
    assert (f.ranks.world, f.ranks.dp, f.ranks.shard) == (world, dp, shard)


def test_a_number_of_gpus_that_nobody_gives_is_assumed_where_there_are_many() -> None:
    assumed = [a.field for a in facts(backend="zero").assumptions]
    assert fields.parallel.world in assumed
    assert fields.parallel.world not in [a.field for a in facts().assumptions]


def test_a_device_map_makes_each_gpu_a_stage() -> None:
    assert facts(backend="device_map_pp", world=4).ranks.pp == 4
    assert facts(backend="device_map_pp", world=4, pp=2).ranks.pp == 2
    assert facts(nodes=2, gpus_per_node=4).ranks.per_node == 4
    assert facts(world=9, nodes=2).ranks.per_node == 5


@pytest.mark.parametrize(
    ("changes", "whole", "early"),
    [
        ({"backend": "fsdp1", "load__cpu_ram_efficient": False}, True, False),
        ({"backend": "fsdp1", "load__cpu_ram_efficient": True}, False, False),
        ({"backend": "fsdp1"}, False, False),
        ({"backend": "zero", "parallel__zero__stage": 3}, True, False),
        ({"backend": "zero", "parallel__zero__stage": 2}, False, False),
        ({"backend": "zero", "parallel__zero__stage": 3, "load__zero3_init": False}, True, True),
        ({"backend": "zero", "parallel__zero__stage": 2, "load__zero3_init": False}, False, False),
        ({"backend": "ddp", "load__zero3_init": False}, False, False),
        (
            {"backend": "fsdp2", "load__cpu_ram_efficient": False, "load__device_map": "single"},
            True, True,
        ),
        ({"backend": "fsdp2", "load__device_map": "single"}, False, False),
        (
            {
                "backend": "fsdp2",
                "load__cpu_ram_efficient": False,
                "load__device_map": "single",
                "model__from_scratch": True,
            },
            True, False,
        ),
        (
            {"backend": "fsdp1", "load__cpu_ram_efficient": False, "load__device_map": "single"},
            True, False,
        ),
    ],
)  # fmt: skip
def test_a_model_that_is_not_built_in_shards_is_whole_on_each_gpu_first(
    changes: dict[str, Any], whole: bool, early: bool
) -> None:
    f = facts(world=8, quant__method="bnb4", **changes)
    assert (f.ranks.packs_whole, f.ranks.loads_early) == (whole, early)
    assert not facts(world=8, **changes).ranks.packs_whole


def test_fabric_loads_one_whole_state_dict() -> None:
    assert facts(backend="fabric_fsdp", world=8).ranks.loads_whole
    assert facts(backend="fabric_fsdp", world=8).ranks.backend == "fsdp1"
    assert not facts(backend="fabric_fsdp", world=8, model__from_scratch=True).ranks.loads_whole
    assert not facts(backend="fsdp1", world=8).ranks.loads_whole


@pytest.mark.parametrize(
    ("changes", "rows", "tokens", "eval_rows"),
    [
        ({}, 2, 1024, 2),
        ({"objective__kind": "dpo"}, 4, 2048, 4),
        ({"objective__kind": "kto"}, 2, 1024, 2),
        ({"objective__kind": "dpo", "objective__pairs_per_sample": 1}, 2, 1024, 2),
        ({"batch__eval_micro": 5}, 2, 1024, 5),
        ({"batch__eval_micro": 5, "objective__kind": "rm"}, 4, 2048, 10),
        ({"cp": 2, "backend": "fsdp2", "world": 8}, 2, 512, 2),
        ({"cp": 2, "ulysses": 2, "backend": "fsdp2", "world": 8}, 2, 256, 2),
        ({"batch__micro": 3000, "batch__micro_unit": "tokens"}, 1, 3000, 3000),
        ({"batch__max_tokens_per_gpu": 4096}, 1, 4096, 2),
        ({"batch__micro": None}, 1, 512, 1),
        ({"seq__longest": 100}, 2, 200, 2),
        ({"seq__longest": 1000}, 2, 1024, 2),
    ],
)
def test_a_batch_has_so_many_tokens(
    changes: dict[str, Any], rows: int, tokens: int, eval_rows: int
) -> None:
    f = facts(**changes)
    assert (f.samples.rows, f.samples.tokens, f.samples.eval_rows) == (rows, tokens, eval_rows)


def test_a_length_that_nobody_gives_is_the_models_and_at_most_two_thousand() -> None:
    open_: dict[str, Any] = {"seq__max_len": None, "batch__micro": 1}
    assert facts(**open_).samples.tokens == 2048
    assert facts(**open_, model__dims=replace(LLAMA_8B, ctx=1024)).samples.tokens == 1024
    assert facts(**open_, model__dims=replace(LLAMA_8B, ctx=131_072)).samples.tokens == 2048
    assert facts(batch__grad_accum=0).samples.accumulation == 1
    assert facts(batch__grad_accum=7).samples.accumulation == 7


@pytest.mark.parametrize(
    ("changes", "weight", "compute", "grad", "state", "stream"),
    [
        ({}, 2, 2, 2, 2, 2),
        ({"precision__param": "fp32"}, 4, 2, 4, 4, 4),
        ({"precision__param": "fp32", "precision__compute": None}, 4, 4, 4, 4, 4),
        ({"precision__param": None, "load__dtype": "fp32"}, 4, 2, 4, 4, 4),
        ({"precision__param": None, "load__dtype": "auto"}, 2, 2, 2, 2, 2),
        ({"precision__param": None, "load__dtype": "auto", "model__ckpt_dtype": "float32"}, 4, 2, 4, 4, 4),
        ({"precision__param": None, "load__dtype": "auto", "model__ckpt_dtype": "fp32"}, 4, 2, 4, 4, 4),
        ({"precision__param": None}, 4, 2, 4, 4, 4),
        ({"precision__param": "nf4", "precision__grad": "fp32"}, 0.5, 2, 4, 4, 2),
        ({"precision__param": "int8", "precision__compute": None}, 1, 2, 2, 2, 2),
        ({"precision__compute": "fp8"}, 2, 2, 2, 2, 2),
        ({"precision__optim_state": "fp32"}, 2, 2, 2, 4, 2),
        ({"precision__grad": "fp32"}, 2, 2, 4, 4, 2),
        # What shards gathers in the dtype of its policy.
        ({"precision__param": "fp32", "backend": "fsdp2", "world": 2}, 4, 2, 4, 4, 2),
        ({"precision__param": "fp32", "backend": "ddp", "world": 2}, 4, 2, 4, 4, 4),
        (
            {"precision__param": "fp32", "precision__gathered": "fp32", "backend": "fsdp1", "world": 2},
            4, 2, 4, 4, 4,
        ),
    ],
)  # fmt: skip
def test_dtypes_follow_from_each_other(
    changes: dict[str, Any], weight: float, compute: float, grad: float, state: float, stream: float
) -> None:
    f = facts(**changes)
    assert (f.bytes_per.weight, f.bytes_per.compute, f.bytes_per.grad, f.bytes_per.optim_state, f.bytes_per.stream) == (
        weight, compute, grad, state, stream,
    )  # fmt: skip


MLA = Mla(q_rank=0, kv_rank=512, qk_nope=128, qk_rope=64, v_dim=128)


@pytest.mark.parametrize(
    ("changes", "kernel", "dense"),
    [
        ({}, "flash", False),
        ({"model__attn_impl": "eager"}, "eager", False),
        ({"model__attn_impl": "flex"}, "flash", False),
        ({"model__attn_impl": "flash2", "seq__pad": "longest"}, "flash", False),
        ({"seq__pad": "longest"}, "efficient", True),
        ({"seq__pad": "longest", "batch__micro": 1}, "flash", False),
        ({"seq__pad": "longest", "seq__packing": "bfd"}, "flash", False),
        ({"seq__pad": "none"}, "flash", False),
        # Keys have fewer heads than queries: no kernel but flash takes them as they are.
        ({"precision__param": "fp32", "precision__compute": "fp32"}, "math", False),
        (
            {
                "precision__param": "fp32",
                "precision__compute": "fp32",
                "model__dims": replace(LLAMA_8B, kv_heads=32),
            },
            "efficient", False,
        ),
        ({"model__dims": replace(LLAMA_8B, head_dim=256)}, "flash", False),
        ({"model__dims": replace(LLAMA_8B, head_dim=257)}, "efficient", False),
        ({"model__dims": replace(LLAMA_8B, arch="deepseek_v3", mla=MLA)}, "efficient", False),
        ({"model__dims": replace(LLAMA_8B, arch="falcon", kv_heads=1)}, "math", False),
        (
            {"model__dims": replace(LLAMA_8B, arch="falcon", kv_heads=1), "seq__pad": "max_len"},
            "math", True,
        ),
        ({"model__dims": replace(LLAMA_8B, arch="falcon", kv_heads=8)}, "flash", False),
        # Classes that take no fused attention in any release, unless somebody asks for one.
        ({"model__dims": replace(LLAMA_8B, arch="gemma2")}, "eager", False),
        ({"model__dims": replace(LLAMA_8B, arch="gemma2"), "seq__pad": "longest"}, "eager", False),
        (
            {"model__dims": replace(LLAMA_8B, arch="gemma2"), "versions": {"transformers": "4.40.0"}},
            "eager", False,
        ),
        ({"model__dims": replace(LLAMA_8B, arch="gemma2"), "model__attn_impl": "sdpa"}, "flash", False),
        ({"model__dims": replace(LLAMA_8B, arch="t5", kv_heads=32), "seq__pad": "longest"}, "efficient", True),
    ],
)  # fmt: skip
def test_torch_chooses_a_kernel(changes: dict[str, Any], kernel: str, dense: bool) -> None:
    f = facts(**changes)
    assert f.regime is not None
    assert (f.regime.kernel, f.regime.dense_mask) == (kernel, dense)


@pytest.mark.parametrize(
    ("release", "kernel"), [("5.14.0", "eager"), ("5.15.0", "efficient"), (None, "efficient")]
)
def test_t5_takes_a_fused_kernel_since_its_class_does(release: str | None, kernel: str) -> None:
    """Its bias of positions, given as a mask, is what flash attention does not take."""
    versions = {"transformers": release} if release else {}
    f = facts(model__dims=replace(LLAMA_8B, arch="t5", kv_heads=32), versions=versions)
    assert f.regime is not None
    assert (f.regime.kernel, f.regime.dense_mask) == (kernel, False)
    assert f.regime.bias_share == (kernel == "efficient") / f.samples.rows


def test_a_window_gets_a_mask_from_its_own_length_on() -> None:
    def masks(length: int, **changes: Any) -> bool:
        dims = replace(LLAMA_8B, sliding_window=512)
        regime = facts(seq__max_len=length, model__dims=dims, **changes).regime
        assert regime is not None
        return regime.masks_window

    assert masks(512)
    assert not masks(511)
    assert masks(512, model__attn_impl="sdpa")
    assert not masks(512, model__attn_impl="flash2")


@pytest.mark.parametrize(
    ("mode", "changes", "share"),
    [
        ("none", {}, 0),
        ("full", {}, 1),
        ("budget", {}, 1),
        ("selective_op", {}, 1),
        ("selective_op", {"checkpointing__source": "megatron"}, 0),
        ("selective_op", {"checkpointing__recompute_modules": ("mlp",)}, 0),
        ("selective_layers", {"checkpointing__every_n": 4}, 1 / 4),
        ("every_n", {}, 1 / 2),
        ("block_partial", {"checkpointing__every_n": 1}, 1),
    ],
)
def test_checkpointing_makes_a_share_of_the_layers_again(
    mode: str, changes: dict[str, Any], share: float
) -> None:
    assert checkpointed_share(facts(checkpointing__mode=mode, **changes).plan) == share


def test_offloaded_inputs_of_layers_leave_one_on_the_gpu() -> None:
    each = 2 * 1024 * 4096
    full: dict[str, Any] = {"checkpointing__mode": "full"}
    assert stack_of(facts(**full)).saved == 32 * each
    for away in ({"checkpointing__offload": "cpu"}, {"offload__activations": "disk"}):
        f = facts(**full, **away)
        assert offloads_activations(f)
        assert stack_of(f).saved == each
        # Hooks take what is not made again as well, but for what two operations save where they leave it.
        assert stack_of(facts(**away)).saved == each
        shared = stack_of(facts(**away, offload__keeps_shared=True)).saved - each
        assert each < shared < stack_of(facts()).saved / 2
        # Nobody says how many layers Megatron offloads.
        megatron = facts(parallel__backend="megatron", **away)
        assert stack_of(megatron).saved == stack_of(facts(parallel__backend="megatron")).saved
    for here in ({"checkpointing__offload": "none"}, {"offload__activations": "none"}, {}):
        assert not offloads_activations(facts(**full, **here))


@pytest.mark.parametrize(
    ("changes", "first", "last"),
    [
        ({}, 1, 1),
        ({"backend": "megatron", "world": 4, "pp": 4, "batch__grad_accum": 8}, 4, 1),
        ({"backend": "megatron", "world": 4, "pp": 4, "batch__grad_accum": 2}, 2, 1),
        # Interleaved: 4 * (1 + 3 / 8) on the first stage, (4 + 1) / 2 on the last.
        ({"backend": "megatron", "world": 4, "pp": 4, "vpp": 2, "batch__grad_accum": 8}, 5.5, 2.5),
        ({"backend": "device_map_pp", "world": 4, "batch__grad_accum": 8}, 1, 1),
        ({"pp_schedule": "afab", "batch__grad_accum": 8}, 8, 8),
        ({"backend": "ddp", "world": 2, "vpp": 2, "batch__grad_accum": 8}, 1, 1),
    ],
)
def test_stages_hold_so_many_micro_batches(
    changes: dict[str, Any], first: float, last: float
) -> None:
    f = facts(**changes)
    assert (pipeline_depth(f), last_depth(f)) == (first, last)
