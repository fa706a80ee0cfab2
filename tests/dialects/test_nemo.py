"""NeMo 1's Megatron YAML and the overrides of its scripts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fixing import fixed
from tests.linked import link

from oomlint.errors import CannotEdit
from oomlint.fix.edits import make_fix
from oomlint.linting.rule import Applicability, Proposal, SetFields
from oomlint.runs.run import Run

_YAML = """\
name: small_gpt
trainer:
  devices: 8
  num_nodes: 2
  precision: bf16
  max_steps: 1000
  val_check_interval: 200
  limit_val_batches: 10
exp_manager:
  exp_dir: /results
  create_checkpoint_callback: True
  checkpoint_callback_params:
    save_top_k: 5
model:
  micro_batch_size: 2  # limited by memory
  global_batch_size: 64
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 1
  encoder_seq_length: 4096
  max_position_embeddings: ${.encoder_seq_length}
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 11008
  num_attention_heads: 32
  normalization: rmsnorm
  activation: fast-swiglu
  bias: False
  share_embeddings_and_output_weights: False
  megatron_amp_O2: True
  sequence_parallel: True
  transformer_engine: True
  activations_checkpoint_granularity: null
  activations_checkpoint_method: null
  activations_checkpoint_num_layers: null
  tokenizer:
    library: sentencepiece
    type: Llama2Tokenizer
  data:
    seq_length: ${model.encoder_seq_length}
    num_workers: 4
  optim:
    name: distributed_fused_adam
    lr: 2e-4
"""
_TUNING = """\
trainer:
  devices: 1
  precision: 16
model:
  restore_from_path: ???
  micro_batch_size: 4
  global_batch_size: 128
  megatron_amp_O2: False
  peft:
    peft_scheme: lora
    lora_tuning:
      adapter_dim: 16
  data:
    train_ds:
      max_seq_length: 2048
      num_workers: 0
  optim:
    name: fused_adam
"""


def _run(text: str = _YAML, **others: str) -> Run:
    (run,) = link({"conf/a.yaml": text, **others}).runs
    assert run.framework == "nemo"
    return run


# -- YAML --------------------------------------------------------------------------------------


def test_a_pretraining_config() -> None:
    plan = _run().plan
    dims = plan.model.dims
    assert dims is not None
    assert (dims.layers, dims.ffn, dims.vocab, dims.act, dims.norm) == (
        32, 11008, 32000, "swiglu", "rms",
    )  # fmt: skip
    assert dims.tie_embeddings is False
    assert (plan.parallel.world, plan.parallel.dp, plan.parallel.tp) == (16, 8, 2)
    assert plan.parallel.sp is True
    assert (plan.batch.micro, plan.batch.grad_accum, plan.batch.global_) == (2, 4, 64)
    assert plan.seq.max_len == 4096
    assert plan.model.attn_impl == "flash2"
    assert plan.checkpointing.mode == "none"
    assert (plan.eval.enabled, plan.eval.every) == (True, 200)
    assert (plan.save.strategy, plan.save.keep, plan.save.every) == ("steps", 5, 200)
    assert plan.data.workers == 4


def test_o2_keeps_half_precision_weights_and_a_copy() -> None:
    plan = _run().plan
    assert plan.parallel.backend == "megatron"
    assert plan.parallel.megatron.dist_optimizer is True
    # The distributed Adam stores the lower half of each bf16 weight's copy only.
    assert (plan.precision.param, plan.precision.master) == ("bf16", "bf16")
    plain = _run(_YAML.replace("distributed_fused_adam", "fused_adam")).plan
    assert plain.parallel.megatron.dist_optimizer is False
    assert (plain.precision.param, plain.precision.master) == ("bf16", "fp32")


def test_without_o2_weights_are_fp32_under_autocast() -> None:
    text = _YAML.replace("megatron_amp_O2: True", "megatron_amp_O2: False")
    plan = _run(text.replace("distributed_fused_adam", "fused_adam")).plan
    assert plan.parallel.backend == "ddp"
    assert (plan.precision.param, plan.precision.compute) == ("fp32", "bf16")
    assert plan.precision.autocast is True
    assert plan.precision.master == "none"


def test_the_loss_is_megatron_cores_whoever_reduces_gradients() -> None:
    """Of bf16 logits it keeps an fp32 copy, whose softmax it makes in place: 6 bytes each."""
    text = _YAML.replace("megatron_amp_O2: True", "megatron_amp_O2: False")
    run = _run(text.replace("distributed_fused_adam", "fused_adam"))
    plan, dims = run.plan, run.plan.model.dims
    assert plan.parallel.backend == "ddp"
    assert dims is not None
    assert dims.vocab is not None
    logits = run.estimate.gpu.components["logits"]
    tokens = plan.batch.micro * plan.seq.max_len
    assert logits == pytest.approx(6 * tokens * dims.vocab / plan.parallel.tp, rel=0.02)


def test_fsdp() -> None:
    text = _YAML.replace("megatron_amp_O2: True", "fsdp: True\n  fsdp_sharding_strategy: grad")
    plan = _run(text.replace("distributed_fused_adam", "fused_adam")).plan
    assert (plan.parallel.backend, plan.parallel.fsdp.strategy) == ("fsdp1", "grad_op")
    assert plan.save.full_gather is True


@pytest.mark.parametrize(
    ("keys", "mode", "every"),
    [
        ("activations_checkpoint_granularity: selective", "selective_op", None),
        ("activations_checkpoint_granularity: full\n  activations_checkpoint_method: uniform\n  activations_checkpoint_num_layers: 1", "full", None),
        ("activations_checkpoint_granularity: full\n  activations_checkpoint_method: block\n  activations_checkpoint_num_layers: 16", "block_partial", 2),
        ("activations_checkpoint_method: uniform", "full", None),
    ],
)  # fmt: skip
def test_recomputation(keys: str, mode: str, every: int | None) -> None:
    lines = [line for line in _YAML.splitlines() if "activations_checkpoint" not in line]
    text = "\n".join(lines).replace("  sequence_parallel", f"  {keys}\n  sequence_parallel")
    checkpointing = _run(text).plan.checkpointing
    assert (checkpointing.mode, checkpointing.every_n) == (mode, every)


def test_a_method_without_granularity_recomputes_nothing() -> None:
    text = _YAML.replace("checkpoint_method: null", "checkpoint_method: uniform")
    assert _run(text).plan.checkpointing.mode == "none"


def test_attention_of_the_old_kind_keeps_scores() -> None:
    text = _YAML.replace("transformer_engine: True", "transformer_engine: False")
    assert _run(text).plan.model.attn_impl == "eager"
    flash = text.replace("sequence_parallel", "use_flash_attention: True\n  sequence_parallel")
    assert _run(flash).plan.model.attn_impl == "flash2"


def test_adapters_on_a_restored_model() -> None:
    text = _TUNING.replace("???", "/models/llama-2-7b.nemo")
    plan = _run(text).plan
    assert plan.model.id == "llama-2-7b"
    assert plan.model.dims is not None
    assert plan.model.dims.layers == 32
    assert (plan.trainable.method, plan.trainable.r) == ("lora", 16)
    assert plan.trainable.targets == ("q_proj", "k_proj", "v_proj")
    assert (plan.objective.kind, plan.seq.max_len, plan.seq.pad) == ("sft", 2048, "longest")
    assert plan.save.contents == ("adapter", "optimizer")


def test_devices_of_a_lone_file_are_for_the_command_line_to_say() -> None:
    text = _TUNING.replace(
        "micro_batch_size: 4", "micro_batch_size: 4\n  tensor_model_parallel_size: 4"
    )
    run = _run(text)
    assert run.plan.parallel.world == 8
    origin = run.origin("parallel.gpus_per_node")
    assert origin is not None
    assert origin.kind == "assumed"


@pytest.mark.parametrize(("devices", "ranks"), [("auto", None), ("[0, 1]", 2), ("-1", None)])
def test_spellings_of_devices(devices: str, ranks: int | None) -> None:
    run = _run(_TUNING.replace("devices: 1", f"devices: {devices}"))
    assert not run.wrong
    assert run.plan.parallel.gpus_per_node == ranks


def test_missing_checkpoints_are_unknown() -> None:
    assert _run(_TUNING).plan.model.id is None


def test_models_that_are_more_than_a_decoder_have_no_dimensions_here() -> None:
    assert _run(_YAML.replace("  data:", "  mm_cfg:\n    x: 1\n  data:")).plan.model.dims is None


@pytest.mark.parametrize(
    "text",
    [
        "trainer:\n  devices: 1\nmodel:\n  optim:\n    lr: 1\n",
        "model:\n  micro_batch_size: 1\n  optim: {}\n",
        "trainer:\n  max_epochs: 3\nmodel:\n  micro_batch_size: 1\n  optim: {}\n",
    ],
)
def test_other_files_are_left_alone(text: str) -> None:
    assert "nemo" not in link({"a.yaml": text}).recognised.values()


def test_inference_is_no_run() -> None:
    text = "trainer:\n  devices: 1\ninference:\n  greedy: True\ntensor_model_parallel_size: 2\n"
    linked = link({"a.yaml": text})
    assert linked.recognised == {"a.yaml": "nemo"}
    assert not linked.runs


# -- launch lines ------------------------------------------------------------------------------


def test_overrides_win_and_are_changed_where_they_stand() -> None:
    line = "srun python megatron_gpt_pretraining.py --config-path=conf --config-name=a trainer.num_nodes=4 +model.sequence_parallel=False model.micro_batch_size=1\n"  # fmt: skip
    files = {"conf/a.yaml": _YAML, "go.sh": line}
    (run,) = link(files).runs
    assert (run.plan.parallel.world, run.plan.parallel.sp) == (32, False)
    assert run.plan.batch.micro == 1
    proposal = Proposal(
        "t", (SetFields({"batch.micro": 4, "seq.max_len": 2048}),), Applicability.SAFE
    )
    fix = make_fix(run, proposal, None)
    assert fix is not None
    assert fix.reason is None
    assert {edit.path for edit in fix.edits} == {"conf/a.yaml", "go.sh"}


def test_a_command_without_its_yaml_is_a_run_of_its_own() -> None:
    line = "torchrun --nproc_per_node 8 examples/nlp/language_modeling/tuning/megatron_gpt_finetuning.py trainer.devices=8 trainer.precision=bf16 model.restore_from_path=/m/llama-3-8b.nemo model.micro_batch_size=1 model.global_batch_size=8 model.megatron_amp_O2=True model.peft.peft_scheme=none model.data.train_ds.max_seq_length=1024\n"  # fmt: skip
    (run,) = link({"go.sh": line}).runs
    assert run.framework == "nemo"
    assert run.plan.parallel.world == 8
    assert (run.plan.trainable.method, run.plan.seq.max_len) == ("full", 1024)
    assert (run.plan.precision.param, run.plan.precision.master) == ("bf16", "fp32")


# -- fixes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"batch.micro": 1, "batch.grad_accum": 8}, "micro_batch_size: 1  # limited by memory"),
        ({"checkpointing.mode": "full"}, "activations_checkpoint_granularity: full"),
        ({"checkpointing.mode": "selective_op"}, "activations_checkpoint_granularity: selective"),
        ({"seq.max_len": 2048}, "encoder_seq_length: 2048"),
        ({"parallel.tp": 4}, "tensor_model_parallel_size: 4"),
        ({"save.every": 500}, "every_n_train_steps: 500"),
        ({"save.keep": 2}, "save_top_k: 2"),
        ({"data.workers": 1}, "num_workers: 1"),
        ({"batch.grad_accum": 2}, "global_batch_size: 32"),
    ],
)
def test_wishes_are_written(changes: dict[str, Any], expected: str) -> None:
    assert expected in fixed(_run, _YAML, changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"parallel.zero.stage": 3},
        {"optimizer.kind": "adamw8bit"},
        {"offload.optimizer": "cpu"},
        {"loss.logits_materialised": "fused"},
        {"save.save_only_model": True},
        {"quant.method": "bnb4"},
    ],
)
def test_what_nemo_cannot_say(changes: dict[str, Any]) -> None:
    with pytest.raises(CannotEdit):
        _run().what_if(changes)
