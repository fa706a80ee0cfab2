"""Scripts over the Trainer that choose themselves which parameters are trained."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.plan.fields import f
from oomlint.runs.run import Run

_LOOP = "for p in model.parameters():\n    p.requires_grad = {}\n"
_BY_NAME = "for name, p in model.named_parameters():\n    if 'head' not in name:\n        p.requires_grad_(False)\n"
_HELPER = "def freeze(module):\n    for p in module.parameters():\n        p.requires_grad = False\n\n\nfreeze({})\n"
_LORA = "model = get_peft_model(model, LoraConfig(r=8, target_modules=['q_proj']))\n"


def _run(body: str, *, options: str = "") -> Run:
    script = (
        "import argparse\n"
        "from peft import LoraConfig, get_peft_model\n"
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--only_head', type=lambda word: word == 'True')\n"
        "args = parser.parse_args()\n"
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B', torch_dtype='bfloat16')\n"
        f"{body}"
        "trainer = Trainer(model=model, train_dataset=data,\n"
        "    args=TrainingArguments(output_dir='o', per_device_train_batch_size=2, bf16=True))\n"
        "trainer.train()\n"
    )
    return run_of({"train.py": script, "train.sh": f"python train.py{options}\n"})


def _is_open(run: Run) -> bool:
    return f.trainable.method in run.unreadable


@pytest.mark.parametrize(
    "body",
    [
        "model.requires_grad_(False)\n",
        "model.model.requires_grad_(args.only_head)\n",
        _LOOP.format(False),
        _LOOP.format("args.only_head"),
        _BY_NAME,
        _HELPER.format("model.model"),
    ],
)
def test_a_script_that_chooses_leaves_open_what_is_trained(body: str) -> None:
    assert _is_open(_run(body))


@pytest.mark.parametrize(
    "body",
    [
        "",
        "model.requires_grad_(True)\n",
        _LOOP.format(True),
        "ref_model.requires_grad_(False)\n",
        _LOOP.replace("model", "teacher").format(False),
        _HELPER.format("reward_model"),
        "batch.requires_grad = False\n",
    ],
)
def test_all_is_trained_where_nothing_that_is_trained_is_frozen(body: str) -> None:
    run = _run(body)
    assert not _is_open(run)
    assert run.plan.trainable.method == "full"


def test_an_adapter_is_trained_whatever_was_frozen_before() -> None:
    run = _run(_LOOP.format(False) + _LORA)
    assert not _is_open(run)
    assert run.plan.trainable.method == "lora"


def test_a_statement_under_a_switch_counts_where_that_is_on() -> None:
    body = "if args.only_head:\n    model.requires_grad_(False)\n"
    assert _is_open(_run(body, options=" --only_head True"))
    assert not _is_open(_run(body, options=" --only_head False"))
    assert _is_open(_run(body))  # what the option is by default is not read


@pytest.mark.parametrize(("lora", "is_open"), [("False", True), ("True", False)])
def test_what_an_adapter_would_be_of_settles_nothing_where_there_is_none(
    lora: str, is_open: bool
) -> None:
    launch = (
        "torchrun --nproc_per_node 4 train.py --model_name_or_path Qwen/Qwen2.5-7B --output_dir o --bf16 True "
        "--per_device_train_batch_size 1 --learning_rate 1e-5 --freeze_backbone True "
        f"--use_peft {lora} --lora_target_modules q_proj\n"
    )
    assert _is_open(run_of({"train.sh": launch})) is is_open


# A script of LLaVA's names, which a profile tells of, with a switch of its author's own.
_OF_A_PROFILE = """\
import os
import transformers
from llava.train.llava_trainer import LLaVATrainer
def train():
    parser = transformers.HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    model = LlavaLlamaForCausalLM.from_pretrained(model_args.model_name_or_path)
    if os.environ.get("ONLY_HEAD", None):
        for name, p in model.named_parameters():
            p.requires_grad = "head" in name
    LLaVATrainer(model=model, args=training_args).train()
if __name__ == "__main__":
    train()
"""
_OF_LLAVA = (
    "deepspeed llava/train/train_mem.py --deepspeed zero2.json --model_name_or_path lmsys/vicuna-7b-v1.5 --version v1 "
    "--vision_tower openai/clip-vit-large-patch14-336 --bf16 True --output_dir o --per_device_train_batch_size 1\n"
)


@pytest.mark.parametrize(
    ("before", "is_open"),
    [("export ONLY_HEAD=1\n", True), ("export ONLY_HEAD=\n", False), ("", False)],
)
def test_a_variable_that_a_profile_does_not_know_leads_to_a_choice(
    before: str, is_open: bool
) -> None:
    files = {
        "train.sh": before + _OF_LLAVA,
        "llava/train/train_mem.py": "from llava.train.train import train\ntrain()\n",
        "llava/train/train.py": _OF_A_PROFILE,
        "zero2.json": '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}',
    }
    assert _is_open(run_of(files, "train.sh")) is is_open
