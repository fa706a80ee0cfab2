"""Calls that load or cast the model in branches between which options decide."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_SCRIPT = """\
from dataclasses import dataclass
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, HfArgumentParser, MptForCausalLM, Trainer, TrainingArguments

@dataclass
class Ours(TrainingArguments):
    width: int = 16
    tower: str = None
    wants_lora: bool = False
    name: str = 'Qwen/Qwen2.5-7B'

def main():
    (args,) = HfArgumentParser(Ours).parse_args_into_dataclasses()
    more = {{}}
    if args.width in [4, 8]:
        more.update(dict(quantization_config=BitsAndBytesConfig(load_in_4bit=args.width == 4)))
    if args.tower is not None:
        if 'mpt' in args.name:
            model = MptForCausalLM.from_pretrained(args.name, **more)
        else:
            model = AutoModelForCausalLM.from_pretrained(args.name, {told}, **more)
    else:
        model = AutoModelForCausalLM.from_pretrained(args.name, torch_dtype=torch.bfloat16, **more)
{cast}
    Trainer(model=model, args=args, train_dataset=data).train()

main()
"""
_TOLD = "torch_dtype=torch.bfloat16"


def _run(options: str, told: str = _TOLD, cast: str = "") -> Run:
    text = _SCRIPT.format(told=told, cast="\n".join(f"    {line}" for line in cast.splitlines()))
    line = f"python train.py --output_dir o --per_device_train_batch_size 1 {options}\n"
    return run_of({"train.py": text, "run.sh": line}, "run.sh")


def test_the_branch_that_is_taken_may_load_as_the_one_that_was_read() -> None:
    for width, method in ((4, "bnb4"), (16, "none")):
        run = _run(f"--tower clip --width {width}")
        assert (run.plan.quant.method, run.plan.load.dtype) == (method, "bf16")
        assert run.level(f.quant.method) < Level.UNREAD
        assert run.level(f.load.dtype) < Level.UNREAD


def test_what_the_branch_that_is_taken_is_told_otherwise_is_not_read() -> None:
    other = _run("--tower clip", told="torch_dtype=torch.float32")
    assert other.level(f.load.dtype) is Level.UNREAD
    assert other.level(f.quant.method) < Level.UNREAD
    without = _run("--tower clip --name mosaicml/mpt-7b")
    assert without.level(f.load.dtype) is Level.UNREAD


_CASTS = """\
if args.wants_lora:
    if args.width == 16:
        if args.bf16:
            model.to(torch.bfloat16)
        if args.fp16:
            model.to(torch.float16)
"""


@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        ("--wants_lora True --bf16 True", "bf16"),
        ("--wants_lora True --fp16 True", "fp16"),
        ("--wants_lora True --width 32 --fp16 True", "fp32"),
        ("--fp16 True", "fp32"),
    ],
)
def test_a_cast_behind_options_counts_where_they_lead_there(options: str, dtype: str) -> None:
    text = _SCRIPT.format(told=_TOLD, cast="").replace("torch.bfloat16", "torch.float32")
    cast = "".join(f"    {line}\n" for line in _CASTS.splitlines())
    text = text.replace("    Trainer(", f"{cast}    Trainer(", 1)
    line = (
        f"python train.py --output_dir o --per_device_train_batch_size 1 --tower clip {options}\n"
    )
    run = run_of({"train.py": text, "run.sh": line}, "run.sh")
    assert run.plan.load.dtype == dtype
    assert run.level(f.load.dtype) < Level.UNREAD


def test_a_cast_behind_a_comparison_that_only_running_tells_is_open() -> None:
    run = _run("--bf16 True", cast="if width_of(args) == 16:\n    model.to(torch.float32)")
    assert run.level(f.load.dtype) is Level.UNREAD
