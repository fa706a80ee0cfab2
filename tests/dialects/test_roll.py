"""ROLL's YAML: its roles, who has which GPUs, its two strategies, and what goes where between passes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fixing import fixed
from tests.linked import link, run_of

from oomlint.errors import CannotEdit
from oomlint.memory import estimate
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_RLVR = """\
hydra:
  run: {dir: .}
exp_name: "qwen2.5-7B"
num_gpus_per_node: 8
max_steps: 500
save_steps: 100
rollout_batch_size: 64  # prompts
prompt_length: 2048
response_length: 4096
num_return_sequences_in_group: 8
adv_estimator: "reinforce"
pretrain: Qwen/Qwen2.5-7B
actor_train:
  model_args:
    disable_gradient_checkpointing: false
    dtype: bf16
  training_args:
    learning_rate: 1.0e-6
    per_device_train_batch_size: 2
    gradient_accumulation_steps: 32
  strategy_args:
    strategy_name: megatron_train
    strategy_config:
      tensor_model_parallel_size: 2
      use_distributed_optimizer: true
      recompute_granularity: full
  device_mapping: list(range(0,16))
  infer_batch_size: 4
actor_infer:
  generating_args:
    max_new_tokens: ${response_length}
  strategy_args:
    strategy_name: vllm
    strategy_config:
      gpu_memory_utilization: 0.8
      max_model_len: 8000
  device_mapping: list(range(0,12))
reference:
  strategy_args:
    strategy_name: megatron_infer
  device_mapping: list(range(0,16))
"""
_SFT = """\
sequence_length: 2048
pretrain: Qwen/Qwen2.5-7B
sft_train:
  model_args: {dtype: bf16}
  training_args:
    per_device_train_batch_size: 4
    gradient_accumulation_steps: 2
  strategy_args:
    strategy_name: fsdp2_train
    strategy_config:
      fsdp_size: 4
      param_dtype: bf16
      reduce_dtype: bf16
      offload_policy: false
  device_mapping: "[0, 1, 2, 3, 4, 5, 6, 7]"
"""


def _run(text: str = _RLVR, hardware: str = "2x8xA100-80GB") -> Run:
    run = run_of({"rlvr.yaml": text}, hardware=hardware)
    assert run.framework == "roll"
    return run


def _sft(text: str = _SFT) -> Run:
    return _run(text, "8xA100-80GB")


def _with(line: str, text: str = _RLVR) -> str:
    """More of Megatron's keys, or of FSDP2's."""
    return text.replace("    strategy_config:\n", f"    strategy_config:\n      {line}\n", 1)


def test_a_whole_config() -> None:
    run = _run()
    plan, rollout = run.plan, run.plan.objective.rollout
    assert not run.stray
    assert (plan.model.id, plan.objective.kind) == ("Qwen/Qwen2.5-7B", "rloo")
    assert (plan.parallel.backend, plan.parallel.tp, plan.parallel.dp) == ("megatron", 2, 8)
    assert (plan.parallel.nodes, plan.parallel.world) == (2, 16)
    assert (plan.batch.micro, plan.batch.grad_accum, plan.batch.global_) == (2, 32, 512)
    assert (plan.seq.max_len, plan.seq.pad) == (6144, "max_len")
    assert (plan.precision.param, plan.precision.grad, plan.precision.master) == (
        "bf16",
        "fp32",
        "fp32",
    )
    assert (plan.checkpointing.mode, plan.checkpointing.source) == ("full", "megatron")
    assert (rollout.engine, rollout.sleep, rollout.gpu_mem_util) == ("vllm_colocate", True, 0.8)
    assert (rollout.rollout_micro_batch, rollout.n, rollout.max_completion_tokens) == (4, 8, 4096)
    assert (plan.objective.ref_model, plan.offload.idle) == ("precomputed", "cpu")
    assert (plan.save.every, plan.save.keep, plan.eval.generate) == (100, "all", True)


@pytest.mark.parametrize(
    ("written", "ranks"),
    [
        ("list(range(0,4))", 4),
        ("list(range(2, 3))", 1),
        ("list(range(0,2))+list(range(14,16))", 4),
        ("list([6,7,14,15])", 4),
        ('"[0]"', 1),
    ],
)
def test_which_gpus_a_role_has(written: str, ranks: int) -> None:
    run = _run(_RLVR.replace("list(range(0,16))", written, 1).replace("el_size: 2", "el_size: 1"))
    assert run.plan.parallel.world == ranks


@pytest.mark.parametrize("written", ["8", "list(range(0, n))", "range(0, 8", "list(range(0,1.5))"])
def test_what_is_no_list_of_gpus(written: str) -> None:
    assert _run(_RLVR.replace("list(range(0,16))", written, 1)).wrong


def test_engines_on_cards_of_their_own() -> None:
    apart = _RLVR.replace("list(range(0,12))", "list(range(16,24))")
    rollout = _run(apart).plan.objective.rollout
    assert (rollout.engine, rollout.sleep) == ("vllm_server", False)


def test_an_engine_that_goes_on_meanwhile_stays_awake() -> None:
    busy = f"async_generation_ratio: 1\n{_RLVR}"
    assert _run(busy).plan.objective.rollout.sleep is False
    # Games leave the cards of the trained model, where they have more.
    games = busy.replace("list(range(0,12))", "list(range(0,24))")
    games += "train_env_manager: {num_env_groups: 8}\n"
    assert _run(games).plan.objective.rollout.sleep is True


def test_adams_states_come_to_megatron_for_the_step() -> None:
    plan = _run().plan
    assert plan.offload.between_steps == "cpu"
    here = estimate(plan)
    always = estimate(plan.with_values({f.offload.between_steps: "none"}))
    assert here.gpu is not None
    assert always.gpu is not None
    assert here.gpu.phases["backward"] < always.gpu.phases["backward"]
    assert here.gpu.phases["optimizer_step"] == always.gpu.phases["optimizer_step"]
    # Gradients are not there while answers are only scored.
    assert here.gpu.phases["forward"] < always.gpu.phases["forward"]
    assert _sft().plan.offload.between_steps == "none"


def test_megatron_recomputes_what_it_is_told() -> None:
    none = _RLVR.replace("      recompute_granularity: full\n", "")
    assert _run(none).plan.checkpointing.mode == "none"
    plan = _run(_with("moe_layer_recompute: true", none)).plan
    assert (plan.checkpointing.mode, plan.checkpointing.recompute_modules) == (
        "selective_op",
        ("moe",),
    )


def test_megatron_refuses_what_its_arguments_lack() -> None:
    (stray,) = _run(_with("tensor_parallel: 2")).stray
    assert stray.block.table.refuses(stray.path)
    (passed,) = _sft(_with("forward_prefetch: true", _SFT)).stray
    assert not passed.block.table.refuses(passed.path)


def test_fsdp2() -> None:
    run = _sft()
    plan = run.plan
    assert not run.stray
    assert (plan.parallel.backend, plan.parallel.dp_replicate) == ("fsdp2", 2)
    assert (plan.precision.param, plan.precision.master, plan.precision.optim_state) == (
        "bf16",
        "none",
        "bf16",
    )
    assert (plan.checkpointing.mode, plan.checkpointing.reentrant) == ("full", False)
    assert (plan.objective.kind, plan.eval.enabled, plan.seq.max_len) == ("sft", False, 2048)
    wide = _sft(_SFT.replace("      param_dtype: bf16\n", "")).plan.precision
    assert (wide.param, wide.compute, wide.comm) == ("fp32", "bf16", "bf16")


def test_pairs_and_the_model_that_they_are_held_against() -> None:
    text = _SFT.replace("sft_train", "actor_train")
    text += "reference:\n  strategy_args: {strategy_name: hf_infer}\n  device_mapping: list(range(0,8))\n"
    plan = _sft(text).plan
    assert (plan.objective.kind, plan.objective.pairs_per_sample) == ("dpo", 1)
    assert plan.objective.ref_model == "copy"
    assert _sft(f"is_offload_states: true\n{text}").plan.objective.ref_model == "precomputed"


def test_a_student_and_its_teacher() -> None:
    text = _SFT.replace("sft_train", "student").replace("pretrain:", "student_pretrain:")
    text += "teacher_pretrain: Qwen/Qwen2.5-14B\nteacher:\n  device_mapping: list(range(0,8))\n"
    plan = _sft(text).plan
    assert (plan.model.id, plan.objective.kind) == ("Qwen/Qwen2.5-7B", "distill")
    assert plan.objective.teacher == "Qwen/Qwen2.5-14B"
    assert (
        _sft(text.replace("list(range(0,8))", "list(range(8,16))")).plan.objective.teacher == "none"
    )


def test_budgets_of_tokens_are_megatrons() -> None:
    text = _RLVR.replace(
        "  infer_batch_size: 4",
        "  use_dynamic_batching_in_train: true\n  max_tokens_per_microbatch_in_train: 16384\n  infer_batch_size: 4",
    )
    assert _run(text).plan.batch.max_tokens_per_gpu == 16384
    assert _run().plan.batch.max_tokens_per_gpu is None


def test_adapters() -> None:
    text = _RLVR.replace(
        "    dtype: bf16\n", "    dtype: bf16\n    lora_target: q_proj,v_proj\n", 1
    )
    plan = _run(text).plan
    assert (plan.trainable.method, plan.trainable.r, plan.trainable.alpha) == ("lora", 8, 16)
    assert plan.trainable.targets == ("q_proj", "v_proj")
    assert plan.objective.ref_model == "none"  # the base with its adapter off


def test_all_linear_takes_experts_in_on_megatron() -> None:
    text = _RLVR.replace("    dtype: bf16\n", "    dtype: bf16\n    lora_target: all-linear\n", 1)
    assert _run(text).plan.trainable.target_params == "experts"
    sharded = text.replace("strategy_name: megatron_train", "strategy_name: fsdp2_train")
    assert _run(sharded).plan.trainable.target_params is None


def test_what_trains_nothing_here() -> None:
    """A rollout alone, and DeepSpeed's strategy, which went in 2026-06."""
    rollout = _RLVR[: _RLVR.index("actor_train:")] + _RLVR[_RLVR.index("actor_infer:") :]
    for text in (rollout, _RLVR.replace("megatron_train", "deepspeed_train")):
        linked = link({"a.yaml": text})
        assert not linked.runs


def test_what_its_games_refer_to() -> None:
    merged = f"defaults:\n  - ../config/traj_envs@_here_\nmax_tokens_per_step: 128\n{_RLVR}"
    assert not _run(merged).stray
    assert _run(f"max_tokens_per_step: 128\n{_RLVR}").stray


# -- fixes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({f.batch.micro: 1, f.batch.grad_accum: 64}, "per_device_train_batch_size: 1"),
        ({f.parallel.tp: 4}, "tensor_model_parallel_size: 4"),
        ({f.parallel.megatron.dist_optimizer: False}, "use_distributed_optimizer: false"),
        ({f.objective.rollout.gpu_mem_util: 0.5}, "gpu_memory_utilization: 0.5"),
        ({f.objective.rollout.rollout_micro_batch: 1}, "  infer_batch_size: 1"),
        ({f.seq.max_len: 4096}, "response_length: 2048"),
        ({f.save.every: 50}, "save_steps: 50"),
        ({f.parallel.sp: True}, "sequence_parallel: true"),
    ],
)
def test_wishes(changes: dict[Any, Any], line: str) -> None:
    after = fixed(_run, _RLVR, changes)
    assert line in after
    assert "# prompts" in after


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({f.offload.optimizer: "cpu", f.offload.params: "cpu"}, "offload_policy: true"),
        ({f.checkpointing.mode: "none"}, "disable_gradient_checkpointing: true"),
        ({f.model.attn_impl: "flash2"}, "attn_implementation: fa2"),
        ({f.trainable.method: "lora"}, "lora_target: all-linear"),
        ({f.parallel.ulysses: 2}, "ulysses_size: 2"),
        ({f.seq.max_len: 1024}, "sequence_length: 1024"),
        ({f.save.keep: 2}, "max_ckpt_to_keep: 2"),
    ],
)
def test_wishes_of_fsdp2_go_to_its_role(changes: dict[Any, Any], line: str) -> None:
    after = fixed(_sft, _SFT, changes)
    assert line in after
    assert "actor_train" not in after


def test_recomputation_is_said_in_each_strategy_s_words() -> None:
    none = _RLVR.replace("      recompute_granularity: full\n", "")
    after = fixed(_run, none, {f.checkpointing.mode: "full"})
    assert "      recompute_granularity: full\n" in after


@pytest.mark.parametrize(
    "changes",
    [
        {f.offload.optimizer: "cpu"},
        {f.quant.method: "bnb4"},
        {f.parallel.zero.stage: 3},
        {f.model.attn_impl: "sdpa"},
        {f.objective.rollout.sleep: False},
        {f.batch.eval_micro: 4},
        {f.batch.max_tokens_per_gpu: 8192},
        {f.loss.logits_materialised: "fused"},
        {f.offload.between_steps: "none"},
        {f.checkpointing.reentrant: False},
        {f.optimizer.kind: "adamw8bit"},
    ],
)
def test_what_megatron_in_roll_cannot_say(changes: dict[Any, Any]) -> None:
    run = _run()
    with pytest.raises(CannotEdit):
        run.dialect.express(changes, run.cells)


@pytest.mark.parametrize(
    ("made", "is_wrong"), [("", True), ('payload[name]["device_mapping"] = repr(gpus)\n', False)]
)
def test_what_a_program_of_the_project_replaces_is_no_wrong_value(
    made: str, is_wrong: bool
) -> None:
    text = f"num_gpus: 8\n{_SFT}".replace('"[0, 1, 2, 3, 4, 5, 6, 7]"', "${num_gpus}")
    run = run_of(
        {"sft.yaml": text, "run.py": f"def load(payload, name, gpus):\n    {made or 'pass'}\n"},
        "sft.yaml",
    )
    assert bool(run.wrong) is is_wrong
