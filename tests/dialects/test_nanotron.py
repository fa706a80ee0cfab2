"""nanotron's YAML: its model, its ranks, sums in fp32, and how many micro batches wait for backward."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.fixing import fixed
from tests.linked import link, report_of, run_of

from oomlint.dialects.common.fields import shared
from oomlint.errors import CannotEdit
from oomlint.judgement import cards_missing
from oomlint.linting.rule import Severity
from oomlint.memory import estimate
from oomlint.models.count import count_parameters
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_YAML = """\
general:
  project: debug
  run: tiny_llama_%date_%jobid
checkpoints:
  checkpoint_interval: 1000
  checkpoints_path: checkpoints
data_stages:
- data: {dataset: null, num_loading_workers: 1, seed: 42}
  name: Stable Training Stage
  start_training_step: 1
model:
  ddp_bucket_cap_mb: 25
  dtype: bfloat16
  init_method: {std: 0.025}
  make_vocab_size_divisible_by: 64
  model_config:
    is_llama_config: true
    hidden_act: silu
    hidden_size: 2048
    intermediate_size: 11008
    max_position_embeddings: 4096
    num_attention_heads: 16
    num_hidden_layers: 28
    num_key_value_heads: 4
    tie_word_embeddings: true
    vocab_size: 50257
optimizer:
  accumulate_grad_in_fp32: true
  clip_grad: 1.0
  learning_rate_scheduler: {learning_rate: 0.0003, lr_warmup_steps: 2}
  optimizer_factory:
    adam_beta1: 0.9
    adam_beta2: 0.95
    adam_eps: 1.0e-08
    name: adamW
    torch_adam_is_fused: true
  weight_decay: 0.01
  zero_stage: 0
parallelism:
  dp: 4
  pp: 1
  pp_engine: 1f1b  # one forward, one backward
  tp: 2
  tp_mode: REDUCE_SCATTER
tokens:
  batch_accumulation_per_replica: 8
  micro_batch_size: 4
  sequence_length: 4096
  train_steps: 2000
"""


def _run(text: str = _YAML, hardware: str = "8xA100-80GB") -> Run:
    run = run_of({"config.yaml": text}, "config.yaml", hardware=hardware)
    assert run.framework == "nanotron"
    return run


def _backward(text: str) -> int:
    gpu = estimate(_run(text).plan).gpu
    assert gpu is not None
    return gpu.phases["backward"]


def test_a_whole_config() -> None:
    run = _run()
    plan, dims = run.plan, run.plan.model.dims
    assert not run.stray
    assert dims is not None
    # 50257 to a multiple of 64 on each of two ranks.
    assert (dims.arch, dims.layers, dims.ffn, dims.vocab) == ("llama", 28, 11008, 50304)
    assert (plan.parallel.world, plan.parallel.tp, plan.parallel.dp, plan.parallel.sp) == (
        8,
        2,
        4,
        True,
    )
    assert (plan.batch.micro, plan.batch.grad_accum, plan.batch.global_) == (4, 8, 128)
    assert (plan.parallel.backend, plan.checkpointing.mode) == ("ddp", "none")
    assert (plan.precision.param, plan.precision.grad, plan.precision.grad_accum) == (
        "bf16",
        "bf16",
        "fp32",
    )
    assert (plan.precision.master, plan.precision.optim_state) == ("fp32", "fp32")
    assert (plan.save.every, plan.save.keep, plan.eval.enabled) == (1000, "all", False)
    assert plan.model.from_scratch is True


def test_sums_in_fp32_take_a_buffer_and_fp32_weights() -> None:
    narrow = _run(_YAML.replace("fp32: true", "fp32: false")).plan
    assert (narrow.precision.grad_accum, narrow.precision.master) == (None, "none")
    assert narrow.precision.optim_state == "bf16"
    dims = _run().plan.model.dims
    assert dims is not None
    wide, thin = _backward(_YAML), _backward(_YAML.replace("fp32: true", "fp32: false"))
    # 4 bytes of sums, 4 of weights and 4 more of Adam's states, on each of two ranks.
    assert wide - thin > 11 * (dims.params_total or 1_700_000_000) / 2


def test_all_forward_passes_first_keep_all_micro_batches() -> None:
    """On one stage too, and without the key."""
    one = _backward(_YAML)
    for later in (_YAML.replace("1f1b", "afab"), _YAML.replace("  pp_engine: 1f1b", "  #")):
        assert _backward(later) > 4 * one
    single = _YAML.replace("per_replica: 8", "per_replica: 1")
    assert _backward(single.replace("1f1b", "afab")) == _backward(single)


@pytest.mark.parametrize("stage", [1, 3])
def test_every_stage_above_0_is_1(stage: int) -> None:
    plan = _run(_YAML.replace("zero_stage: 0", f"zero_stage: {stage}")).plan
    assert (plan.parallel.backend, plan.parallel.zero.stage) == ("zero", 1)


def test_one_replica_needs_no_ddp() -> None:
    assert _run(_YAML.replace("dp: 4", "dp: 1")).plan.parallel.backend == "none"


def test_experts_and_what_every_token_goes_through() -> None:
    moe = "    moe_config: {num_experts: 16, top_k: 4, enable_shared_expert: true}\n"
    text = _YAML.replace("    is_llama_config: true\n", f"    is_qwen2_config: true\n{moe}")
    dims = _run(text).plan.model.dims
    assert dims is not None
    assert dims.moe is not None
    assert (dims.moe.experts, dims.moe.topk, dims.moe.moe_ffn, dims.moe.shared_ffn) == (
        16,
        4,
        1408,
        5632,
    )
    # nanotron/models/qwen.py:183: queries, keys and values have a bias only where attention_bias asks for one.
    plain = count_parameters(dims)
    biased = count_parameters(replace(dims, attn_bias=True))
    assert plain is not None
    assert biased is not None
    assert biased.total - plain.total == 28 * 128 * (16 + 2 * 4)


def test_models_of_its_examples_are_not_its_own() -> None:
    text = _YAML.replace("is_llama_config: true", "is_mamba_config: true")
    assert not link({"c.yaml": text}).runs


def test_a_vocabulary_that_the_data_has() -> None:
    assert _run(_YAML.replace("vocab_size: 50257", "vocab_size: -1")).plan.model.dims is None


def test_unknown_keys_are_refused_at_any_depth() -> None:
    (stray,) = _run(_YAML.replace("  tp: 2\n", "  tp: 2\n  recompute_layers: true\n")).stray
    assert stray.path == "parallelism.recompute_layers"
    assert stray.block.table.refuses(stray.path)


def test_keys_of_older_releases_are_no_mistakes() -> None:
    text = _YAML.replace("  tp: 2\n", "  tp: 2\n  moe_layer_recompute: false\n")
    assert not _run(text).stray


def test_a_launch_line() -> None:
    line = "torchrun --nproc_per_node=8 run_train.py --config-file config.yaml\n"
    run = run_of({"run.sh": line, "config.yaml": _YAML})
    assert run.framework == "nanotron"
    assert set(run.files) == {"run.sh", "config.yaml"}
    assert run.plan.parallel.world == 8
    # torchtitan's script has the same name.
    assert link({"run.sh": line}).recognised.get("run.sh") == "nanotron"


# -- fixes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({f.batch.micro: 2, f.batch.grad_accum: 16}, "micro_batch_size: 2"),
        ({f.checkpointing.mode: "full"}, "recompute_layer: true"),
        ({f.parallel.tp: 4}, "  dp: 2\n"),
        ({f.parallel.pp: 2}, "  dp: 2\n"),
        ({f.seq.max_len: 2048}, "sequence_length: 2048"),
        ({f.parallel.sp: False}, "tp_mode: ALL_REDUCE"),
        ({f.save.every: 500}, "checkpoint_interval: 500"),
        ({f.parallel.pp_schedule: "afab"}, "pp_engine: afab"),
    ],
)
def test_wishes(changes: dict[Any, Any], line: str) -> None:
    after = fixed(_run, _YAML, changes)
    assert line in after
    assert "# one forward" in after


@pytest.mark.parametrize(
    "changes",
    [
        {f.parallel.tp: 8},
        {f.parallel.tp: 3},
        {f.parallel.zero.stage: 1},
        {f.parallel.zero.stage: 3},
        {f.offload.optimizer: "cpu"},
        {f.quant.method: "bnb4"},
        {f.trainable.method: "lora"},
        {f.optimizer.kind: "adamw8bit"},
        {f.model.attn_impl: "sdpa"},
        {f.checkpointing.mode: "selective_op"},
        {f.loss.logits_materialised: "fused"},
        {f.save.save_only_model: True},
    ],
)
def test_what_nanotron_cannot_say(changes: dict[Any, Any]) -> None:
    run = _run()
    with pytest.raises(CannotEdit):
        run.dialect.express(changes, run.cells)


def test_a_config_that_is_not_here_leaves_the_model_open() -> None:
    line = "torchrun --nproc_per_node=8 run_train.py --config-file missing.yaml"
    (run,) = link({"go.sh": f"{line}\n"}).runs
    assert run.plan.model.dims is None


# -- how many processes ----------------------------------------------------------------------------


def test_as_many_processes_as_its_degrees_ask_for() -> None:
    """Eight of one node, where no file speaks of several: a node of four has no card for the rest."""
    run = _run(hardware="4xA100-80GB")
    assert (run.plan.parallel.gpus_per_node, run.plan.parallel.nodes) == (8, 1)
    assert cards_missing(run) == 4
    report = report_of({"config.yaml": _YAML}, hardware="4xA100-80GB")
    (found,) = (each for each in report.diagnoses if each.severity is Severity.ERROR)
    assert found.rule.code == "OOM706"
    assert "unless several nodes share them, which no file says" in found.finding.details


def test_more_processes_than_a_usual_node_has_are_those_of_several() -> None:
    run = _run(_YAML.replace("dp: 4", "dp: 16"), hardware="4xA100-80GB")
    assert (run.plan.parallel.gpus_per_node, run.plan.parallel.nodes) == (4, 8)
    assert not cards_missing(run)


def test_processes_of_the_nodes_that_a_launch_line_names() -> None:
    line = "torchrun --nnodes=2 --nproc_per_node=4 run_train.py --config-file config.yaml\n"
    run = run_of({"run.sh": line, "config.yaml": _YAML}, hardware="4xA100-80GB")
    assert (run.plan.parallel.gpus_per_node, run.plan.parallel.nodes) == (4, 2)
    assert not cards_missing(run)
    assert run.cells[shared.refused] is None


def test_another_number_of_processes_than_its_degrees_ask_for() -> None:
    line = "torchrun --nproc_per_node=4 run_train.py --config-file config.yaml\n"
    run = run_of({"run.sh": line, "config.yaml": _YAML}, hardware="4xA100-80GB")
    assert "8 processes, and 4 are started" in str(run.cells[shared.refused])


def test_the_line_that_starts_another_config_says_nothing_of_how_many_there_are() -> None:
    line = "torchrun --nproc_per_node=4 run_train.py --config-file half.yaml\n"
    half = _YAML.replace("dp: 4", "dp: 2")
    files = {"run.sh": line, "half.yaml": half, "config.yaml": _YAML}
    worlds = {run.name: run.plan.parallel.world for run in link(files).runs}
    assert sorted(worlds.values()) == [4, 8]
    assert all(run.cells[shared.refused] is None for run in link(files).runs)
