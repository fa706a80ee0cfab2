"""OLMo's YAML: the model that its own classes build, what FSDP gathers, which checkpoints come in one piece."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fixing import fixed, repaired, wants
from tests.linked import link, run_of

from oomlint.dialects.common.fields import shared
from oomlint.memory import estimate
from oomlint.plan.fields import f
from oomlint.runs.run import Run

# A model of 7B parameters like allenai/OLMo's OLMo2-7B-stage1.yaml.
_YAML = """\
run_name: seven
model:
  d_model: 4096
  n_heads: 32
  n_layers: 32
  mlp_hidden_size: 22016
  weight_tying: false
  alibi: false
  rope: true
  flash_attention: true
  attention_dropout: 0.0
  include_bias: false
  layer_norm_type: rms
  attention_layer_norm: true
  norm_after: true
  residual_dropout: 0.0
  embedding_dropout: 0.0
  max_sequence_length: 4096
  vocab_size: 100278
  embedding_size: 100352
  init_device: meta
fused_loss: true
optimizer:
  name: adamw
save_interval: 1000
save_num_checkpoints_to_keep: 0
save_interval_unsharded: 2000
load_path: null
max_duration: 1ep
global_train_batch_size: 1024
device_train_microbatch_size: 2
precision: amp_bf16
fsdp:
  wrapping_strategy: by_block_and_size
  precision: mixed
max_grad_norm: 1.0
device_eval_batch_size: ${device_train_microbatch_size}
evaluators:
  - label: piqa
    type: downstream
"""


def _run(text: str = _YAML, hardware: str = "8xA100-80GB") -> Run:
    run = run_of({"config.yaml": text}, "config.yaml", hardware=hardware)
    assert run.framework == "olmo"
    return run


def _phase(text: str, phase: str = "backward") -> int:
    gpu = estimate(_run(text).plan).gpu
    assert gpu is not None
    return gpu.phases[phase]


def test_a_whole_config() -> None:
    run = _run()
    plan, dims = run.plan, run.plan.model.dims
    assert not run.stray
    assert not run.wrong
    assert dims is not None
    # Both halves of SwiGLU stand in mlp_hidden_size; the count is that of OLMo's class on the meta device.
    assert (dims.ffn, dims.vocab, dims.params_total) == (11008, 100352, 7298617344)
    assert (plan.parallel.backend, plan.parallel.fsdp.strategy) == ("fsdp1", "full")
    assert (plan.parallel.fsdp.wrap, plan.precision.param) == ("ends", "fp32")
    assert (plan.precision.compute, plan.precision.comm) == ("bf16", "fp32")
    assert (plan.batch.micro, plan.batch.grad_accum, plan.batch.eval_micro) == (2, 64, 2)
    assert (plan.seq.max_len, plan.seq.packing, plan.checkpointing.mode) == (4096, "concat", "none")
    assert (plan.loss.algorithm, plan.optimizer.kind) == ("kernel", "adamw")
    assert (plan.load.meta_init, plan.load.resume) == (True, False)
    # No sharded checkpoint is kept, so that whole ones alone are written.
    assert (plan.save.every, plan.save.full_gather) == (2000, True)
    assert plan.total_steps is None


_TINY = """\
model: {d_model: 128, n_heads: 4, n_layers: 4, mlp_ratio: 4, max_sequence_length: 512%s}
global_train_batch_size: 8
device_train_microbatch_size: 4
save_overwrite: true
"""


@pytest.mark.parametrize(
    ("more", "count"),
    # Counted by OLMo's own class on the meta device (olmo/model.py at 59a53e3f), whose defaults are GPT-2's.
    [
        ("", 7166720),
        (", weight_tying: false", 13655936),
        (", embedding_size: null", 7160704),
        (", rope: true, include_bias: false, n_kv_heads: 2", 7029888),
        (", alibi: true, multi_query_attention: true, activation_type: gelu", 7133184),
        (", rope: true, layer_norm_type: rms, attention_layer_norm: true", 7103232),
        (", rope: true, layer_norm_with_affine: false, bias_for_layer_norm: false", 7098880),
        (", rope: true, embedding_layer_norm: true, mlp_hidden_size: 1024", 7496704),
    ],
)
def test_parameters_are_those_of_its_class(more: str, count: int) -> None:
    dims = _run(_TINY % more).plan.model.dims
    assert dims is not None
    assert dims.params_total == count


def test_no_wrapping_strategy_gathers_the_whole_model() -> None:
    bare = _YAML.replace("  wrapping_strategy: by_block_and_size\n", "")
    assert _run(bare).plan.parallel.fsdp.wrap == "none"
    # In 16 bit it is 13.6 GiB, with as much for its gradients.
    assert _phase(bare) - _phase(_YAML) > 10 * 2**30


def test_ends_of_their_own_are_not_held_through_the_blocks() -> None:
    blocks = _YAML.replace("by_block_and_size", "by_block")
    assert _run(blocks).plan.parallel.fsdp.wrap == "transformer"
    # At the top of the stack the output layer and its gradients are there either way: the embedding is not.
    assert _phase(blocks) - _phase(_YAML) == pytest.approx(2 * 100352 * 4096, rel=0.02)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("true", ("full", None)),
        ("whole_layer", ("full", None)),
        ("one_in_four", ("every_n", 4)),
        ("fine_grained", ("selective_op", None)),
        ("null", ("none", None)),
    ],
)
def test_words_of_checkpointing(words: str, wanted: tuple[str, Any]) -> None:
    c = _run(f"{_YAML}activation_checkpointing: {words}\n").plan.checkpointing
    assert (c.mode, c.every_n) == wanted


def test_policy_of_fsdp() -> None:
    pure = _run(_YAML.replace("precision: mixed", "use_orig_params: true")).plan.precision
    assert (pure.comm, pure.gathered) == ("bf16", None)
    wide = _run(_YAML.replace("precision: mixed", "precision: null")).plan.precision
    assert (wide.comm, wide.gathered, wide.compute) == ("fp32", "fp32", "bf16")


def test_a_bias_keeps_flash_attention_out() -> None:
    masked = f"{_YAML}data:\n  generate_attention_mask: true\n"
    assert _run(_YAML).plan.model.attn_impl == "flash2"
    assert _run(masked).plan.model.attn_impl == "eager"


def test_clamping_keeps_a_copy() -> None:
    more = _phase(_YAML.replace("  rope: true\n", "  rope: true\n  clip_qkv: 8.0\n"))
    # Three projections of 4096 in 16 bit, for 8192 tokens and 32 layers.
    assert more - _phase(_YAML) == pytest.approx(3 * 4096 * 2 * 8192 * 32, rel=0.05)


def test_replicas_of_a_launch_line() -> None:
    script = (
        "torchrun --nnodes 4 --nproc-per-node 8 scripts/train.py configs/a.yaml --run_name=x \\\n"
        "  --fsdp.sharding-strategy=HYBRID_SHARD --fsdp.hybrid_sharding_num_model_replicas=2 \\\n"
        "  --activation_checkpointing=one_in_two --model.flash_attention=false --save_overwrite\n"
    )
    run = run_of({"train.sh": script, "configs/a.yaml": _YAML}, "train.sh")
    plan = run.plan
    assert (plan.parallel.world, plan.parallel.dp_replicate) == (32, 2)
    assert plan.parallel.fsdp.strategy == "hybrid"
    assert (plan.checkpointing.mode, plan.model.attn_impl) == ("every_n", "sdpa")
    assert not run.stray


def test_ddp_saves_in_one_piece_at_the_interval_of_shards() -> None:
    text = _YAML.replace("fsdp:\n  wrapping_strategy: by_block_and_size\n  precision: mixed\n", "")
    text = text.replace("save_interval_unsharded: 2000\n", "").replace(
        "device: meta", "device: cuda"
    )
    plan = _run(f"{text}distributed_strategy: ddp\nddp:\n  find_unused_params: false\n").plan
    assert (plan.parallel.backend, plan.save.every, plan.save.full_gather) == ("ddp", 1000, False)
    assert plan.parallel.fsdp.wrap is None


def test_a_micro_batch_is_no_more_than_there_are() -> None:
    plan = _run(_YAML.replace("size: 1024", "size: 8")).plan
    assert (plan.batch.micro, plan.batch.grad_accum) == (1, 1)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({f.batch.micro: 1}, "device_train_microbatch_size: 1"),
        ({f.checkpointing.mode: "full"}, "activation_checkpointing: whole_layer"),
        ({f.parallel.fsdp.wrap: "transformer"}, "wrapping_strategy: by_block\n"),
        ({f.loss.algorithm: "kernel"}, "fused_loss: true"),
        ({f.save.full_gather: False}, "save_num_checkpoints_to_keep: -1"),
        ({f.optimizer.kind: "lion"}, "name: lionw"),
        ({f.seq.max_len: 2048}, "max_sequence_length: 2048"),
    ],
)
def test_wishes_in_its_own_keys(changes: dict[Any, Any], wanted: str) -> None:
    assert wanted in fixed(_run, _YAML, changes)


def test_what_refers_to_a_changed_key_changes_with_it() -> None:
    result = repaired({"seven.yaml": _YAML}, rules=(wants("batch.micro", 1),))
    assert result.report.errors == ()
    assert b"device_train_microbatch_size: 1\n" in result.texts["seven.yaml"]
    (run,) = result.report.runs
    assert (run.plan.batch.micro, run.plan.batch.eval_micro) == (1, 1)


def test_a_smaller_evaluation() -> None:
    text = _YAML.replace("${device_train_microbatch_size}", "16")
    assert "device_eval_batch_size: 1\n" in fixed(_run, text, {f.batch.eval_micro: 1})


def test_what_it_is_not() -> None:
    """LLM Foundry has the same batches, others the same words for a model."""
    foundry = (
        "model: {name: mpt_causal_lm, d_model: 768, n_heads: 12, n_layers: 12}\ntrain_loader: {}\n"
        "global_train_batch_size: 8\nfsdp: {}\n"
    )
    mamba = "model: {d_model: 768, n_heads: 12, n_layers: 12}\noptimizer: {lr: 1}\nbatch_size: 8\n"
    saved = "model: {d_model: 768, n_heads: 12, n_layers: 12}\ntokenizer: {}\n"
    for text in (foundry, mamba, saved):
        runs = link({"config.yaml": text}, "config.yaml").runs
        assert [run for run in runs if run.framework == "olmo"] == []


@pytest.mark.parametrize(
    ("switches", "why"),
    [
        ("alibi: false\n  rope: true\n  flash_attention: true", ""),
        ("alibi: true\n  rope: false\n  flash_attention: false", ""),
        (
            "alibi: true\n  rope: false\n  flash_attention: true",
            "OLMo refuses ALiBi beside flash attention",
        ),
        (
            "alibi: true\n  rope: true\n  flash_attention: false",
            "OLMo refuses ALiBi beside rotary embeddings",
        ),
    ],
)
def test_biases_of_alibi_go_with_neither_flash_attention_nor_rotary_embeddings(
    switches: str, why: str
) -> None:
    text = _YAML.replace("alibi: false\n  rope: true\n  flash_attention: true", switches)
    refused = _run(text).settings.get(shared.refused)
    assert (refused.value if refused is not None else "") == why
