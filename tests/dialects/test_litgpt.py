"""LitGPT's YAML and command lines: what they mean, and what a fix writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.fixing import fix_of, fixed
from tests.linked import link, run_of

from oomlint.dialects import registry
from oomlint.errors import CannotEdit
from oomlint.files.workspace import Workspace
from oomlint.memory import estimate
from oomlint.models import lookup
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

_CORPUS = Path(__file__).parents[2] / "../shared/corpus/litgpt"

_LORA = """\
checkpoint_dir: checkpoints/meta-llama/Llama-2-7b-hf
precision: bf16-true
quantize:
devices: 1
lora_r: 32
lora_mlp: true
data:
  class_path: litgpt.data.Alpaca2k
  init_args:
    num_workers: 4
train:
  global_batch_size: 8
  micro_batch_size: 2
  max_seq_length: 512
eval:
  interval: 50
optimizer:
  class_path: torch.optim.AdamW
  init_args:
    lr: 0.0002
"""
_FULL = """\
checkpoint_dir: checkpoints/meta-llama/Llama-2-7b-hf
devices: 4
resume: false
train:
  global_batch_size: 64
  micro_batch_size: 4
"""


def _run(text: str, name: str = "a.yaml") -> Run:
    (run,) = link({name: text}).runs
    assert run.framework == "litgpt"
    return run


def _launched(line: str, **files: str) -> Run:
    named = {f"{name}.yaml": text for name, text in files.items()}
    (run,) = link({"run.sh": line + "\n", **named}).runs
    assert run.framework == "litgpt"
    return run


def test_lora_on_one_device() -> None:
    plan = _run(_LORA).plan
    assert plan.model.id == "meta-llama/Llama-2-7b-hf"
    assert plan.model.dims is not None
    assert (plan.parallel.backend, plan.parallel.world) == ("none", 1)
    assert (plan.trainable.method, plan.trainable.r, plan.trainable.alpha) == ("lora", 32, 16)
    targets = plan.trainable.targets
    assert {"q_proj", "v_proj", "gate_proj"} <= set(targets or ())
    assert not {"k_proj", "o_proj", "lm_head"} & set(targets or ())
    assert (plan.batch.micro, plan.batch.grad_accum, plan.batch.global_) == (2, 4, 8)
    assert (plan.seq.max_len, plan.seq.pad) == (512, "longest")
    assert plan.checkpointing.mode == "none"
    assert (plan.precision.param, plan.precision.grad, plan.precision.optim_state) == ("bf16",) * 3
    assert (plan.precision.master, plan.precision.autocast) == ("none", False)
    assert (plan.loss.logits_materialised, plan.loss.chunks) == ("chunked", 4)
    assert plan.loss.upcast_fp32 is True
    assert plan.save.contents == ("adapter",)
    assert (plan.eval.every, plan.data.workers) == (50, 4)


def test_mixed_precision_gathers_fp32_where_the_model_is_sharded() -> None:
    mixed, plain = (
        _run(f"precision: {precision}\n{_FULL}") for precision in ("bf16-mixed", "bf16-true")
    )
    assert (mixed.plan.precision.compute, mixed.plan.precision.gathered) == ("bf16", "fp32")
    assert plain.plan.precision.gathered is None
    (made, half) = (run.estimate.gpu.by_phase["backward"]["gradients"] for run in (mixed, plain))
    # fabric.no_backward_sync leaves them whole between the optimizer steps.
    assert (made or 0) > 4 * 6.7e9 > (half or 0)


def test_no_precision_is_mixed() -> None:
    plan = _run(_LORA.replace("precision: bf16-true\n", "")).plan
    assert (plan.precision.param, plan.precision.grad, plan.precision.optim_state) == ("fp32",) * 3
    assert (plan.precision.compute, plan.precision.autocast) == ("bf16", True)
    assert plan.trainable.adapter_dtype == "fp32"


def test_quantization() -> None:
    plan = _run(_LORA.replace("quantize:", "quantize: bnb.nf4-dq")).plan
    assert (plan.trainable.method, plan.quant.method, plan.quant.double) == ("qlora", "bnb4", True)
    assert (plan.precision.param, plan.precision.grad) == ("nf4", "bf16")
    assert (plan.optimizer.kind, plan.precision.optim_state) == ("paged_adamw", "fp32")


def test_quantised_lora_trains_an_embedding_that_nothing_steps() -> None:
    text = _LORA.replace("quantize:\n", "")
    plain, quantised = _run(text).plan, _run(text + "quantize: bnb.nf4\n").plan
    assert plain.trainable.unstepped is None
    assert quantised.trainable.unstepped == "embeddings"
    assert quantised.quant.skip_modules == (), "the head is packed too"
    dims = quantised.model.dims
    assert dims is not None
    assert dims.arch == "litgpt"


def test_full_fine_tuning_on_several_devices() -> None:
    run = _run(_FULL)
    plan = run.plan
    assert plan.trainable.method == "full"
    assert (plan.parallel.backend, plan.parallel.world) == ("fsdp1", 4)
    assert (plan.parallel.fsdp.strategy, plan.parallel.fsdp.state_dict) == ("full", "full")
    assert plan.checkpointing.mode == "full"
    assert plan.loss.logits_materialised == "full"
    assert (plan.batch.grad_accum, plan.seq.max_len) == (4, 1304)
    assert plan.save.full_gather is True
    assert _run(_LORA.replace("devices: 1", "devices: 2")).plan.parallel.backend == "fsdp2"


@pytest.mark.parametrize(("release", "backend"), [("0.5.10", "fsdp1"), ("0.5.11", "fsdp2")])
def test_lora_shards_with_fsdp1_up_to_a_release(release: str, backend: str) -> None:
    """Its FSDPStrategy gathers the whole model on every GPU to fill it with the checkpoint."""
    text = _LORA.replace("devices: 1", "devices: 2")
    plan = link({"a.yaml": text}, values={"versions.litgpt": release}).runs[0].plan
    assert (plan.parallel.backend, plan.load.unshards) == (
        backend,
        True if backend == "fsdp1" else None,
    )
    sharded = plan.with_values({"load.unshards": None})
    loads, shares = (sum(estimate(p).gpu.by_phase["load"].values()) for p in (plan, sharded))
    assert (loads > 1.5 * shares) is (backend == "fsdp1")


def test_the_second_adapter_scales_every_linear_layer() -> None:
    line = "litgpt finetune_adapter_v2 --checkpoint_dir checkpoints/meta-llama/Llama-2-7b-hf\n"
    plans = [
        link({"a.sh": text}).runs[0].plan for text in (line, line.replace("adapter_v2", "adapter"))
    ]
    assert [plan.trainable.method for plan in plans] == ["adapter", "adapter"]
    assert [plan.trainable.targets for plan in plans] == ["all_linear", None]
    second, first = (estimate(plan).gpu.peak_bytes for plan in plans)
    assert second is not None
    assert first is not None
    assert second > first


def test_the_head_is_never_shared() -> None:
    tied = lookup("meta-llama/Llama-3.2-1B")
    assert tied is not None
    assert tied.dims.params_total is not None
    text = _FULL.replace("Llama-2-7b-hf", "Llama-3.2-1B")
    dims = _run(text).plan.model.dims
    assert dims is not None
    assert dims.tie_embeddings is False
    assert dims.params_total == tied.dims.params_total + 128256 * 2048
    kept = _run(text + "  tie_embeddings: true\n").plan.model.dims
    assert kept == replace(tied.dims, arch="litgpt")


def test_pretraining() -> None:
    text = "model_name: tiny-llama-1.1b\ntrain:\n  micro_batch_size: 8\n"
    run = _run(text)
    plan = run.plan
    assert (plan.objective.kind, plan.trainable.method) == ("pretrain", "full")
    assert plan.model.from_scratch is True
    assert plan.model.dims is not None
    assert (plan.seq.max_len, plan.seq.packing) == (plan.model.dims.ctx, "concat")
    # All GPUs of the machine, which nobody has told.
    assert plan.parallel.world is None
    assert plan.batch.grad_accum is None
    plan = _run("devices: 8\nnum_nodes: 2\n" + text).plan
    assert (plan.parallel.world, plan.parallel.fsdp.strategy) == (16, "hybrid")
    assert plan.batch.grad_accum == 512 // 16 // 8
    assert (plan.checkpointing.mode, plan.optimizer.fused) == ("none", True)


def test_dimensions_of_a_model_config() -> None:
    text = (
        "model_config:\n  n_layer: 4\n  n_embd: 256\n  n_head: 8\n  n_query_groups: 2\n"
        "  mlp_class_name: LLaMAMLP\n  norm_class_name: RMSNorm\n  intermediate_size: 700\n"
        "  padded_vocab_size: 1024\ntrain:\n  global_batch_size: 8\n"
    )
    plan = _run(text).plan
    dims = plan.model.dims
    assert dims is not None
    assert (dims.layers, dims.kv_heads, dims.head_dim, dims.vocab) == (4, 2, 32, 1024)
    assert (dims.act, dims.norm, plan.objective.kind) == ("swiglu", "rms", "pretrain")


def test_sub_command_from_the_file_name() -> None:
    assert _run(_FULL.replace("resume: false\n", ""), "adapter.yaml").plan.trainable.method == (
        "adapter"
    )


def test_unknown_keys_are_refused() -> None:
    run = _run(_LORA + "lora_rank: 8\n")
    (stray,) = run.stray
    assert stray.block.table.refuses(stray.path)


def test_launch_line_over_a_config() -> None:
    run = _launched(
        "CUDA_VISIBLE_DEVICES=0,1 litgpt finetune_lora --config a.yaml --devices auto "
        "--train.micro_batch_size 1 --lora_r=64",
        a=_LORA,
    )
    plan = run.plan
    assert (plan.batch.micro, plan.trainable.r, plan.seq.max_len) == (1, 64, 512)
    assert plan.parallel.gpus_per_node == 2


def test_launch_line_alone() -> None:
    run = _launched(
        "litgpt finetune_full meta-llama/Llama-3.2-1B --precision bf16-true --devices 2"
    )
    plan = run.plan
    assert (plan.model.id, plan.trainable.method) == ("meta-llama/Llama-3.2-1B", "full")
    assert (plan.parallel.world, plan.batch.micro, plan.batch.grad_accum) == (2, 1, 8)
    assert plan.precision.param == "bf16"


@pytest.mark.parametrize(
    ("line", "method"),
    [
        ("litgpt finetune checkpoints/EleutherAI/pythia-160m", "lora"),
        ("litgpt finetune full --checkpoint_dir checkpoints/EleutherAI/pythia-160m", "full"),
        ("litgpt finetune_adapter_v2 checkpoints/EleutherAI/pythia-160m", "adapter"),
        ("python litgpt/finetune/lora.py --checkpoint_dir checkpoints/EleutherAI/pythia-160m", "lora"),
        ("litgpt pretrain pythia-160m --devices 1", "full"),
    ],
)  # fmt: skip
def test_sub_commands(line: str, method: str) -> None:
    plan = _launched(line).plan
    assert plan.trainable.method == method
    assert plan.model.dims is not None
    assert plan.parallel.world == 1


def test_a_sub_command_beats_the_keys() -> None:
    run = _launched("litgpt finetune_adapter --config a.yaml", a=_FULL)
    assert run.plan.trainable.method == "adapter"


@pytest.mark.parametrize(
    "line", ["litgpt download x/y", "litgpt generate checkpoints/x/y", "litgpt"]
)
def test_other_commands_train_nothing(line: str) -> None:
    assert not link({"run.sh": line + "\n"}).runs


def test_other_files_are_not_ours() -> None:
    other = "train:\n  micro_batch_size: 2\n  epochs: 3\nmodel: x\n"
    assert not link({"a.yaml": other}).recognised


@pytest.mark.parametrize(
    ("changes", "old", "new"),
    [
        ({"batch.micro": 1, "batch.grad_accum": 8}, "micro_batch_size: 2", "micro_batch_size: 1"),
        ({"batch.micro": 1, "batch.grad_accum": 4}, "global_batch_size: 8\n  micro_batch_size: 2", "global_batch_size: 4\n  micro_batch_size: 1"),
        ({"seq.max_len": 256}, "max_seq_length: 512", "max_seq_length: 256"),
        ({"optimizer.kind": "paged_adamw8bit"}, "torch.optim.AdamW", "bitsandbytes.optim.PagedAdamW8bit"),
        ({"quant.method": "bnb4"}, "quantize:", "quantize: bnb.nf4"),
        ({"data.workers": 1}, "num_workers: 4", "num_workers: 1"),
        ({"precision.param": "fp16"}, "bf16-true", "16-true"),
    ],
)  # fmt: skip
def test_fixes(changes: dict[str, Any], old: str, new: str) -> None:
    assert fixed(_run, _LORA, changes) == _LORA.replace(old, new)


@pytest.mark.parametrize(
    ("said", "then"),
    [
        ("", "optimizer: bitsandbytes.optim.PagedAdamW8bit"),
        ("optimizer: AdamW\n", "optimizer: bitsandbytes.optim.PagedAdamW8bit"),
    ],
)
def test_an_optimizer_without_arguments_is_a_name(said: str, then: str) -> None:
    """LitGPT takes a mapping only with ``init_args`` in it."""
    assert then in fixed(_run, _FULL + said, {"optimizer.kind": "paged_adamw8bit"})
    line = "litgpt pretrain --model_name Llama-3.2-1B --data TinyStories --devices 1\n"
    run = run_of({"run.sh": line}, "run.sh")
    (edit,) = fix_of(run, {"optimizer.kind": "paged_adamw8bit"}).edits
    assert edit.replacement.strip() == "--optimizer bitsandbytes.optim.PagedAdamW8bit"


def test_an_argument_that_the_optimizer_does_not_take_keeps_it_from_being_changed() -> None:
    run = _run(_LORA + "    fused: true\n")
    assert run.plan.optimizer.fused is True
    with pytest.raises(CannotEdit, match="fused"):
        run.what_if({"optimizer.kind": "paged_adamw8bit"})


def test_quantization_needs_a_true_precision() -> None:
    after = fixed(_run, _LORA.replace("bf16-true", "bf16-mixed"), {"quant.method": "bnb4"})
    assert "precision: bf16-true" in after
    assert "quantize: bnb.nf4" in after


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (_LORA, {"checkpointing.mode": "full"}),
        (_LORA, {"loss.logits_materialised": "fused"}),
        (_LORA, {"model.attn_impl": "flash2"}),
        (_LORA, {"offload.optimizer": "cpu"}),
        (_LORA, {"quant.method": "gptq"}),
        (_LORA.replace("quantize:", "quantize: bnb.nf4"), {"optimizer.kind": "adamw8bit"}),
        (_LORA.replace("devices: 1", "devices: 2"), {"quant.method": "bnb4"}),
        (_FULL, {"quant.method": "bnb4"}),
        (_FULL, {"data.workers": 1}),
        (_FULL, {"parallel.zero.stage": 3}),
    ],
)
def test_what_litgpt_cannot_say(text: str, changes: dict[str, Any]) -> None:
    run = _run(text)
    with pytest.raises(CannotEdit):
        run.what_if(changes)


def test_corpus_is_recognised() -> None:
    if not _CORPUS.is_dir():
        pytest.skip("the corpus of real configs is not here")
    names = sorted(str(path.relative_to(_CORPUS)) for path in _CORPUS.rglob("*.yaml"))
    linked = Linker(Workspace(_CORPUS), registry(), LinkOptions()).link(names)
    assert not linked.errors
    assert {run.name for run in linked.runs} == set(names)
    for run in linked.runs:
        assert run.plan.model.dims is not None, run.name
        assert run.plan.batch.grad_accum is not None, run.name
        assert not run.stray, run.name
        assert not run.wrong, run.name
        assert not run.unreadable, run.name


_SCRIPT = """\
import lightning as L
from lit_gpt.lora import GPT, Block, Config

devices = 1
batch_size = 128
micro_batch_size = 4
gradient_accumulation_iters = batch_size // micro_batch_size
override_max_seq_length = None
lora_r = 16
lora_mlp = True
"""
_LIT_LLAMA = """\
import lightning as L
from lightning.fabric.strategies import FSDPStrategy
from lit_llama.model import Block, LLaMA, LLaMAConfig

devices = 4
batch_size = 128 / devices
micro_batch_size = 2
block_size = 512


def main():
    strategy = FSDPStrategy(activation_checkpointing=Block, cpu_offload=True)
    fabric = L.Fabric(devices=devices, precision="bf16-mixed", strategy=strategy)
    model = LLaMA(LLaMAConfig.from_name("13B")).bfloat16()
"""


def _started(line: str, script: str, text: str) -> Run:
    (run,) = link({"run.sh": line + "\n", script: text}).runs
    assert run.framework == "litgpt"
    return run


def test_a_script_from_before_the_package() -> None:
    line = "python finetune/lora.py --checkpoint_dir checkpoints/tiiuae/falcon-7b/ --data_dir d"
    run = _started(line, "finetune/lora.py", _SCRIPT)
    plan = run.plan
    assert plan.model.id == "tiiuae/falcon-7b"
    assert (plan.batch.micro, plan.batch.grad_accum, plan.trainable.r) == (4, 32, 16)
    assert (plan.load.dtype, plan.quant.method, plan.seq.max_len) == ("fp32", "none", 1304)
    assert not run.stray
    true = _started(f"{line} --precision bf16-true --quantize bnb.nf4", "finetune/lora.py", _SCRIPT)
    assert (true.plan.load.dtype, true.plan.quant.method) == ("bf16", "bnb4")


def test_a_script_of_lit_llama() -> None:
    plan = _started("cd finetune\npython full.py", "finetune/full.py", _LIT_LLAMA).plan
    assert plan.model.id == "huggyllama/llama-13b"
    assert (plan.parallel.world, plan.parallel.backend) == (4, "fsdp1")
    assert (plan.batch.micro, plan.batch.grad_accum, plan.seq.max_len) == (2, 16, 512)
    assert (plan.precision.param, plan.offload.params) == ("bf16", "cpu")
    assert (plan.trainable.method, plan.checkpointing.mode) == ("full", "full")


def test_a_script_of_that_name_may_be_anybodys() -> None:
    text = "from mine import Trainer\nmicro_batch_size = 4\n"
    assert not link({"run.sh": "python finetune/lora.py\n", "finetune/lora.py": text}).runs


@pytest.mark.parametrize(
    ("options", "length", "unbounded"),
    [
        ("", 1304, None),
        ("--data Alpaca", 1304, None),
        ("--data JSON --data.json_path d.json", None, True),
        ("--train.max_seq_length 256", 256, None),
    ],
)
def test_the_data_that_nobody_names_has_a_longest_sample(
    options: str, length: int | None, unbounded: bool | None
) -> None:
    line = f"litgpt finetune lora --checkpoint_dir checkpoints/EleutherAI/pythia-160m {options}"
    seq = _launched(line).plan.seq
    assert (seq.max_len, seq.unbounded) == (length, unbounded)
