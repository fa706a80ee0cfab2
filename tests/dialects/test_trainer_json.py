"""The Trainer's arguments in a JSON file, alone and behind a launch line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.linked import link

from oomlint.fix.edits import make_fix
from oomlint.linting.rule import Proposal

_ARGUMENTS: dict[str, Any] = {
    "model_name_or_path": "meta-llama/Llama-2-7b-hf",
    "output_dir": "out",
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "learning_rate": 1e-5,
    "num_train_epochs": 1,
    "bf16": True,
}


def _spelled(**more: Any) -> str:
    return json.dumps({**_ARGUMENTS, **more}, indent=2)


def test_alone() -> None:
    (run,) = link({"args.json": _spelled(gradient_checkpointing=True)}).runs
    assert run.framework == "hf-trainer"
    assert (run.plan.batch.micro, run.plan.checkpointing.mode) == (2, "full")


@pytest.mark.parametrize(
    "line", ["torchrun --nproc_per_node 4 run.py args.json", "torchrun --nproc_per_node 4 run.py --train_args_file args.json"]
)  # fmt: skip
def test_a_launch_line_gives_it_ranks(line: str) -> None:
    (run,) = link({"go.sh": f"{line}\n", "args.json": _spelled()}).runs
    assert (run.plan.parallel.world, run.plan.batch.micro) == (4, 2)
    fix = make_fix(run, Proposal.set("t", {"batch.micro": 1}), "gpu")
    assert fix is not None
    assert {edit.path for edit in fix.edits} == {"args.json"}


@pytest.mark.parametrize(
    "more",
    [{"stage": "sft"}, {"template": "qwen"}, {"train_type": "lora"}, {"dataset": "x", "cutoff_len": 1}, {"dataset": "x", "lora_rank": 8}],
)  # fmt: skip
def test_files_of_others(more: dict[str, Any]) -> None:
    assert link({"args.json": _spelled(**more)}).recognised.get("args.json") != "hf-trainer"


_QLORA = """\
import argparse
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, HfArgumentParser, TrainingArguments
from component.trainer import LoRATrainer
from peft import LoraConfig, get_peft_model

parser = argparse.ArgumentParser()
parser.add_argument("--train_args_file", type=str)
file = parser.parse_args().train_args_file
args, training_args = HfArgumentParser((Arguments, TrainingArguments)).parse_json_file(file)
model = AutoModelForCausalLM.from_pretrained(
    args.model_name_or_path, quantization_config=BitsAndBytesConfig(load_in_4bit=True)
)
model = get_peft_model(model, LoraConfig(r=args.lora_rank))
LoRATrainer(model=model, args=training_args, train_dataset=data).train()
"""


def test_the_rank_of_an_adapter_is_no_mark_of_llama_factory() -> None:
    """Its training names a data set as well; the script says how the model is loaded."""
    files = {
        "go.sh": "target=/data/p/args/a.json\n"
        "torchrun --nproc_per_node 1 /data/p/train.py --train_args_file ${target}\n",
        "train.py": _QLORA,
        "args/a.json": _spelled(lora_rank=64, train_file="a.jsonl", max_seq_length=1400),
    }
    (run,) = link(files).runs
    assert (run.framework, run.stray) == ("hf-trainer", ())
    assert (run.plan.trainable.method, run.plan.quant.method) == ("qlora", "bnb4")
    assert (run.plan.trainable.r, run.plan.parallel.world) == (64, 1)


def test_what_is_no_set_of_arguments() -> None:
    nested = json.dumps({"config": _ARGUMENTS})
    few = json.dumps({k: _ARGUMENTS[k] for k in ("output_dir", "per_device_train_batch_size")})
    assert not link({"a.json": nested, "b.json": few}).recognised


def test_firefly() -> None:
    firefly = {"train_file": "a.jsonl", "template_name": "qwen", "max_seq_length": 1024}
    (run,) = link({"args.json": _spelled(**firefly)}).runs
    assert (run.plan.trainable.method, run.plan.quant.method) == ("qlora", "bnb4")
    assert (run.plan.trainable.r, run.plan.load.dtype) == (64, "bf16")
    (full,) = link({"args.json": _spelled(**firefly, train_mode="full", task_type="dpo")}).runs
    assert (full.plan.trainable.method, full.plan.objective.ref_model) == ("full", "copy")
