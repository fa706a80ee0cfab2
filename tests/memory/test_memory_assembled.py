"""An estimate is its parts: each phase of a small model on two ranks, put together by hand from the modules' own numbers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.plans import plan_of

from oomlint.hardware import parse_hardware, usable_bytes
from oomlint.memory import GpuLimits, estimate
from oomlint.memory.facts import Facts
from oomlint.memory.limits import gpu_limits
from oomlint.memory.step import highest, replicated_points
from oomlint.plan import Plan
from oomlint.plan.model import ModelDims

SMALL = ModelDims(
    arch="llama", layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=1000,
    tie_embeddings=False, act="swiglu", norm="rms",
)  # fmt: skip
NUMEL = 2 * 36_992 + 2 * 64_000 + 64
LEAVES: dict[str, Any] = {
    "model.dims": SMALL, "trainable.method": "full", "precision.param": "bf16",
    "precision.grad": "bf16", "precision.optim_state": "fp32", "precision.compute": "bf16",
    "precision.master": "fp32", "optimizer.kind": "adamw", "optimizer.fused": True,
    "batch.micro": 1, "seq.max_len": 32, "seq.packing": "multipack", "checkpointing.mode": "full",
    "parallel.backend": "ddp", "parallel.world": 2, "parallel.gpus_per_node": 2,
    "model.from_scratch": True,
}  # fmt: skip
LIMITS = GpuLimits(context=1000, nccl=200, cublas_workspace=30, usable=2**34)
MODEL, STATES = 2 * NUMEL, (4 + 8) * NUMEL
BUCKETS = 2 * NUMEL


def parts(limits: GpuLimits = LIMITS, **changes: Any) -> Any:
    found = estimate(plan_of(LEAVES, **changes), limits).gpu.parts
    assert found is not None
    return found


def test_each_phase_is_what_stays_and_its_highest_instant() -> None:
    found = parts()
    points = replicated_points(Facts(plan_of(LEAVES)))
    assert set(found) == {"load", "forward", "backward", "optimizer_step", "evaluation", "save"}
    for phase in ("forward", "backward", "optimizer_step"):
        point = highest(points[phase])
        assert found[phase] == {
            "parameters": MODEL, "gradients": point.gradients, "optimizer_states": STATES,
            "activations": point.activations, "logits": point.logits,
            "communication": point.communication, "temporary": point.temporary + 30, "engine": 0,
            "context": 1200,
        }  # fmt: skip
    # Nothing but the weights while they are loaded: states and workspaces come with the first step.
    assert found["load"] == {
        "parameters": MODEL, "gradients": 0, "optimizer_states": 0, "activations": 0, "logits": 0,
        "communication": 0, "temporary": 0, "engine": 0, "context": 1200,
    }  # fmt: skip
    assert found["save"]["communication"] == BUCKETS
    assert (found["save"]["gradients"], found["save"]["temporary"]) == (0, 30)


@pytest.mark.parametrize(
    ("changes", "context"),
    [
        ({}, 1200),
        ({"parallel__world": 1, "parallel__gpus_per_node": 1}, 1000),
        ({"parallel__backend": "none"}, 1000), ({"parallel__backend": "dp"}, 1000),
        ({"parallel__backend": "device_map_pp"}, 1000), ({"parallel__backend": "fsdp2"}, 1200),
    ],
)  # fmt: skip
def test_communicators_are_of_several_processes(changes: dict[str, Any], context: int) -> None:
    assert parts(**changes)["forward"]["context"] == context


def test_gradients_that_are_cleared_late_are_there_in_forward() -> None:
    """Of one micro batch a step on one GPU; DDP's buckets hold them anyway, and so does a second micro batch."""
    alone: dict[str, Any] = {"parallel__backend": "none", "parallel__world": 1}
    late = parts(**alone, optimizer__clears_late=True)["forward"]["gradients"]
    assert late - parts(**alone)["forward"]["gradients"] == 2 * NUMEL
    again = {**alone, "batch__grad_accum": 2}
    assert parts(**again, optimizer__clears_late=True) == parts(**again)
    # An optimizer that steps in backward has let each of them go by then.
    stepped = parts(**alone, optimizer__in_backward=True, optimizer__clears_late=True)
    assert stepped["forward"]["gradients"] == 0


def test_what_is_read_back_is_there_while_it_loads() -> None:
    assert parts(load__resume=True)["load"]["optimizer_states"] == STATES
    older = parts(load__resume=True, versions={"torch": "2.0.1"})["load"]
    assert older["temporary"] == 8 * NUMEL
    cast = parts(
        parallel__backend="zero",
        parallel__zero__stage=1,
        load__device_map="single",
        load__cast="fp32",
    )["load"]
    assert cast["parameters"] == MODEL + 2 * NUMEL


def test_states_that_come_for_a_step_are_there_for_it_and_for_saving() -> None:
    found = parts(parallel__backend="fsdp1", offload__between_steps="cpu", precision__master=None)
    for phase, states in (("forward", 0), ("backward", 0), ("evaluation", 0)):
        assert found[phase]["optimizer_states"] == states
    for phase in ("optimizer_step", "save"):
        assert found[phase]["optimizer_states"] == pytest.approx(8 * NUMEL / 2)


def test_models_and_pools_beside_are_there_in_every_phase() -> None:
    beside = parts(
        objective__kind="grpo", objective__ref_model="copy",
        objective__rollout__engine="vllm_colocate", objective__rollout__gpu_mem_util=0.25,
    )  # fmt: skip
    for phase in beside.values():
        assert phase["parameters"] == 2 * MODEL
        assert phase["engine"] == 2**32


def test_the_peak_is_of_the_phase_with_the_most() -> None:
    found = estimate(plan_of(LEAVES), LIMITS)
    gpu, host = found.gpu, found.host
    totals = {phase: sum(map(round, own.values())) for phase, own in parts().items()}
    assert gpu.phases == totals
    assert (gpu.peak_phase, gpu.peak_bytes) == max(totals.items(), key=lambda item: item[1])
    assert gpu.allocated_bytes == (gpu.peak_bytes or 0) - 1200
    assert found.disk_checkpoint_bytes == 14 * NUMEL
    assert host.peak_bytes == max(size or 0 for size in host.phases.values())
    assert not gpu.lengths_vary
    # A full GPU makes torch give its cached blocks back.
    small = GpuLimits(context=1000, nccl=200, cublas_workspace=30, usable=1200)
    varied = estimate(plan_of(LEAVES, seq__packing="none"), small).gpu
    assert varied.lengths_vary
    assert varied.reserved_bytes == varied.least_reserved_bytes
    assert (varied.reserved_bytes or 0) >= (varied.allocated_bytes or 0)


def test_sizes_that_no_machine_has_are_unknown() -> None:
    assert estimate(Plan()).unknown
    huge = estimate(plan_of(LEAVES, seq__max_len=10**400))
    assert huge.gpu.peak_bytes is None
    assert huge.unknown == ("sizes that no machine has",)


@pytest.mark.parametrize(
    ("changes", "groups"),
    [
        ({}, 1),
        ({"parallel__tp": 2}, 2),
        ({"parallel__tp": 2, "parallel__pp": 2, "parallel__ep": 1}, 3),
    ],
)
def test_a_card_has_its_own_sizes(changes: dict[str, Any], groups: int) -> None:
    from oomlint.hardware import nccl_bytes

    machine = parse_hardware("8xA100-80GB")
    plan = plan_of({**LEAVES, "parallel.world": None, "parallel.gpus_per_node": None}, **changes)
    found = gpu_limits(machine, plan)
    assert found.usable == usable_bytes(machine.gpu)
    context = machine.gpu.context_mib
    assert (found.context, found.context_high) == (context.typical * 2**20, context.high * 2**20)
    nccl = nccl_bytes(machine.gpu, 8, groups)
    assert (found.nccl, found.nccl_high) == (nccl.typical, nccl.high)
    two = gpu_limits(machine, plan_of(LEAVES, **changes))
    assert two.nccl == nccl_bytes(machine.gpu, 2, groups).typical
