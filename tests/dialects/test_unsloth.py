"""Unsloth: what its scripts and notebooks train, and where fixes go."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.fixing import fixed
from tests.linked import run_of

from oomlint.dialects import registry
from oomlint.dialects.trl.releases import FUSES_HEAD
from oomlint.errors import CannotEdit
from oomlint.files.workspace import Workspace
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

_SFT = """\
from unsloth import FastLanguageModel, is_bfloat16_supported
import torch
from trl import SFTConfig, SFTTrainer

max_seq_length = 4096

model, tokenizer = FastLanguageModel.from_pretrained(
    model_name = "unsloth/Llama-3.1-8B",
    max_seq_length = max_seq_length,
    dtype = None,
)
model = FastLanguageModel.get_peft_model(
    model,
    r = 32,
    lora_dropout = 0,
    use_gradient_checkpointing = "unsloth",
)
trainer = SFTTrainer(
    model = model,
    tokenizer = tokenizer,
    train_dataset = dataset,
    args = SFTConfig(
        per_device_train_batch_size = 2,
        gradient_accumulation_steps = 4,
        fp16 = not is_bfloat16_supported(),
        bf16 = is_bfloat16_supported(),
        output_dir = "outputs",
    ),
)
trainer.train()
"""


def _run(text: str, name: str = "train.py", hardware: str = "") -> Run:
    run = run_of({name: text}, hardware=hardware)
    assert run.framework == "unsloth"
    return run


def _facts(run: Run, *fields: str) -> tuple[Any, ...]:
    return tuple(run.plan.get(field) for field in fields)


def test_a_model_is_quantized_unless_told_otherwise() -> None:
    run = _run(_SFT)
    fields = ("trainable.method", "quant.method", "quant.double", "precision.param", "load.dtype")
    assert _facts(run, *fields) == ("qlora", "bnb4", True, "nf4", "bf16")
    assert run.plan.trainable.r == 32
    assert run.plan.trainable.targets is not None
    assert len(run.plan.trainable.targets) == 7
    assert _facts(run, "trainable.adapter_dtype", "precision.grad") == ("fp32", "fp32")


@pytest.mark.parametrize(
    ("release", "saved", "adapted"),
    [("", ("embed_tokens",), 2), ("unsloth==2026.2.1\n", ("embed_tokens", "lm_head"), 1)],
)
def test_an_embedding_among_the_targets_is_trained_whole(
    release: str, saved: tuple[str, ...], adapted: int
) -> None:
    modules = '    r = 32,\n    target_modules = ["q_proj", "embed_tokens", "lm_head"],\n'
    files = {"train.py": _SFT.replace("    r = 32,\n", modules), "requirements.txt": release}
    run = run_of(files, "train.py")
    assert run.plan.trainable.modules_to_save == saved
    assert run.plan.trainable.targets == ("q_proj", "lm_head")[:adapted]
    plain = _run(_SFT.replace("    r = 32,\n", modules.replace(', "embed_tokens", "lm_head"', "")))
    more = (run.estimate.gpu.peak_bytes or 0) - (plain.estimate.gpu.peak_bytes or 0)
    # The copy keeps bf16 (unsloth 2026.10 models/llama.py:295), its gradient with it, beside 8-bit states.
    assert more > (2 + 2 + 2) * 128_256 * 4096 * len(saved)


@pytest.mark.parametrize(
    ("old", "new", "fused"),
    [
        ("", "", ("mlp", "qkv", "o")),
        ("lora_dropout = 0,", "lora_dropout = 0.1,", None),
        ("FastLanguageModel", "FastModel", None),
        ("unsloth/Llama-3.1-8B", "unsloth/Qwen2.5-7B", ("mlp", "o")),  # its q, k, v have biases
        ("unsloth/Llama-3.1-8B", "google/gemma-3-4b-it", None),
    ],
)
def test_adapters_without_dropout_are_fused(
    old: str, new: str, fused: tuple[str, ...] | None
) -> None:
    assert _run(_SFT.replace(old, new) if old else _SFT).plan.trainable.fused == fused


def test_a_gate_has_a_kernel_in_an_adapters_function_alone() -> None:
    """With dropout, or no adapter on all of a feed-forward part, it is what transformers has."""
    fused, dropout = _run(_SFT), _run(_SFT.replace("lora_dropout = 0,", "lora_dropout = 0.1,"))
    attention = _run(_SFT.replace("r = 32,", "r = 32, target_modules = ['q_proj', 'v_proj'],"))
    compiled = _run(_SFT.replace("FastLanguageModel", "FastModel"))
    kernels = [run.plan.loss.liger.swiglu for run in (fused, dropout, attention, compiled)]
    assert kernels == [False, False, False, True]
    rest = [run.plan.loss.liger.rms for run in (fused, dropout, attention, compiled)]
    assert rest == [True, True, True, True]


def test_activations_go_to_the_cpu_and_logits_nowhere() -> None:
    run = _run(_SFT)
    assert _facts(run, "checkpointing.mode", "checkpointing.offload") == ("full", "cpu")
    assert run.plan.loss.logits_materialised == "fused"
    short = _run(_SFT.replace("= 4096", "= 256"))
    assert _facts(short, "checkpointing.mode", "checkpointing.offload") == ("full", "none")
    off = _run(_SFT.replace('= "unsloth",', "= False,"))
    assert off.plan.checkpointing.mode == "none"


def test_config_classes_have_defaults_of_unsloth() -> None:
    text = _SFT.replace("        per_device_train_batch_size = 2,\n", "")
    run = _run(text.replace("        gradient_accumulation_steps = 4,\n", ""))
    assert _facts(run, "batch.micro", "batch.grad_accum", "optimizer.kind") == (4, 2, "adamw8bit")


def test_transformers_own_class_keeps_its_defaults() -> None:
    text = _SFT.replace("SFTConfig", "TrainingArguments").replace(
        "from trl import TrainingArguments", "from transformers import TrainingArguments\nfrom trl import"
    ).replace("from trl import,", "from trl import")  # fmt: skip
    run = _run(text.replace("        per_device_train_batch_size = 2,\n", ""))
    assert _facts(run, "batch.micro", "optimizer.kind") == (8, "adamw")


def test_the_shorter_length_counts() -> None:
    assert _run(_SFT).plan.seq.max_len == 4096
    longer = _SFT.replace('output_dir = "outputs"', 'output_dir = "outputs", max_length = 8192')
    assert _run(longer).plan.seq.max_len == 4096
    shorter = longer.replace("8192", "1024")
    assert _run(shorter).plan.seq.max_len == 1024


def test_a_length_that_only_running_tells_leaves_the_checkpoints_alone() -> None:
    run = _run(_SFT.replace("= 4096", "= longest_of(dataset)"))
    assert run.level(f.seq.max_len) is Level.UNREAD
    assert run.plan.checkpointing.mode == "full"
    assert run.level(f.checkpointing.mode) < Level.ASSUMED


def test_what_unsloth_chooses_by_the_machine_is_assumed_where_nobody_says_which() -> None:
    run = _run(_SFT)
    assert _facts(run, "model.attn_impl", "load.dtype") == ("xformers", "bf16")
    assert run.level(f.model.attn_impl) < Level.ASSUMED
    assert run.level(f.load.dtype) is Level.ASSUMED


@pytest.mark.parametrize(("gpu", "dtype"), [("T4", "fp16"), ("RTX-4090", "bf16")])
def test_the_gpu_tells_the_dtype_that_unsloth_takes(gpu: str, dtype: str) -> None:
    run = _run(_SFT, hardware=gpu)
    assert run.plan.load.dtype == dtype
    assert run.level(f.load.dtype) < Level.ASSUMED


def test_a_model_without_kernels_of_unsloth_attends_as_transformers_lets_it() -> None:
    run = _run(_SFT.replace("unsloth/Llama-3.1-8B", "unsloth/gemma-3-4b-it"))
    assert run.plan.model.dims is not None
    assert run.level(f.model.attn_impl) is Level.ASSUMED


def test_full_finetuning_is_in_bf16_without_autocast() -> None:
    text = _SFT.replace("dtype = None,", "full_finetuning = True,")
    run = _run(text)
    fields = ("trainable.method", "quant.method", "precision.param", "precision.optim_state")
    assert _facts(run, *fields) == ("full", "none", "bf16", "bf16")
    assert run.plan.precision.autocast is False
    wide = _run(text.replace("= True,", "= True,\n    float32_mixed_precision = True,"))
    assert _facts(wide, "precision.param", "precision.compute") == ("fp32", "bf16")


@pytest.mark.parametrize(
    ("options", "method"),
    [
        ("load_in_4bit = False", "none"),
        ("load_in_4bit = False, load_in_8bit = True", "bnb8"),
        ("load_in_16bit = True", "none"),
    ],
)
def test_other_widths(options: str, method: str) -> None:
    run = _run(_SFT.replace("dtype = None", options))
    assert _facts(run, "quant.method", "trainable.method") == (method, "lora")


def test_an_engine_shares_the_trainers_weights_and_takes_its_part_of_the_gpu() -> None:
    options = "fast_inference = True, gpu_memory_utilization = 0.6"
    text = _SFT.replace("dtype = None", options).replace("SFT", "GRPO")
    card = "1xH100-80GB"
    awake = run_of({"train.py": text}, "train.py", hardware=card)
    alone = run_of({"train.py": text.replace("fast_inference = True, ", "")}, "train.py")
    rollout = awake.plan.objective.rollout
    assert (rollout.engine, rollout.gpu_mem_util, rollout.sleep) == ("vllm_colocate", 0.6, False)
    parts = awake.estimate.gpu.parts["backward"]
    whole = parts["engine"] + alone.estimate.gpu.parts["backward"]["parameters"]
    assert whole == pytest.approx(0.6 * 79.2 * 2**30, rel=0.03)
    variable = 'import os\n{}os.environ["UNSLOTH_VLLM_STANDBY"] = "1"\n'
    for standby in (
        text.replace("0.6", "0.6, unsloth_vllm_standby = True"),
        variable.format("") + text,
    ):
        asleep = run_of({"train.py": standby}, "train.py", hardware=card)
        assert asleep.estimate.gpu.parts["backward"]["engine"] == 0
        assert asleep.estimate.gpu.parts["forward"]["engine"] > 0
    unset = run_of({"train.py": variable.format("# ") + text}, "train.py", hardware=card)
    assert unset.plan.objective.rollout.sleep is False


@pytest.mark.parametrize(
    ("objective", "kind"), [("GRPO", "fused"), ("DPO", "full"), ("ORPO", "full")]
)
def test_the_fused_loss_needs_labels_that_preference_trainers_do_not_give(
    objective: str, kind: str
) -> None:
    assert _run(_SFT.replace("SFT", objective)).plan.loss.logits_materialised == kind


@pytest.mark.parametrize(
    "change",
    [
        ("trainer = SFTTrainer(", "trainer = SFTTrainer(\n    compute_metrics = score,"),
        (
            "trainer = SFTTrainer(",
            "trainer = SFTTrainer(\n    compute_metrics = score, preprocess_logits_for_metrics = best,",
        ),
        ("max_seq_length = 4096\n", 'os.environ["UNSLOTH_RETURN_LOGITS"] = "1"\n'),
    ],
)
def test_what_measures_the_model_has_all_logits_made(change: tuple[str, str]) -> None:
    before, after = change
    told = "max_seq_length = 4096\n"
    text = "import os\n" + _SFT.replace(before, after if before != told else told + after)
    assert _run(text).plan.loss.logits_materialised == "full"
    unset = text.replace('"] = "1"', '"] = "0"')
    assert (_run(unset).plan.loss.logits_materialised == "fused") is (unset != text)


def test_a_preference_trainer_itself_was_told_the_length() -> None:
    text = _SFT.replace("SFT", "DPO").replace(
        "    tokenizer = tok", "    max_length = 1024,\n    tokenizer = tok"
    )
    assert _run(text).plan.seq.max_len == 1024


def test_before_the_fused_loss_all_logits_were_made_and_handed_on_in_fp32() -> None:
    """65536 tokens of 128256 words: 15.7 GiB in half precision, 31.3 more as accelerate hands
    them on."""
    text = _SFT.replace("= 4096", "= 65536").replace("batch_size = 2", "batch_size = 1")
    old = run_of({"train.py": text, "requirements.txt": "unsloth==2024.5\n"}, "train.py")
    assert _facts(old, "loss.logits_materialised", "loss.algorithm") == ("full", "overwritten")
    logits = 65536 * 128_256
    assert old.estimate.gpu.parts["forward"]["logits"] == logits * (2 + 4)
    assert old.estimate.gpu.parts["backward"]["logits"] <= logits * 2 * 1.1
    new = run_of({"train.py": text, "requirements.txt": "unsloth==2024.12.1\n"}, "train.py")
    assert new.plan.loss.logits_materialised == "fused"
    assert new.estimate.gpu.parts["forward"]["logits"] < logits


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"batch.micro": 1, "batch.grad_accum": 8}, "per_device_train_batch_size = 1,"),
        ({"seq.max_len": 2048}, "max_seq_length = 2048"),
        ({"checkpointing.mode": "none"}, "use_gradient_checkpointing = False,"),
        ({"optimizer.kind": "paged_adamw8bit"}, 'optim = "paged_adamw_8bit",'),
        ({"save.save_only_model": True}, "save_only_model = True,"),
        ({"data.workers": 2}, "dataloader_num_workers = 2,"),
    ],
)
def test_wishes_are_written_where_they_belong(changes: dict[str, Any], line: str) -> None:
    assert line in fixed(_run, _SFT, changes)


def test_quantizing_switches_the_other_width_off() -> None:
    text = _SFT.replace("dtype = None", "load_in_16bit = True")
    after = fixed(_run, text, {"quant.method": "bnb4"})
    assert "load_in_16bit = False" in after
    assert "load_in_4bit = True" in after


@pytest.mark.parametrize(
    "field", ["loss.logits_materialised", "model.attn_impl", "trainable.method"]
)
def test_what_unsloth_decides_itself_is_no_wish(field: str) -> None:
    with pytest.raises(CannotEdit):
        _run(_SFT).what_if({field: "full"})


def test_its_command_line() -> None:
    line = "python unsloth-cli.py --load_in_4bit --max_seq_length 8192 --r 64 --bias none\n"
    run = _run(line, "train.sh")
    fields = ("model.id", "trainable.method", "trainable.r", "batch.micro", "batch.grad_accum")
    assert _facts(run, *fields) == ("unsloth/llama-3-8b", "qlora", 64, 2, 4)
    assert run.plan.seq.max_len == 8192
    plain = _run(line.replace("--load_in_4bit ", ""), "train.sh")
    assert _facts(plain, "quant.method", "trainable.method") == ("none", "lora")
    after = fixed(partial(_run, name="train.sh"), line, {"batch.micro": 1})
    assert "--per_device_train_batch_size 1" in after


def test_a_notebook_is_read_and_mended() -> None:
    first, second = _SFT.split("trainer = ")
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": code}
        for code in (
            ["!pip install unsloth\n", *first.splitlines(keepends=True)],
            f"trainer = {second}".splitlines(keepends=True),
        )
    ]  # fmt: skip
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    text = json.dumps(notebook, indent=2)
    changes = {"batch.micro": 1, "batch.grad_accum": 8}
    after = fixed(partial(_run, name="nb.ipynb"), text, changes)
    assert after == text.replace("batch_size = 2", "batch_size = 1").replace(
        "steps = 4", "steps = 8"
    )


def test_without_a_trainer_nothing_is_trained() -> None:
    text = _SFT[: _SFT.index("trainer = ")]
    workspace = Workspace(Path("/x"), {"a.py": text.encode()})
    assert not Linker(workspace, registry(), LinkOptions()).link(["a.py"]).runs


def test_the_loss_is_cut_as_unsloth_cuts_it() -> None:
    """TRL's 256 tokens a chunk count for nothing; a chunk of 4 GiB is a guess, and says so."""
    run = _run(_SFT)
    tokens, vocab = 2 * 4096, 128_256
    assert run.plan.loss.chunks == 16 * tokens * vocab / 2**32 // 4 * 4 + 4
    assert run.level(f.loss.chunks) is Level.ASSUMED
    assert _run(_SFT.replace("SFT", "DPO")).plan.loss.chunks is None


@pytest.mark.parametrize(
    ("steps", "micro"),
    [("4", 2), ("1", 8), ("1, num_generations = 2", 2), ("3, num_generations = 4", 4)],
)
def test_a_round_without_whole_groups_gets_a_larger_micro_batch(steps: str, micro: int) -> None:
    text = _SFT.replace("SFT", "GRPO").replace("steps = 4", f"steps = {steps}")
    run = run_of({"train.py": text}, "train.py", hardware="1xH100-80GB")
    assert run.plan.batch.micro == micro


@pytest.mark.parametrize("name", ["openai/gpt-oss-20b", "unsloth/gpt-oss-20b-unsloth-bnb-4bit"])
def test_experts_of_gpt_oss_are_in_four_bits_by_either_name(name: str) -> None:
    """Unsloth says that it trains in 14 GB."""
    text = _SFT.replace("unsloth/Llama-3.1-8B", name).replace("dtype = None", "load_in_4bit = True")
    run = _run(text, hardware="1xRTX-4090-24GB")
    assert run.plan.quant.quantises_moe_experts
    assert (run.estimate.gpu.components["parameters"] or 0) < 13 * 2**30


_CHOOSES = """\
import argparse
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer
parser = argparse.ArgumentParser()
parser.add_argument("--use_unsloth", type=bool, default=False)
use_unsloth = parser.parse_args().use_unsloth
if use_unsloth:
    import os
    from unsloth import FastLanguageModel
if use_unsloth:
    model, _ = FastLanguageModel.from_pretrained("unsloth/Llama-3.1-8B")
else:
    model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
SFTTrainer(model=model, train_dataset=data, args=SFTConfig(output_dir="o")).train()
"""


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        (_CHOOSES, "trl"),
        (_CHOOSES.replace("import argparse", "import unsloth, argparse"), "unsloth"),
        (_CHOOSES.replace("AutoModelForCausalLM.from", "FastLanguageModel.from"), "unsloth"),
    ],
)
def test_unsloth_that_one_may_ask_for_is_not_asked_for(text: str, framework: str) -> None:
    assert run_of({"train.py": text}).framework == framework


def test_it_lets_segments_grow_unless_told_how_to_allocate() -> None:
    """unsloth_zoo sets PYTORCH_ALLOC_CONF where nobody has."""
    assert _run(_SFT).plan.env.expandable_segments is True
    told = 'import os\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:128"\n' + _SFT
    assert _run(told).plan.env.expandable_segments is False


def test_of_batches_of_many_lengths_one_comes_near_the_most_of_a_chunk() -> None:
    """4 GiB are 268 million logits of 16 bytes: 2 x 4,096 tokens of 128,256 words make 1,051 million."""
    assert _run(_SFT).plan.loss.chunks == 4
    # 1,290 tokens of a known set make 331 million of them.
    known = _SFT.replace("dataset,", 'load_dataset("yahma/alpaca-cleaned"),')
    run = _run("from datasets import load_dataset\n" + known)
    assert run.plan.seq.longest is not None
    assert run.plan.loss.chunks == 1


def test_all_of_a_model_in_fp16_is_trained_in_fp32() -> None:
    whole = _SFT.replace(
        "max_seq_length = max_seq_length", "full_finetuning = True, load_in_4bit = False", 1
    )
    fields = ("precision.param", "precision.compute", "precision.autocast")
    assert _facts(_run(whole, hardware="1xT4-16GB"), *fields) == ("fp32", "fp16", True)
    assert _facts(_run(whole, hardware="1xA100-80GB"), *fields)[:2] == ("bf16", "bf16")


def test_towers_are_skipped_by_name() -> None:
    assert _run(_SFT).plan.quant.skip_modules == ("lm_head", "merger", "vision_tower")
    wide = _SFT.replace("max_seq_length = max_seq_length", "load_in_4bit = False", 1)
    assert _run(wide).plan.quant.skip_modules is None


def test_the_head_of_trl_is_unsloths_own() -> None:
    """unsloth 2026.10.9 models/rl.py patch_trl_fused_lm_head_kernel; TRL 0.24 was its last before 2026.10."""
    run = _run(_SFT)
    assert run.plan.loss.algorithm != "kernel_tiles"
    assert FUSES_HEAD not in run.open
