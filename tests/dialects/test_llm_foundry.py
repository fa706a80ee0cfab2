"""LLM Foundry's YAML, MosaicML's run files and ``composer`` lines: meaning and fixes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.fixing import fix_of, fixed
from tests.linked import link

from oomlint.dialects import registry
from oomlint.dialects.llm_foundry.dialect import LlmFoundry
from oomlint.errors import CannotEdit
from oomlint.files.workspace import Workspace
from oomlint.memory import estimate
from oomlint.models.count import count_parameters
from oomlint.plan.fields import f
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

_SHARED = Path(__file__).parents[2] / "../shared"
_CORPUS = _SHARED / "corpus/llm-foundry"

_MPT = """\
variables:
  max_seq_len: 2048
max_seq_len: ${variables.max_seq_len}
model:
  name: mpt_causal_lm
  init_device: meta
  d_model: 4096
  n_heads: 32
  n_layers: 32
  expansion_ratio: 4
  max_seq_len: ${variables.max_seq_len}
  vocab_size: 50368
  attn_config:
    attn_impl: flash
tokenizer:
  name: EleutherAI/gpt-neox-20b
  kwargs:
    model_max_length: ${variables.max_seq_len}
train_loader:
  name: text
  dataset:
    local: ./c4
    max_seq_len: ${variables.max_seq_len}
  num_workers: 8
eval_loader:
  name: text
  num_workers: 8
optimizer:
  name: decoupled_adamw
  lr: 1.2e-4
max_duration: 63900ba
eval_interval: 5000ba
global_train_batch_size: 1024
device_eval_batch_size: 8
device_train_microbatch_size: 8
precision: amp_bf16
save_folder: ./ck
save_interval: 500ba
fsdp_config:
  sharding_strategy: FULL_SHARD
  mixed_precision: PURE
  activation_checkpointing: true
  activation_checkpointing_reentrant: false
"""
_HF = """\
max_seq_len: 2048
model:
  name: hf_causal_lm
  pretrained_model_name_or_path: meta-llama/Meta-Llama-3-8B
  init_device: mixed
  peft_config:
    r: 16
    peft_type: LORA
    lora_alpha: 32
    target_modules: [q_proj, v_proj]
train_loader:
  name: finetuning
  dataset:
    hf_name: mosaicml/dolly_hhrlhf
    max_seq_len: ${max_seq_len}
    packing_ratio: auto
optimizer:
  name: decoupled_lionw
max_duration: 2ep
global_train_batch_size: 16
device_train_microbatch_size: auto
fsdp_config:
  state_dict_type: sharded
callbacks:
  hf_checkpointer:
    precision: bfloat16
    save_folder: ./out
    save_interval: 1dur
"""


def _run(
    text: str,
    line: str = "composer -n 8 train/train.py a.yaml",
    options: Mapping[str, Any] | None = None,
) -> Run:
    files = {"a.yaml": text, "run.sh": line + "\n"} if line else {"a.yaml": text}
    (run,) = link(files, values=dict(options or {})).runs
    assert run.framework == "llm-foundry"
    return run


def test_reads_mpt_from_scratch() -> None:
    plan = _run(_MPT).plan
    assert (plan.model.id, plan.model.from_scratch, plan.objective.kind) == (None, True, "pretrain")
    assert (plan.parallel.world, plan.parallel.backend) == (8, "fsdp1")
    assert (plan.batch.micro, plan.batch.grad_accum, plan.batch.global_) == (8, 16, 1024)
    assert (plan.seq.max_len, plan.seq.packing) == (2048, "concat")
    assert (plan.precision.param, plan.precision.optim_state) == ("fp32", "fp32")
    assert (plan.precision.compute, plan.precision.comm) == ("bf16", "bf16")
    assert plan.precision.autocast is True
    assert (plan.checkpointing.mode, plan.checkpointing.reentrant) == ("full", False)
    assert (plan.optimizer.kind, plan.optimizer.foreach) == ("adamw", False)
    assert (plan.load.meta_init, plan.model.attn_impl) == (True, "flash2")
    assert (plan.save.strategy, plan.save.every, plan.save.full_gather) == ("steps", 500, True)
    assert (plan.eval.strategy, plan.eval.every, plan.batch.eval_micro) == ("steps", 5000, 8)
    assert plan.env.expandable_segments is True


@pytest.mark.parametrize(
    ("hidden", "heads", "layers", "published"),
    [(4096, 32, 32, 6_658_859_008), (768, 12, 12, 125_311_488)],
)
def test_counts_mpt_as_its_authors_do(hidden: int, heads: int, layers: int, published: int) -> None:
    """6.658859008 B is what LLM Foundry's benchmarking README names for mpt-7b."""
    text = _MPT.replace("d_model: 4096", f"d_model: {hidden}").replace(
        "n_heads: 32", f"n_heads: {heads}"
    )
    dims = _run(text.replace("n_layers: 32", f"n_layers: {layers}")).plan.model.dims
    assert dims is not None
    counts = count_parameters(dims)
    assert counts is not None
    assert counts.total == pytest.approx(published, rel=1e-3)


@pytest.mark.parametrize(
    ("more", "arch", "act"),
    [
        ("  no_bias: true\n", "foundry_plain", "gelu"),
        ("  norm_type: layernorm\n", "foundry_wide", "gelu"),
        ("  norm_type: low_precision_rmsnorm\n", "foundry_rms", "gelu"),
        ("  ffn_config: {ffn_type: mptglu, ffn_act_fn: {name: silu}}\n", "llama", "swiglu"),
        ("  ffn_config: {ffn_type: mb_dmoe, moe_num_experts: 4, moe_top_k: 2}\n", "mpt", "gelu"),
    ],
)
def test_mpt_variants(more: str, arch: str, act: str) -> None:
    dims = _run(_MPT.replace("  d_model", more + "  d_model")).plan.model.dims
    assert dims is not None
    assert (dims.arch, dims.act) == (arch, act)
    assert (dims.moe is not None) == ("moe" in more)


def test_mpts_own_blocks_keep_half_precision_alone_under_autocast() -> None:
    """Of a token GPT-2's class keeps a GELU in ten steps and masks of dropout, and torch's layer norm fp32 copies."""
    own, wide = _run(_MPT), _run(_MPT.replace("  d_model", "  norm_type: layernorm\n  d_model"))
    assert own.plan.precision.autocast
    kept = {"checkpointing.mode": "none"}
    plans = [run.plan.with_values(kept) for run in (own, wide)]
    gpt2 = plans[0].with_values({"model.dims.arch": "gpt2"})
    low, norms, steps = (estimate(p).gpu.allocated_bytes or 0 for p in (*plans, gpt2))
    # Two norms in each of 32 blocks and a last one keep 8 samples of 2,048 tokens in fp32 instead.
    assert norms - low == (2 * 32 + 1) * 8 * 2048 * 4096 * (4 - 2)
    assert steps > 1.5 * low


def test_the_kernel_of_mpts_loss_takes_the_logits_as_they_are() -> None:
    fused = _run(_MPT).plan.loss
    assert (fused.algorithm, fused.upcast_fp32) == ("kernel", False)
    plain = _run(_MPT.replace("  d_model", "  loss_fn: torch_crossentropy\n  d_model")).plan.loss
    assert (plain.algorithm, plain.upcast_fp32) == (None, True)


@pytest.mark.parametrize(("release", "expands"), [("0.9.1", False), ("0.10.0", True), (None, True)])
def test_segments_expand_by_default_from_one_release_on(release: str | None, expands: bool) -> None:
    options = {} if release is None else {"versions.llm-foundry": release}
    assert _run(_MPT, options=options).plan.env.expandable_segments is expands


def test_reads_lora_with_auto_micro_batches() -> None:
    plan = _run(_HF).plan
    assert plan.model.id == "meta-llama/Meta-Llama-3-8B"
    assert (plan.trainable.method, plan.trainable.r, plan.trainable.alpha) == ("lora", 16, 32)
    assert plan.trainable.targets == ("q_proj", "v_proj")
    assert (plan.batch.auto_micro, plan.batch.micro, plan.batch.grad_accum) == (True, 1, 2)
    assert (plan.model.attn_impl, plan.seq.packing, plan.seq.pad) == ("eager", "bfd", "max_len")
    assert (plan.load.cpu_ram_efficient, plan.load.dtype) == (True, "fp32")
    assert (plan.precision.comm, plan.trainable.adapter_dtype) == ("fp32", "fp32")
    assert (plan.optimizer.kind, plan.eval.enabled) == ("lion", False)
    assert (plan.save.strategy, plan.save.contents) == ("end", ("adapter",))


def test_one_gpu_gets_neither_fsdp_nor_its_checkpointing() -> None:
    plan = _run(_MPT, "composer -n 1 train.py a.yaml").plan
    assert (plan.parallel.backend, plan.checkpointing.mode) == ("none", "none")


def test_ranks_are_unknown_without_a_launch_line() -> None:
    plan = _run(_MPT, "").plan
    assert plan.parallel.world is None
    assert plan.parallel.backend == "fsdp1"


def test_nodes_follow_from_the_world_size() -> None:
    plan = _run(_MPT, "composer --nproc 8 --world_size 32 train.py a.yaml").plan
    assert (plan.parallel.nodes, plan.parallel.world) == (4, 32)


def test_overrides_of_the_launch_line_win() -> None:
    plan = _run(_MPT, "composer -n 8 train.py a.yaml device_train_microbatch_size=2").plan
    assert (plan.batch.micro, plan.batch.grad_accum) == (2, 64)


def test_unwraps_a_mosaicml_run() -> None:
    inner = "".join(f"  {line}\n" for line in _MPT.splitlines())
    text = f"name: m\ncompute:\n  gpus: 16\ncommand: composer train.py\nparameters:\n{inner}"
    plan = _run(text, "").plan
    assert (plan.parallel.nodes, plan.parallel.world, plan.batch.grad_accum) == (2, 16, 8)
    assert plan.seq.max_len == 2048


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batch.micro": 4, "batch.grad_accum": 32}, "device_train_microbatch_size: 4"),
        ({"seq.max_len": 1024}, "  max_seq_len: 1024\nmax_seq_len: ${variables.max_seq_len}"),
        ({"checkpointing.mode": "none"}, "activation_checkpointing: false"),
        ({"parallel.fsdp.state_dict": "sharded"}, "  state_dict_type: sharded"),
        ({"optimizer.kind": "lion"}, "name: decoupled_lionw"),
        ({"batch.eval_micro": 1}, "device_eval_batch_size: 1"),
        ({"save.save_only_model": True}, "save_weights_only: true"),
        ({"save.every": 1000}, "save_interval: 1000ba"),
        ({"data.workers": 2}, "  num_workers: 2\neval_loader"),
        ({"model.attn_impl": "eager"}, "attn_impl: torch"),
        ({"checkpointing.offload": "cpu"}, "activation_cpu_offload: true"),
    ],
)
def test_fixes(changes: dict[str, Any], said: str) -> None:
    assert said in fixed(_run, _MPT, changes)


def test_a_smaller_micro_batch_keeps_a_share_whose_last_one_is_smaller() -> None:
    text = _MPT.replace("global_train_batch_size: 1024", "global_train_batch_size: 48")
    run = _run(text, "composer -n 4 train/train.py a.yaml")
    assert (run.plan.batch.grad_accum, run.plan.batch.global_) == (2, 48)  # 12 are 8 and 4
    steps = run.plan.batch.steps_of(4, run.plan.parallel.dp)
    assert steps == 3
    fix = fix_of(run, {f.batch.micro: 4, f.batch.grad_accum: steps})
    (edit,) = fix.edits
    assert edit.replacement == "4"


def test_fixes_of_hugging_face_models() -> None:
    assert "use_flash_attention_2: true" in fixed(_run, _HF, {"model.attn_impl": "flash2"})
    cpu = _HF.replace("mixed", "cpu")
    assert "init_device: mixed" in fixed(_run, cpu, {"load.cpu_ram_efficient": True})


@pytest.mark.parametrize(
    "changes",
    [
        {"parallel.zero.stage": 3},
        {"offload.optimizer": "cpu"},
        {"offload.params": "cpu"},
        {"optimizer.kind": "adafactor"},
        {"optimizer.fused": True},
        {"loss.logits_materialised": "fused"},
        {"quant.method": "bnb4"},
    ],
)
def test_says_what_it_cannot_write(changes: dict[str, Any]) -> None:
    with pytest.raises(CannotEdit):
        _run(_MPT).what_if(changes)


def test_refuses_unknown_keys() -> None:
    run = _run(_MPT + "device_train_microbatch: 2\n", "")
    assert [stray.path for stray in run.stray] == ["device_train_microbatch"]


@pytest.mark.parametrize(
    "text",
    [
        "models:\n- model_name: a\n  model: {name: hf_causal_lm}\n  tokenizer: {name: a}\n",
        "icl_tasks:\n- label: copa\n  icl_task_type: multiple_choice\n",
        "eval_gauntlet:\n  categories: []\n",
    ],
)
def test_evaluation_is_aside(text: str) -> None:
    assert not link({"a.yaml": text}).runs
    document = Workspace(Path("/x"), {"a.yaml": text.encode()}).document("a.yaml")
    assert [claim.kind for claim in LlmFoundry().recognise(document)] == ["aside"]


@pytest.mark.skipif(not _CORPUS.is_dir(), reason="the corpus is not here")
def test_recognises_every_shipped_config() -> None:
    for path in sorted((_CORPUS / "scripts").rglob("*.y*ml")):
        name = path.relative_to(_CORPUS).as_posix()
        linked = Linker(Workspace(_CORPUS), registry(), LinkOptions()).link([name])
        assert [run.framework for run in linked.runs] == (
            ["llm-foundry"] if "scripts/train" in name else []
        ), name
        for run in linked.runs:
            assert not run.stray, name
            assert not run.wrong, name
