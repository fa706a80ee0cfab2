"""Statements of a script that change its training arguments."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.plan.fields import f
from oomlint.runs.run import Run

SCRIPT = """\
from dataclasses import dataclass, field
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

@dataclass
class Own:
    model_name_or_path: str = "Qwen/Qwen2.5-7B"
    use_peft: bool = False
    mode: str = "a"

parser = HfArgumentParser((Own, TrainingArguments))
own, training_args = parser.parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained(own.model_name_or_path)
{statement}
Trainer(model=model, args=training_args, train_dataset=data).train()
"""
LINE = "python train.py --output_dir out --per_device_train_batch_size 2 --gradient_checkpointing True --num_train_epochs 1 --learning_rate 1e-5"


def _run(statement: str, more: str = "") -> Run:
    files = {"train.py": SCRIPT.format(statement=statement), "run.sh": f"{LINE} {more}\n"}
    return run_of(files)


def test_a_statement_counts_whatever_the_command_line_says() -> None:
    assert _run("pass").plan.checkpointing.mode == "full"
    assert _run("training_args.gradient_checkpointing = False").plan.checkpointing.mode == "none"
    batch = _run("training_args.per_device_train_batch_size = 16")
    assert batch.plan.batch.micro == 16
    location = batch.settings[f.batch.micro].origin.location
    assert location is not None
    assert location.path == "train.py"


@pytest.mark.parametrize(("more", "mode"), [("--use_peft", "none"), ("", "full")])
def test_a_switch_decides_whether_it_is_reached(more: str, mode: str) -> None:
    statement = "if own.use_peft:\n    training_args.gradient_checkpointing = False"
    assert _run(statement, more).plan.checkpointing.mode == mode


def test_behind_a_test_that_nobody_can_tell_it_is_not_read() -> None:
    statement = "if len(data) > 4:\n    training_args.per_device_train_batch_size = {}"
    run = _run(statement.format(16))
    assert run.plan.batch.micro is None
    assert f.batch.micro in run.unreadable
    assert _run(statement.format(2)).plan.batch.micro == 2


def test_other_objects_are_none_of_its_business() -> None:
    assert _run("own.per_device_train_batch_size = 16").plan.batch.micro == 2
