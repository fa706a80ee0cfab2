"""NeMo-RL's chains of YAML, what their values refer to, its backends, and its launch lines."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fixing import fixed
from tests.linked import link, report_of, run_of

from oomlint.errors import CannotEdit
from oomlint.fix.edits import make_fix
from oomlint.linting.rule import Applicability, Proposal, SetFields, Severity
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_BASE = """\
grpo:
  num_prompts_per_step: 32
  num_generations_per_prompt: 16
  max_num_steps: 1000
  val_period: 10
loss_fn:
  reference_policy_kl_penalty: 0.01
checkpointing:
  enabled: true
  keep_top_k: 3
  save_period: 10
policy:
  model_name: "Qwen/Qwen2.5-1.5B"
  tokenizer:
    name: ${policy.model_name}
  train_global_batch_size: 512
  train_micro_batch_size: 4
  logprob_batch_size: ${policy.train_micro_batch_size}
  max_total_sequence_length: 512
  precision: "bfloat16"
  dtensor_cfg:
    _v2: true
    enabled: true
    cpu_offload: False
    activation_checkpointing: false
    tensor_parallel_size: 1
    context_parallel_size: 1
    lora_cfg:
      enabled: False
      match_all_linear: true
      dim: 8
      alpha: 32
  megatron_cfg:
    enabled: false
    activation_checkpointing: false
    tensor_model_parallel_size: 1
    pipeline_model_parallel_size: 1
    context_parallel_size: 1
    optimizer:
      optimizer: "adam"
      use_distributed_optimizer: true
      use_precision_aware_optimizer: true
      optimizer_cpu_offload: false
      optimizer_offload_fraction: 0.0
    distributed_data_parallel_config:
      grad_reduce_in_fp32: false
  dynamic_batching:
    enabled: false
    train_mb_tokens: ${mul:${policy.max_total_sequence_length}, ${policy.train_micro_batch_size}}
  sequence_packing:
    enabled: true
    train_mb_tokens: ${mul:${..max_total_sequence_length}, ${..train_micro_batch_size}}
  optimizer:
    name: "torch.optim.AdamW"
    kwargs: {lr: 5.0e-6, foreach: False, fused: False}
  generation:
    backend: "vllm"
    max_new_tokens: ${policy.max_total_sequence_length}
    vllm_cfg:
      tensor_parallel_size: 1
      gpu_memory_utilization: 0.6
      max_model_len: ${policy.max_total_sequence_length}
    colocated:
      enabled: true
      resources: {gpus_per_node: null, num_nodes: null}
data:
  num_workers: 1
cluster:
  gpus_per_node: 1
  num_nodes: 1
"""
_LEAF = """\
defaults: ../base.yaml
policy:
  model_name: Qwen/Qwen2.5-7B
  train_micro_batch_size: 2
  max_total_sequence_length: 4096
cluster:
  gpus_per_node: 8
"""
_NAMES = ("configs/recipes/leaf.yaml", "configs/base.yaml")


def _run(leaf: str = _LEAF, base: str = _BASE, **more: str) -> Run:
    files = {**dict(zip(_NAMES, (leaf, base), strict=True)), **more}
    run = run_of(files, _NAMES[0])
    assert run.framework == "nemo-rl"
    return run


def _with(section: str, leaf: str = _LEAF) -> Run:
    return _run(leaf.replace("policy:\n", f"policy:\n{section}"))


def test_megatron_builds_the_layers_of_multi_token_prediction_that_it_is_told() -> None:
    of_megatron = (
        "  dtensor_cfg: {enabled: false}\n  megatron_cfg: {enabled: true, mtp_num_layers: %d}\n"
    )
    assert _with(of_megatron % 2).plan.model.mtp_layers == 2
    assert _with(of_megatron % 0).plan.model.mtp_layers is None
    automodel = "  megatron_cfg: {enabled: false, mtp_num_layers: 2}\n"
    assert _with(automodel).plan.model.mtp_layers is None


def test_a_chain() -> None:
    run = _run()
    plan = run.plan
    assert not run.stray
    assert set(run.files) == set(_NAMES)
    assert plan.model.id == "Qwen/Qwen2.5-7B"
    assert (plan.parallel.backend, plan.parallel.world, plan.parallel.fsdp.version) == (
        "fsdp2",
        8,
        2,
    )
    assert (plan.precision.param, plan.precision.compute, plan.precision.optim_state) == (
        "fp32",
        "bf16",
        "fp32",
    )
    assert (plan.objective.kind, plan.objective.ref_model) == ("grpo", "precomputed")
    assert (plan.batch.micro, plan.batch.grad_accum, plan.batch.global_) == (2, 32, 512)
    assert (plan.seq.max_len, plan.seq.packing, plan.checkpointing.mode) == (4096, "varlen", "none")
    assert (plan.save.every, plan.save.keep, plan.eval.every, plan.data.workers) == (10, 3, 10, 1)
    rollout = plan.objective.rollout
    assert (rollout.engine, rollout.sleep, rollout.gpu_mem_util) == ("vllm_colocate", True, 0.6)
    assert plan.offload.idle == "cpu"


def test_values_refer_to_what_keys_hold_in_the_end() -> None:
    plan = _run().plan
    assert plan.objective.rollout.rollout_micro_batch == 2
    assert plan.objective.rollout.max_model_len == 4096
    assert plan.batch.max_tokens_per_gpu == 8192  # mul:${..a}, ${..b}


def test_each_value_keeps_its_file() -> None:
    run = _run()
    places = {
        field: run.settings[field].origin.value_location
        for field in (f.seq.max_len, f.objective.rollout.n)
    }
    assert {field: place.path for field, place in places.items() if place is not None} == {
        f.seq.max_len: _NAMES[0],
        f.objective.rollout.n: _NAMES[1],
    }


def test_the_last_of_several_parents_counts() -> None:
    leaf = _LEAF.replace(
        "defaults: ../base.yaml", "defaults:\n  - ../base.yaml\n  - over.yaml"
    ).replace("  train_micro_batch_size: 2\n", "")
    over = "defaults: ../base.yaml\npolicy:\n  train_micro_batch_size: 3\n"
    run = _run(leaf, **{"configs/recipes/over.yaml": over})
    assert run.plan.batch.micro == 3


def test_a_section_that_takes_the_place_of_another() -> None:
    run = _with("  generation:\n    _override_: true\n    backend: vllm\n")
    assert run.plan.objective.rollout.gpu_mem_util is None
    assert _with("  optimizer: null\n").plan.optimizer.kind is None
    assert _with("  logprob_batch_size: null\n").plan.objective.rollout.rollout_micro_batch is None
    assert _with("  precision: ???\n").plan.precision.compute == "bf16"


def test_what_nobody_can_tell_is_unknown() -> None:
    assert (
        _with("  logprob_batch_size: ${oc.env:ROWS}\n").plan.objective.rollout.rollout_micro_batch
        is None
    )
    circle = "  logprob_batch_size: ${policy.logprob_batch_size}\n"
    assert _with(circle).plan.objective.rollout.rollout_micro_batch is None
    assert (
        _with("  logprob_batch_size: ${div:1, 0}\n").plan.objective.rollout.rollout_micro_batch
        is None
    )


def test_megatron_has_keys_of_its_own() -> None:
    section = (
        "  dtensor_cfg: {enabled: false}\n  megatron_cfg:\n    enabled: true\n    activation_checkpointing: true\n"
        "    tensor_model_parallel_size: 2\n    pipeline_model_parallel_size: 2\n    sequence_parallel: true\n"
    )
    plan = _with(section).plan
    assert (plan.parallel.backend, plan.parallel.tp, plan.parallel.pp, plan.parallel.dp) == (
        "megatron",
        2,
        2,
        2,
    )
    assert (plan.precision.param, plan.precision.grad, plan.precision.master) == (
        "bf16",
        "bf16",
        "bf16",
    )
    assert (plan.checkpointing.mode, plan.checkpointing.source) == ("full", "megatron")
    assert plan.loss.algorithm == "log_softmax"


def test_a_backend_of_a_fork_is_none_of_its() -> None:
    base = _BASE.replace("    _v2: true\n    enabled: true", "    enabled: false")
    assert not link({"c.yaml": base}).runs
    assert link({"c.yaml": _BASE}).runs


def test_a_student_learns_from_the_most_probable_words() -> None:
    base = _BASE.replace("grpo:\n", "distillation:\n")
    plan = _run(base=base).plan
    assert (plan.objective.kind, plan.loss.algorithm) == ("distill", "log_softmax")


def test_an_engine_of_a_fork_is_no_mistake() -> None:
    run = _with("  generation: {backend: vllm_http}\n")
    assert not run.wrong
    assert run.plan.objective.rollout.engine == "vllm_colocate"


def test_engines_on_cards_of_their_own() -> None:
    apart = (
        "  generation:\n    colocated:\n      enabled: false\n      resources: {gpus_per_node: 2}\n"
    )
    plan = _with(apart).plan
    assert (plan.parallel.gpus_per_node, plan.objective.rollout.engine) == (6, "vllm_server")
    assert plan.offload.idle == "none"
    leaf = _LEAF.replace("gpus_per_node: 8", "gpus_per_node: 8\n  num_nodes: 3")
    nodes = _with(apart.replace("gpus_per_node: 2", "num_nodes: 1"), leaf).plan
    assert (nodes.parallel.nodes, nodes.parallel.world) == (2, 16)


def test_adapters_need_the_newer_worker() -> None:
    plan = _with("  dtensor_cfg: {lora_cfg: {enabled: true, dim: 16}}\n").plan
    assert (plan.trainable.method, plan.trainable.r, plan.trainable.targets) == (
        "lora",
        16,
        "all_linear",
    )
    old = _with("  dtensor_cfg: {_v2: false}\n")
    with pytest.raises(CannotEdit):
        old.dialect.express({f.trainable.method: "lora"}, old.cells)


def test_pairs_have_a_reference_always() -> None:
    leaf = _LEAF.replace(
        "policy:\n", "dpo: {max_num_steps: 5, val_micro_batch_size: 2}\npolicy:\n", 1
    )
    base = _BASE.replace("grpo:", "other:")
    plan = _run(leaf, base).plan
    assert (plan.objective.kind, plan.objective.ref_model, plan.batch.eval_micro) == (
        "dpo",
        "precomputed",
        2,
    )
    assert plan.objective.rollout.engine == "none"


def test_a_launch_line_over_a_chain() -> None:
    line = (
        "uv run ./examples/run_grpo.py --config configs/recipes/leaf.yaml cluster.num_nodes=2"
        " ++policy.train_micro_batch_size=1 policy.optimizer=null\n"
    )
    run = run_of({**dict(zip(_NAMES, (_LEAF, _BASE), strict=True)), "run.sh": line})
    assert run.framework == "nemo-rl"
    assert (run.plan.parallel.world, run.plan.batch.micro) == (16, 1)
    assert run.plan.objective.rollout.rollout_micro_batch == 1
    assert run.plan.optimizer.kind is None


def test_a_launch_line_without_a_config() -> None:
    files = {
        "examples/configs/grpo_math_1B.yaml": _BASE,
        "go.sh": "uv run examples/run_grpo.py policy.precision=float16\n",
    }
    run = run_of(files)
    assert (run.plan.batch.micro, run.plan.precision.compute) == (4, "fp16")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({f.batch.micro: 1}, "train_micro_batch_size: 1"),
        ({f.checkpointing.mode: "full"}, "activation_checkpointing: true"),
        ({f.parallel.tp: 2}, "tensor_parallel_size: 2"),
        ({f.offload.optimizer: "cpu", f.offload.params: "cpu"}, "cpu_offload: true"),
        ({f.objective.rollout.gpu_mem_util: 0.4}, "gpu_memory_utilization: 0.4"),
        ({f.seq.max_len: 2048}, "max_total_sequence_length: 2048"),
        ({f.batch.max_tokens_per_gpu: 4096}, "train_mb_tokens: 4096"),
        ({f.trainable.method: "lora"}, "lora_cfg"),
    ],
)
def test_a_wish_is_written_to_the_end_of_the_chain(changes: dict[Any, Any], expected: str) -> None:
    text = fixed(_run, _LEAF, changes)
    assert expected in text
    assert text.startswith("defaults: ../base.yaml\n")


def test_a_section_that_the_end_has_takes_another_key() -> None:
    leaf = _LEAF + "  num_nodes: 1\n"
    text = fixed(
        _run,
        leaf.replace("policy:\n", "policy:\n  dtensor_cfg:\n    cpu_offload: false\n"),
        {f.checkpointing.mode: "full"},
    )
    assert "    cpu_offload: false\n    activation_checkpointing: true\n" in text


def test_what_it_cannot_say() -> None:
    run = _run()
    for field, value in (
        (f.batch.max_tokens_per_gpu, 1024), (f.quant.method, "bnb4"), (f.parallel.zero.stage, 3),
        (f.offload.idle, "none"), (f.batch.eval_micro, 4), (f.loss.logits_materialised, "fused"),
        (f.parallel.pp, 2), (f.optimizer.kind, "adamw8bit"),
    ):  # fmt: skip
        with pytest.raises(CannotEdit):
            run.dialect.express({field: value}, run.cells)


def test_a_command_s_word_is_changed_where_it_stands() -> None:
    line = "uv run examples/run_grpo.py --config configs/recipes/leaf.yaml policy.train_micro_batch_size=8\n"
    run = run_of({**dict(zip(_NAMES, (_LEAF, _BASE), strict=True)), "run.sh": line})
    wish = SetFields({f.batch.micro: 4})
    fix = make_fix(run, Proposal("title", (wish,), Applicability.SAFE), None)
    assert fix is not None
    assert fix.reason is None, fix.reason
    assert {edit.path for edit in fix.edits} == {"run.sh"}


def test_evaluations_are_none_of_its_runs() -> None:
    assert not link(
        {"eval.yaml": "defaults: eval.yaml\ndata:\n  num_workers: 1\n"}, "eval.yaml"
    ).runs
    hydra = "defaults:\n  - model: llama\n  - _self_\ndata:\n  num_workers: 1\n"
    assert not link({"conf.yaml": hydra}).runs


def test_words_over_a_config_that_nobody_names_are_no_run() -> None:
    """A suite's script takes its config from whoever starts it: of what the words change nothing is known."""
    line = (
        "uv run examples/run_grpo_math.py --config {} policy.model_name=deepseek-ai/DeepSeek-V3\n"
    )
    assert not link({"run.sh": line.format("$CONFIG_PATH")}).runs
    files = {"run.sh": line.format("grpo.yaml"), "grpo.yaml": "policy:\n  dtensor_cfg: {}\n"}
    assert link(files, "run.sh").runs


def test_ray_starts_supervised_training_as_well() -> None:
    base = _BASE.replace("grpo:\n", "sft:\n").replace(
        "loss_fn:\n  reference_policy_kl_penalty: 0.01\n", ""
    )
    files = {
        **dict(zip(_NAMES, (_LEAF, base), strict=True)),
        "run.sh": f"python examples/run_sft.py --config {_NAMES[0]}\n",
    }
    told = report_of(files, hardware="4xA100-80GB").diagnoses
    assert [each.finding.message for each in told if each.rule.code == "OOM706"] == [
        "Ray is asked for 8 workers a node on its 4 GPUs"
    ]


_STARTS = f"python examples/run_grpo.py --config {_NAMES[1]}\n"


@pytest.mark.parametrize(
    ("more", "explicit", "is_told"),
    [({}, (), False), ({"run.sh": _STARTS}, (), True), ({}, (_NAMES[1],), True)],
    ids=["nothing starts it", "a command starts it", "the user names it"],
)
def test_a_config_that_another_begins_with_is_no_run_of_its_own(
    more: dict[str, str], explicit: tuple[str, ...], is_told: bool
) -> None:
    files = {**dict(zip(_NAMES, (_LEAF, _BASE), strict=True)), **more}
    told = report_of(files, hardware="8xRTX-4090-24GB", explicit=explicit).diagnoses
    of_base = {
        each.severity
        for each in told
        if each.rule.code == "OOM105" and each.run is not None and _NAMES[0] not in each.run.files
    }
    assert of_base
    assert (max(of_base) > Severity.INFO) is is_told
