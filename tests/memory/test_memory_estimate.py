"""The whole estimate: sums, phases, unknowns, and what must never go down or up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace
from tests.plans import LLAMA_8B, plan_of

from oomlint.memory import Estimate, GpuLimits, estimate, skeleton, state_bytes
from oomlint.plan import Plan
from oomlint.plan.model import Model, ModelDims

FULL: dict[str, Any] = {
    "model.dims": LLAMA_8B,
    "model.attn_impl": "flash2",
    "trainable.method": "full",
    "precision.param": "bf16",
    "precision.grad": "bf16",
    "precision.optim_state": "fp32",
    "precision.master": "fp32",
    "precision.compute": "bf16",
    "optimizer.kind": "adamw",
    "optimizer.fused": True,
    "parallel.backend": "zero",
    "parallel.world": 8,
    "parallel.zero.stage": 2,
    "batch.micro": 2,
    "seq.max_len": 4096,
    "checkpointing.mode": "full",
}


def plan(**changes: Any) -> Plan:
    return plan_of(FULL, **changes)


def peak(p: Plan) -> int:
    found = estimate(p).gpu.peak_bytes
    assert found is not None
    return found


backends = st.sampled_from(
    [
        {"parallel.backend": "none", "precision.master": "none"},
        {"parallel.backend": "ddp", "precision.master": "none"},
        {"parallel.backend": "zero", "parallel.zero.stage": 1},
        {"parallel.backend": "zero", "parallel.zero.stage": 3},
        {"parallel.backend": "fsdp1", "precision.master": "none", "precision.param": "fp32"},
        {"parallel.backend": "fsdp2", "precision.master": "none", "precision.param": "fp32"},
        {"parallel.backend": "fsdp2", "parallel.fsdp.reshard_after_forward": False},
        {"parallel.backend": "fsdp2", "parallel.fsdp.cpu_offload": True},
        {"parallel.backend": "megatron", "parallel.tp": 2},
    ]
)
choices = st.fixed_dictionaries(
    {
        "checkpointing.mode": st.sampled_from(["none", "full", "selective_op", "every_n"]),
        "model.attn_impl": st.sampled_from(["eager", "sdpa", "flash2", None]),
        "loss.logits_materialised": st.sampled_from(["full", "fused", "chunked"]),
        "objective.kind": st.sampled_from(["sft", "dpo", "rm", None]),
        "trainable.method": st.sampled_from(["full", "lora", "qlora", "freeze"]),
        "trainable.r": st.sampled_from([8, 64]),
        "trainable.targets": st.sampled_from(["all_linear", ("q_proj", "v_proj"), None]),
        "quant.method": st.sampled_from(["none", "bnb4", "bnb8"]),
        "batch.grad_accum": st.sampled_from([1, 4]),
        "batch.micro": st.integers(1, 16),
        "seq.max_len": st.integers(1, 32768),
        "optimizer.kind": st.sampled_from(["adamw", "adamw8bit", "adafactor", "muon", "sgd"]),
        "offload.optimizer": st.sampled_from(["none", "cpu"]),
        "eval.enabled": st.booleans(),
    }
)


@settings(max_examples=120, deadline=None)
@given(backend=backends, chosen=choices)
def test_components_add_up_and_the_peak_is_the_highest_phase(
    backend: dict[str, Any], chosen: dict[str, Any]
) -> None:
    found = estimate(plan().with_values(backend | chosen))
    gpu, host = found.gpu, found.host
    assert gpu.peak_bytes == sum(v for v in gpu.components.values() if v is not None)
    assert gpu.peak_phase is not None
    known = {name: v for name, v in gpu.phases.items() if v is not None}
    assert known[gpu.peak_phase] == gpu.peak_bytes
    assert max(known.values()) <= gpu.peak_bytes + 8  # components are rounded one by one
    assert all(v is not None and v >= 0 for v in gpu.components.values())
    assert gpu.low_bytes is not None
    assert gpu.high_bytes is not None
    assert gpu.reserved_bytes is not None
    assert 0 < gpu.low_bytes <= gpu.peak_bytes <= gpu.high_bytes
    assert gpu.told is not None
    assert 0 <= gpu.told.low <= gpu.low_bytes
    assert gpu.high_bytes <= gpu.told.high
    assert gpu.reserved_bytes >= gpu.peak_bytes - (gpu.components["context"] or 0)
    assert gpu.reserved_bytes <= gpu.high_bytes
    assert host.peak_bytes == sum(v for v in host.components.values() if v is not None)
    assert host.peak_bytes == max(v for v in host.phases.values() if v is not None)


@settings(max_examples=60, deadline=None)
@given(backend=backends, chosen=choices)
def test_a_bigger_micro_batch_never_lowers_the_peak(
    backend: dict[str, Any], chosen: dict[str, Any]
) -> None:
    small = plan().with_values(backend | chosen)
    big = small.with_values({"batch.micro": chosen["batch.micro"] + 1})
    assert peak(big) >= peak(small)


@settings(max_examples=60, deadline=None)
@given(backend=backends, chosen=choices, more=st.integers(1, 4096))
def test_a_longer_sequence_never_lowers_the_peak(
    backend: dict[str, Any], chosen: dict[str, Any], more: int
) -> None:
    short = plan().with_values(backend | chosen)
    long = short.with_values({"seq.max_len": chosen["seq.max_len"] + more})
    assert peak(long) >= peak(short)


@settings(max_examples=40, deadline=None)
@given(world=st.sampled_from([1, 2, 8, 64]), chosen=choices)
def test_a_higher_zero_stage_never_raises_the_states(world: int, chosen: dict[str, Any]) -> None:
    # What ZeRO lays flat has no rows and columns by which a second moment could be told.
    flattened = chosen["optimizer.kind"] in ("adafactor", "came")
    totals = []
    for stage in (1, 2, 3) if flattened else (0, 1, 2, 3):
        found = state_bytes(
            plan(parallel__world=world).with_values(chosen | {"parallel.zero.stage": stage})
        )
        assert found is not None
        totals.append(found.total)
    assert totals == sorted(totals, reverse=True)


def test_checkpointing_lowers_a_peak_that_activations_make() -> None:
    assert peak(plan(checkpointing__mode="none")) > peak(plan())


def test_fused_loss_removes_the_logits() -> None:
    full, fused = estimate(plan()).gpu, estimate(plan(loss__logits_materialised="fused")).gpu
    assert full.peak_bytes is not None
    assert fused.peak_bytes is not None
    tokens, vocab = 2 * 4096, 128256
    assert full.components["logits"] == pytest.approx(12 * tokens * vocab, rel=0.01)
    assert (fused.components["logits"] or 0) < (full.components["logits"] or 0) / 2
    assert fused.peak_bytes < full.peak_bytes


def test_preference_pairs_double_the_rows() -> None:
    pairs = estimate(plan(objective__kind="dpo", batch__micro=1)).gpu
    single = estimate(plan(objective__kind="sft", batch__micro=2)).gpu
    assert pairs.components["logits"] == single.components["logits"]


def test_a_reference_copy_costs_its_weights() -> None:
    lone = peak(plan(objective__kind="grpo"))
    beside = peak(plan(objective__kind="grpo", objective__ref_model="copy"))
    assert beside - lone == 2 * 8_030_261_248


def test_a_colocated_engine_takes_its_share_of_the_card() -> None:
    limits = GpuLimits(usable=80 << 30)
    engine = {
        "objective.rollout.engine": "vllm_colocate",
        "objective.rollout.gpu_mem_util": 0.25,
    }
    lone, beside = estimate(plan(), limits).gpu, estimate(plan().with_values(engine), limits).gpu
    assert lone.peak_bytes is not None
    assert beside.peak_bytes == lone.peak_bytes + (20 << 30)


def test_an_engine_that_sleeps_wakes_up_beside_the_states() -> None:
    limits = GpuLimits(usable=80 << 30)
    engine = {
        "objective.rollout.engine": "vllm_colocate",
        "objective.rollout.gpu_mem_util": 0.75,
        "objective.rollout.sleep": True,
    }
    awake = estimate(plan().with_values(engine), limits).gpu
    resident = estimate(plan(), limits).gpu.phases["save"]
    assert resident is not None
    assert awake.phases["forward"] == pytest.approx(resident + (60 << 30), rel=0.01)
    assert awake.phases["backward"] == estimate(plan(), limits).gpu.phases["backward"]
    moved = plan().with_values(engine | {"offload.idle": "cpu"})
    assert estimate(moved, limits).gpu.phases["forward"] != awake.phases["forward"]


def test_a_sharded_model_that_writes_its_answers_is_gathered_whole() -> None:
    written = {
        "parallel.zero.stage": 3,
        "objective.kind": "grpo",
        "objective.rollout.engine": "hf",
        "objective.rollout.max_prompt_tokens": 64,
        "objective.rollout.max_completion_tokens": 64,
        # Training itself needs little.
        "seq.max_len": 128,
        "parallel.zero.max_live_params": 0,
        "parallel.zero.prefetch_elems": 0,
    }

    def forward(**rollout: Any) -> int:
        values = written | {f"objective.rollout.{name}": value for name, value in rollout.items()}
        return estimate(plan().with_values(values)).gpu.phases["forward"] or 0

    whole, part, none = forward(gathers=True), forward(gathers=True, tp=2), forward(gathers=False)
    assert whole > 2 * 8_030_261_248
    assert none <= part < whole - 4e9


def test_ddp_buckets_hold_one_more_copy_of_the_gradients() -> None:
    """Without gradient_as_bucket_view; fp32 weights, so 4 bytes a parameter."""
    wide = {
        "precision.param": "fp32", "precision.grad": "fp32", "precision.master": "none",
        "parallel.backend": "ddp",
    }  # fmt: skip
    alone = plan().with_values(wide | {"parallel.backend": "none", "parallel.world": 1})
    ddp = estimate(plan().with_values(wide)).gpu
    one = estimate(alone).gpu
    assert ddp.components["communication"] == 4 * 8_030_261_248
    assert one.components["communication"] == 0


def test_zero_fills_whole_buckets_and_buffers_of_what_it_steps() -> None:
    """However little is trained; but a buffer of the largest parameter is one of the adapters."""
    lora = {
        "trainable.method": "lora", "trainable.r": 8, "trainable.targets": ("q_proj", "v_proj"),
        "parallel.zero.reduce_bucket_elems": 500_000_000, "parallel.zero.overlap_comm": True,
    }  # fmt: skip
    whole = estimate(plan().with_values(lora)).gpu.by_phase["backward"]["communication"]
    assert whole == pytest.approx(2 * 2 * 500_000_000, rel=0.01)
    loose = lora | {"parallel.zero.contiguous_grads": False}
    few = estimate(plan().with_values(loose)).gpu.by_phase["backward"]["communication"]
    assert few is not None
    assert few < 100e6
    offloaded = loose | {"offload.optimizer": "cpu"}
    beside = estimate(plan().with_values(offloaded)).gpu.by_phase["backward"]["communication"]
    assert beside is not None
    assert beside < 100e6


def test_unknown_model_has_no_numbers_and_says_why() -> None:
    found = estimate(Plan(model=Model(id="nobody/knows")))
    assert found.gpu.peak_bytes is None
    assert set(found.gpu.components.values()) == {None}
    assert found.host.peak_bytes is None
    assert found.unknown == ("model.dims",)
    assert state_bytes(Plan()) is None


def test_a_known_size_alone_gives_exact_states_and_wide_bounds() -> None:
    # Packed: where lengths vary the bounds are wide for another reason.
    packed = plan(seq__packing="multipack")
    sized = replace(packed.model, dims=ModelDims(params_total=8_030_261_248))
    guessed = estimate(replace(packed, model=sized))
    assert "model.dims" in {a.field for a in guessed.assumptions}
    states = state_bytes(replace(packed, model=sized))
    assert states is not None
    assert states.parameters == 2 * 8_030_261_248
    assert guessed.gpu.peak_bytes == pytest.approx(peak(packed), rel=0.25)
    assert _width(guessed) > 1.5 * _width(estimate(packed))


def _width(found: Estimate) -> float:
    gpu = found.gpu
    assert gpu.low_bytes is not None
    assert gpu.high_bytes is not None
    assert gpu.peak_bytes is not None
    return (gpu.high_bytes - gpu.low_bytes) / gpu.peak_bytes


def test_missing_lengths_are_assumed_in_the_open() -> None:
    found = estimate(plan(seq__max_len=None, batch__micro=None))
    assert {"seq.max_len", "batch.micro"} <= {a.field for a in found.assumptions}


def test_models_that_differ_in_one_dimension_are_not_taken_for_one_another() -> None:
    keys = {"linear_num_key_heads": 16}
    given: list[dict[str, Any]] = [
        {}, {"layer_types": ("linear_attention",) * 32}, {"sliding_window": 1024},
        {"linear_attn": keys}, {"linear_attn": {"linear_num_key_heads": 32}}, {"ssm": keys},
    ]  # fmt: skip
    built = [skeleton(replace(LLAMA_8B, **changes)) for changes in given]
    assert len({id(found) for found in built}) == len(given)
    assert skeleton(replace(LLAMA_8B, linear_attn=dict(keys))) is built[3], "equal ones are shared"


def test_log_probabilities_of_answers_have_a_batch_of_their_own() -> None:
    rollout = {
        "parallel.zero.stage": 2, "objective.kind": "ppo", "seq.max_len": 2048,
        "checkpointing.mode": "full", "objective.rollout.engine": "vllm_server",
    }  # fmt: skip
    base = estimate(plan().with_values(rollout)).gpu.phases["forward"] or 0
    many = rollout | {"objective.rollout.rollout_micro_batch": 32}
    scored = estimate(plan().with_values(many)).gpu.by_phase["forward"]
    assert scored["logits"] >= 2 * 32 * 2048 * 128256
    assert (estimate(plan().with_values(many)).gpu.phases["forward"] or 0) > base


@pytest.mark.parametrize(
    ("changes", "is_late"),
    [
        ({}, True),
        ({"total_steps": 2}, False),
        ({"load.resume": True}, False),
        ({"parallel.backend": "zero", "parallel.zero.stage": 1, "parallel.world": 2}, False),
    ],
)
def test_the_only_step_of_a_run_makes_its_states_behind_its_backward(
    changes: dict[str, Any], is_late: bool
) -> None:
    one = {"parallel.backend": "none", "parallel.world": 1, "total_steps": 1, "eval.enabled": True}
    found = estimate(plan_of(FULL, **{**one, **changes}))
    assert found.gpu.parts is not None
    whole = found.gpu.parts["optimizer_step"]["optimizer_states"]
    states = {
        phase: found.gpu.parts[phase]["optimizer_states"] for phase in ("forward", "backward")
    }
    # The fp32 master weights are there from the start: 4 of the 12 bytes.
    assert states == dict.fromkeys(states, pytest.approx(whole / 3 if is_late else whole))
    assert found.gpu.parts["evaluation"]["optimizer_states"] == pytest.approx(whole)
