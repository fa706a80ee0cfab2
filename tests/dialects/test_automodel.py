"""NeMo AutoModel's YAML, its lines, and what its recipes make of both."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fixing import fixed
from tests.linked import link, run_of

from oomlint.judgement.endings import endings_of
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_DENSE = """\
recipe: TrainFinetuneRecipeForNextTokenPrediction
step_scheduler:
  global_batch_size: 64
  local_batch_size: 4
  ckpt_every_steps: 100
  val_every_steps: 50
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: Qwen/Qwen3-8B
distributed:
  strategy: fsdp2
  dp_size: none
  tp_size: 1
  cp_size: 1
loss_fn:
  _target_: nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy
dataset:
  _target_: nemo_automodel.components.datasets.llm.chat_dataset.ChatDataset
  path_or_dataset_id: allenai/tulu-3-sft-mixture
  seq_length: 2048
packed_sequence:
  packed_sequence_size: 0
optimizer:
  _target_: torch.optim.Adam
  lr: 1.0e-5
"""
_EXPERTS = """\
recipe: BenchmarkingRecipeForNextTokenPrediction
benchmark:
  num_nodes: 32
step_scheduler:
  global_batch_size: 512
  local_batch_size: 8
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_config
  config:
    _target_: transformers.AutoConfig.from_pretrained
    pretrained_model_name_or_path: deepseek-ai/DeepSeek-V3
  backend:
    enable_fsdp_optimizations: true
distributed:
  strategy: fsdp2
  pp_size: 4
  ep_size: 64
  activation_checkpointing: true
  pipeline:
    pp_schedule: interleaved1f1b
    pp_microbatch_size: 1
dataset:
  _target_: nemo_automodel.components.datasets.llm.mock_iterable_dataset.MockIterableDataset
  seq_len: 4096
optimizer:
  _target_: torch.optim.Adam
"""
_HARDWARE = "8xH100-80GB"


def _run(text: str = _DENSE, **others: str) -> Run:
    return run_of({"train.yaml": text, **others}, hardware=_HARDWARE)


def _of(run: Run, *fields: Any) -> list[Any]:
    return [run.cells[field] for field in fields]


def test_what_is_kept_is_stepped_in_its_own_dtype():
    """FSDP2's policy computes in bf16 and reduces in fp32, whatever the weights are kept in."""
    fields = (f.precision.param, f.precision.grad, f.precision.optim_state, f.precision.master)
    assert _of(_run(), *fields) == ["bf16", "bf16", "bf16", "none"]
    wide = _DENSE.replace("Qwen3-8B\n", "Qwen3-8B\n  torch_dtype: float32\n")
    assert _of(_run(wide), *fields) == ["fp32", "fp32", "fp32", "none"]
    assert _of(_run(wide), f.precision.compute, f.precision.comm) == ["bf16", "fp32"]
    fused = _DENSE.replace(
        "torch.optim.Adam", "transformer_engine.pytorch.optimizers.fused_adam.FusedAdam"
    )
    assert _of(_run(fused), *fields) == ["bf16", "bf16", "fp32", "fp32"]


def test_the_dtype_of_a_checkpoint_that_nobody_knows_is_assumed():
    """``torch_dtype: auto`` keeps what the checkpoint has."""
    run = _run(_DENSE.replace("Qwen/Qwen3-8B", "somebody/unheard-of-8B"))
    assert _of(run, f.precision.param) == ["bf16"]
    assert run.cells.level(f.precision.param) >= Level.ASSUMED
    assert _run().cells.level(f.precision.param) < Level.ASSUMED


def test_accumulation_makes_up_the_global_batch():
    assert _of(_run(), f.batch.micro, f.batch.grad_accum, f.parallel.dp) == [4, 2, 8]


def test_a_batch_that_does_not_divide_ends_the_run():
    run = _run(_DENSE.replace("global_batch_size: 64", "global_batch_size: 40"))
    assert "global_batch_size 40" in " ".join(str(ending) for ending in endings_of(run))


@pytest.mark.parametrize(
    ("change", "waits"),
    [
        ("", True),
        ("  defer_fsdp_grad_sync: false\n", False),
    ],
)
def test_gradients_wait_whole_unless_they_are_told_not_to(change, waits):
    run = _run(_DENSE.replace("  cp_size: 1\n", f"  cp_size: 1\n{change}"))
    assert _of(run, f.parallel.fsdp.sync_every_micro)[0] is not waits


def test_a_model_with_experts_that_is_not_wrapped_whole_reduces_every_micro_batch():
    """``get_sync_ctx`` looks at the outermost module alone."""
    text = _EXPERTS.replace("pp_size: 4", "pp_size: 1").replace(
        "true\ndistributed", "false\ndistributed"
    )
    assert _of(_run(text), f.parallel.fsdp.sync_every_micro)[0] is False
    unwrapped = text.replace("  pipeline:", "  moe:\n    wrap_outer_model: false\n  pipeline:")
    assert _of(_run(unwrapped), f.parallel.fsdp.sync_every_micro)[0] is True


def test_nodes_are_those_that_the_degrees_need():
    """Of 4 stages and experts over 64 ranks: 256 ranks, as its authors run it."""
    assert _of(_run(_EXPERTS), f.parallel.world, f.parallel.pp, f.parallel.ep) == [256, 4, 64]
    told = _EXPERTS.replace("num_nodes: 32", "num_nodes: 64").replace("size: 512", "size: 1024")
    assert _of(_run(told), f.parallel.world)[0] == 512
    odd = _EXPERTS.replace("num_nodes: 32", "num_nodes: 40")
    assert _of(_run(odd), f.parallel.world)[0] == 256
    assert _of(_run(), f.parallel.nodes)[0] == 1


def test_a_pipeline_takes_its_own_micro_batches():
    assert _of(_run(_EXPERTS), f.batch.micro, f.seq.max_len, f.seq.pad) == [1, 4096, "max_len"]


def test_experts_weigh_within_their_activation():
    assert _of(_run(_EXPERTS), f.model.experts_impl)[0] == "weighted"
    assert _of(_run(), f.model.experts_impl)[0] is None


@pytest.mark.parametrize(
    ("said", "targets"),
    [
        ('target_modules: "*_proj"', "all_linear"),
        ("match_all_linear: true", "all_linear"),
        ("alpha: 32", "all_linear"),
        ('target_modules: ["*.q_proj", "*.v_proj"]', ("q_proj", "v_proj")),
    ],
)
def test_patterns_name_layers(said, targets):
    peft = (
        f"peft:\n  _target_: nemo_automodel.components._peft.lora.PeftConfig\n  dim: 16\n  {said}\n"
    )
    run = _run(_DENSE + peft)
    assert _of(run, f.trainable.method, f.trainable.r, f.trainable.targets) == ["lora", 16, targets]


def test_the_fused_loss_makes_no_logits():
    fused = _DENSE.replace("masked_ce.MaskedCrossEntropy", "linear_ce.FusedLinearCrossEntropy")
    assert _of(_run(), f.loss.logits_materialised)[0] == "full"
    assert _of(_run(fused), f.loss.logits_materialised)[0] == "fused"


@pytest.mark.parametrize(
    "line",
    [
        "automodel train.yaml --nproc-per-node 4 --model.pretrained_model_name_or_path Qwen/Qwen3-4B",
        "automodel finetune llm -c train.yaml --nproc-per-node 4 --model.pretrained_model_name_or_path Qwen/Qwen3-4B",
        "torchrun --nproc-per-node=4 examples/llm_finetune/finetune.py -c train.yaml --model.pretrained_model_name_or_path Qwen/Qwen3-4B",
        "torchrun --nproc-per-node 4 -m nemo_automodel.cli.app train.yaml --model.pretrained_model_name_or_path=Qwen/Qwen3-4B",
    ],
)
def test_lines_lay_their_options_over_the_file(line):
    run = link({"train.yaml": _DENSE, "run.sh": line + "\n"}, hardware=_HARDWARE).runs[0]
    assert _of(run, f.model.id, f.parallel.world, f.batch.micro) == ["Qwen/Qwen3-4B", 4, 4]


def test_sections_of_other_recipes_are_legal():
    more = "kd_loss_fn: {_target_: our.loss}\n_validation_dataset: {split: test}\nneftune: {noise_alpha: 5}\n"
    assert not _run(_DENSE + more).stray


def test_other_recipes_are_no_runs():
    draft = _DENSE.replace("TrainFinetuneRecipeForNextTokenPrediction", "TrainEagle3Recipe")
    assert not link({"train.yaml": draft}).runs


def test_a_smaller_micro_batch_keeps_the_global_one():
    after = fixed(_run, _DENSE, {f.batch.micro: 1, f.batch.grad_accum: 8})
    assert "local_batch_size: 1" in after
    assert "global_batch_size: 64" in after


def test_checkpointing_is_a_switch():
    assert "  activation_checkpointing: true\n" in fixed(
        _run, _DENSE, {f.checkpointing.mode: "full"}
    )


def test_flex_attention_is_itself():
    flex = _DENSE.replace("Qwen/Qwen3-8B\n", "Qwen/Qwen3-8B\n  backend: {attn: flex}\n")
    assert _of(_run(flex), f.model.attn_impl) == ["flex"]
