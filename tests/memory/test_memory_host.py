"""Host RAM and checkpoints by hand."""

from __future__ import annotations

from typing import Any

import pytest
from tests.plans import LLAMA_8B, plan_of

from oomlint.memory import estimate, host_load_bytes, save_peaks
from oomlint.memory.facts import Facts
from oomlint.memory.host import offloaded_of
from oomlint.memory.zero_offload import power_of_two
from oomlint.plan import Plan
from oomlint.plan.model import ModelDims, Moe

NUMEL = 8_030_261_248


def zero3(**changes: Any) -> Plan:
    values: dict[str, Any] = {
        "model.dims": LLAMA_8B,
        "trainable.method": "full",
        "precision.param": "bf16",
        "precision.grad": "bf16",
        "precision.optim_state": "fp32",
        "precision.master": "fp32",
        "precision.compute": "bf16",
        "optimizer.kind": "adamw",
        "parallel.backend": "zero",
        "parallel.world": 8,
        "parallel.zero.stage": 3,
        "batch.micro": 1,
        "seq.max_len": 2048,
    }
    return plan_of(values, **changes)


@pytest.mark.parametrize(
    ("stage", "release", "copies"),
    [(2, "0.14.0", 2), (1, "0.14.0", 2), (2, "0.18.7", 0), (2, None, 0), (3, "0.14.0", 0)],
)
def test_stages_1_and_2_flatten_what_they_train_in_ram(
    stage: int, release: str | None, copies: int
) -> None:
    """DeepSpeed before 0.18.7: each of eight ranks has its copy and the flat buffer beside it."""
    versions: dict[str, Any] = {} if release is None else {"versions": {"deepspeed": release}}
    changes: dict[str, Any] = {"parallel__zero__stage": stage, "load__device_map": "single"}
    host = estimate(zero3(**changes, **versions)).host
    assert host.parts is not None
    flat = copies * 2 * NUMEL * 8
    least = host.parts["load"]["model_copies"]
    assert least == flat if copies else least < 2 * NUMEL * 8


def test_adapters_alone_are_little_to_flatten() -> None:
    changes: dict[str, Any] = {"parallel__zero__stage": 2, "load__device_map": "single"}
    lora: dict[str, Any] = {
        "trainable__method": "lora",
        "trainable__r": 8,
        "versions": {"deepspeed": "0.14.0"},
    }
    host = estimate(zero3(**changes, **lora)).host
    assert host.parts is not None
    assert host.parts["load"]["model_copies"] < 2 * NUMEL * 8


@pytest.mark.parametrize(
    ("size", "rounded"), [(0, 0), (1, 1), (4096, 4096), (4097, 8192), (129.5e6, 2**27)]
)
def test_pinned_blocks_round_up_to_a_power_of_two(size: float, rounded: float) -> None:
    assert power_of_two(size) == rounded


def test_zero3_gathers_one_module_on_the_gpu_and_the_model_on_the_host() -> None:
    found = save_peaks(zero3())
    assert found is not None
    assert found.gpu == 2 * 128256 * 4096  # the embedding is the largest module
    assert found.host == 2 * NUMEL


def test_stacked_experts_are_gathered_as_one_module() -> None:
    experts = Moe(experts=64, topk=8, moe_ffn=1408)
    dims = ModelDims(
        arch="qwen3_moe", layers=24, hidden=2048, heads=16, kv_heads=16, head_dim=128, ffn=5632,
        vocab=151936, tie_embeddings=False, act="swiglu", norm="rms", moe=experts,
    )  # fmt: skip
    found = save_peaks(zero3(model__dims=dims))
    assert found is not None
    assert found.gpu == 2 * 64 * 3 * 2048 * 1408


def test_without_the_16_bit_gather_nothing_is_gathered() -> None:
    found = save_peaks(zero3(parallel__zero__gather16_on_save=False))
    assert found is not None
    assert (found.gpu, found.host) == (0, 0)


def test_a_checkpoint_holds_weights_master_and_adam() -> None:
    with_optimizer, alone = save_peaks(zero3()), save_peaks(zero3(save__save_only_model=True))
    assert with_optimizer is not None
    assert alone is not None
    assert alone.disk == 2 * NUMEL
    assert with_optimizer.disk == (2 + 12) * NUMEL


def test_megatrons_offloaded_adam_keeps_sixteen_bytes_a_parameter_on_the_node() -> None:
    offloaded: dict[str, Any] = {
        "parallel__backend": "megatron",
        "parallel__tp": 2,
        "parallel__dp": 4,
        "offload__optimizer": "cpu",
        "offload__pin_memory": False,
    }
    whole = estimate(zero3(**offloaded)).host.components
    # What tensor parallelism does not split (norms) is there twice.
    assert whole["offloaded_states"] == pytest.approx(16 * NUMEL, rel=1e-3)
    half = estimate(zero3(**offloaded, offload__optimizer_ratio=0.5)).host.components
    assert half["offloaded_states"] == pytest.approx(8 * NUMEL, rel=1e-3)


def test_nvme_offload_keeps_swap_buffers_in_ram() -> None:
    host = estimate(zero3(offload__optimizer="nvme", parallel__zero__sub_group_elems=10_000)).host
    assert host.components is not None
    buffers = 4 * 4 * 10_000 * 8  # four fp32 buffers of a sub-group on each of 8 ranks
    assert host.components["offloaded_states"] == pytest.approx(buffers + 2 * NUMEL, rel=1e-6)


def test_offloaded_adam_keeps_eighteen_bytes_a_parameter_on_the_node() -> None:
    host = estimate(zero3(offload__optimizer="cpu", offload__pin_memory=False)).host
    assert host.phases["train"] is not None
    assert host.components["offloaded_states"] == pytest.approx(18 * NUMEL)


ADAPTERS = 32 * 8 * (4096 + 4096 + 4096 + 1024)


@pytest.mark.parametrize("backend", ["fsdp1", "fsdp2"])
@pytest.mark.parametrize("adapts", [False, True])
def test_fsdp_keeps_weights_gradients_and_states_of_its_shards_on_the_node(
    backend: str, adapts: bool
) -> None:
    """Eight ranks share them: weights in 2 bytes, adapters in 4; of what is trained gradients in 2 and Adam in 8. FSDP1
    pins a flat parameter a block, FSDP2 each weight and gradient by itself, which takes a third more on the mean."""
    lora: dict[str, Any] = {
        "trainable__method": "lora", "trainable__r": 8, "trainable__targets": ("q_proj", "v_proj"),
        "trainable__adapter_dtype": "fp32",
    }  # fmt: skip
    plan = zero3(
        parallel__backend=backend, parallel__fsdp__cpu_offload=True, precision__master="none",
        **(lora if adapts else {}),
    )  # fmt: skip
    stored = 2 * NUMEL + (4 * ADAPTERS if adapts else 0)
    trained = ADAPTERS if adapts else NUMEL
    states, rounding = offloaded_of(Facts(plan))
    assert states == pytest.approx(stored + 2 * trained + 8 * trained)
    unit = stored / 8 / 32
    flat = (power_of_two(unit) - unit) * 32 * 8
    each = (stored + 2 * trained) / 3
    assert rounding == pytest.approx(flat if backend == "fsdp1" else each)
    loose = offloaded_of(Facts(plan.with_values({"offload.pin_memory": False})))
    assert loose == (pytest.approx(states), 0)


def test_pinning_costs_more_than_the_states_themselves() -> None:
    plain = estimate(zero3(offload__optimizer="cpu", offload__pin_memory=False)).host
    pinned = estimate(zero3(offload__optimizer="cpu", offload__pin_memory=True)).host
    assert plain.components["pinned_rounding"] == 0
    assert (pinned.components["pinned_rounding"] or 0) > 0


def test_trained_parameters_move_into_one_pinned_block_and_leave_theirs_behind() -> None:
    both = estimate(zero3(offload__params="cpu", offload__optimizer="cpu")).host.components
    alone = estimate(zero3(offload__optimizer="cpu")).host.components
    shard = 2 * NUMEL / 8
    left = shard / 3 + power_of_two(shard)
    assert both["pinned_rounding"] - alone["pinned_rounding"] == pytest.approx(8 * left)


def test_the_block_that_trained_parameters_move_to_is_pinned_even_where_nothing_else_is() -> None:
    def lost(**offload: Any) -> float:
        plan = zero3(offload__optimizer="cpu", offload__pin_memory=False, **offload)
        return estimate(plan).host.components["pinned_rounding"] or 0

    shard = 2 * NUMEL / 8
    assert lost() == 0
    assert lost(offload__params="cpu") == pytest.approx(8 * (power_of_two(shard) - shard))


@pytest.mark.parametrize(("torch", "is_rounded"), [("1.10.2", False), ("1.11.0", True)])
def test_that_block_was_exact_before_torch_1_11(torch: str, is_rounded: bool) -> None:
    plan = zero3(
        offload__optimizer="cpu", offload__params="cpu", offload__pin_memory=False,
        versions={"torch": torch},
    )  # fmt: skip
    shard = 2 * NUMEL / 8
    lost = 8 * (power_of_two(shard) - shard) if is_rounded else 0
    assert (estimate(plan).host.components["pinned_rounding"] or 0) == pytest.approx(lost)


def test_stage_2_pins_a_group_whole_and_stage_3_a_sub_group() -> None:
    def lost(stage: int, version: str) -> float:
        plan = zero3(
            offload__optimizer="cpu", parallel__zero__stage=stage, versions={"deepspeed": version},
            parallel__zero__sub_group_elems=2**20,
        )  # fmt: skip
        parts = estimate(plan).host.parts
        assert parts is not None
        return parts["train"]["pinned_rounding"]

    shard = NUMEL / 8
    block = power_of_two(4 * shard) - 4 * shard
    assert lost(2, "0.14.0") == pytest.approx(8 * block)
    assert lost(2, "0.16.0") == pytest.approx(8 * 2 * block)
    copy = power_of_two(2 * shard) - 2 * shard
    assert lost(2, "0.17.0") == pytest.approx(8 * (2 * block + copy))
    rest = shard % 2**20
    last = power_of_two(4 * rest) - 4 * rest
    assert lost(3, "0.16.0") == pytest.approx(8 * (last + copy))


def test_the_bounds_of_a_node_hold_what_publishers_read() -> None:
    host = estimate(zero3(offload__optimizer="cpu", offload__pin_memory=False)).host
    assert host.peak_bytes is not None
    assert host.low_bytes is not None
    assert host.high_bytes is not None
    assert host.low_bytes < host.peak_bytes / 1.2
    assert host.high_bytes > host.peak_bytes * 1.2


def test_every_rank_that_loads_holds_its_own_copy() -> None:
    one = host_load_bytes(zero3(parallel__zero__stage=2, load__dtype="bf16"))
    assert one == 8 * 2 * NUMEL
    first_only = host_load_bytes(
        zero3(parallel__zero__stage=2, load__dtype="bf16", load__cpu_ram_efficient=True)
    )
    assert first_only == 2 * NUMEL


def test_a_rank_of_a_pipeline_builds_its_stage_alone() -> None:
    whole, staged = (
        host_load_bytes(zero3(parallel__zero__stage=1, parallel__pp=stages)) for stages in (1, 4)
    )
    assert staged == pytest.approx((whole or 0) / 4)


def test_ranks_of_other_nodes_do_not_count() -> None:
    found = host_load_bytes(
        zero3(
            parallel__zero__stage=2, parallel__world=16, parallel__nodes=2,
            parallel__gpus_per_node=8, load__dtype="bf16",
        )
    )  # fmt: skip
    assert found == 8 * 2 * NUMEL


def test_fsdp_full_state_dict_gathers_the_fp32_model_on_the_host() -> None:
    found = save_peaks(
        zero3(
            parallel__backend="fsdp2", precision__param="fp32", precision__grad="fp32",
            precision__master="none", parallel__fsdp__state_dict="full",
            save__save_only_model=True,
        )
    )  # fmt: skip
    assert found is not None
    assert found.host == 4 * NUMEL


def test_pinned_blocks_were_exact_before_torch_1_11() -> None:
    offloaded = {"offload__params": "cpu", "offload__optimizer": "cpu"}
    old, new = (
        estimate(zero3(versions={"torch": version}, **offloaded)).host.components
        for version in ("1.10.2", "1.11.0")
    )
    assert old["pinned_rounding"] == 0
    assert new["pinned_rounding"]
    assert old["offloaded_states"] == new["offloaded_states"]


def test_every_rank_kept_what_rank_0_packed_before_transformers_4_45() -> None:
    def loading(version: str, quantised: str = "bnb4") -> float:
        plan = zero3(
            parallel__backend="fsdp1", parallel__world=2, trainable__method="qlora",
            quant__method=quantised, load__cpu_ram_efficient=True, load__dtype="bf16",
            versions={"transformers": version},
        )  # fmt: skip
        return host_load_bytes(plan) or 0.0

    assert loading("4.44.2") == 2 * loading("4.45.0")
    assert loading("4.44.2", "none") == loading("4.45.0", "none")


def test_resuming_is_a_moment_of_its_own() -> None:
    offloaded = {"offload__optimizer": "cpu", "parallel__gpus_per_node": 8}
    fresh, resumed = (
        estimate(zero3(**offloaded, load__resume=resume)).host for resume in (False, True)
    )
    assert fresh.phases["train"] == resumed.phases["train"]
    assert (resumed.parts or {})["load"]["checkpoint"] == pytest.approx(12 * NUMEL)
    assert resumed.peak_phase == "load"


@pytest.mark.parametrize(
    ("backend", "versions", "sets"),
    [
        ("zero", {"deepspeed": "0.12.6"}, 2),
        ("zero", {"deepspeed": "0.13.2"}, 1),
        ("ddp", {"torch": "2.0.1"}, 2),
        ("ddp", {"torch": "2.1.0"}, 1),
        ("ddp", {}, 1),
    ],
)
def test_older_libraries_have_two_sets_of_states_while_resuming(
    backend: str, versions: dict[str, str], sets: int
) -> None:
    plan = zero3(
        parallel__backend=backend, parallel__zero__stage=2 if backend == "zero" else None,
        load__resume=True, versions=versions,
    )  # fmt: skip
    parts = (estimate(plan).gpu.parts or {})["load"]
    shard = 8 if backend == "zero" else 1
    assert parts["temporary"] == pytest.approx((sets - 1) * 8 * NUMEL / shard, rel=1e-3)
    assert parts["optimizer_states"] == pytest.approx(12 * NUMEL / shard, rel=1e-3)


@pytest.mark.parametrize(
    ("stage", "params", "on_gpu", "in_host"),
    [(3, "none", 1, 0), (3, "cpu", 0, 1), (3, "nvme", 0, 0), (2, "none", 8, 0)],
)
def test_a_reference_lies_where_the_parameters_of_the_trained_model_do(
    stage: int, params: str, on_gpu: int, in_host: int
) -> None:
    """In shares of a rank: each trainer deep-copies the config of DeepSpeed for it; stages below 3 do not share it."""
    changes: dict[str, Any] = {
        "parallel__zero__stage": stage, "offload__params": params, "offload__pin_memory": False,
        "objective__kind": "dpo", "parallel__gpus_per_node": 8,
    }  # fmt: skip
    share = 2 * NUMEL / 8

    def both(reference: str) -> tuple[float, float]:
        found = estimate(zero3(**changes, objective__ref_model=reference))
        assert found.host.parts is not None
        assert found.gpu.parts is not None
        gpu, host = found.gpu.parts["optimizer_step"], found.host.parts["train"]
        return sum(gpu.values()), host["offloaded_states"]

    beside, alone = both("copy"), both("none")
    assert beside[0] - alone[0] == pytest.approx(on_gpu * share, rel=0.02)
    assert beside[1] - alone[1] == pytest.approx(in_host * 8 * share)


def test_a_worker_owns_what_it_touches_of_its_parents_pages() -> None:
    """Some 20 MiB as measured, and what it fetches ahead: 2 batches of three rows of 2,048 numbers of 8 bytes."""
    parts = estimate(zero3(data__workers=256, parallel__gpus_per_node=8)).host.parts
    assert parts is not None
    assert parts["train"]["dataloader"] == 8 * 256 * ((20 << 20) + 2 * 3 * 8 * 2048)
