"""A command with a trainer's options, for a program that goes through its loop in a class of its own."""

from __future__ import annotations

import pytest
from tests.linked import report_of

_PROGRAM = """\
import torch
import transformers
{imports}

class DPOTrainer{bases}:
    def step(self, batch):
        loss = self.model(**batch).loss
        loss.backward()

(args,) = transformers.HfArgumentParser(transformers.TrainingArguments).parse_args_into_dataclasses()
model = transformers.AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
trainer = DPOTrainer({given})
{trains}
"""
_COMMAND = (
    "python train.py --per_device_train_batch_size 4 --learning_rate 1e-5 --num_train_epochs 1 --bf16 True "
    "--gradient_accumulation_steps 2 --logging_steps 1 --output_dir out\n"
)


@pytest.mark.parametrize(
    ("imports", "bases", "trains", "drives"),
    [
        ("", "", "for batch in loader:\n    trainer.step(batch)", False),
        ("", "(object)", "for batch in loader:\n    trainer.step(batch)", False),
        ("from transformers import Trainer", "(Trainer)", "trainer.train()", True),
    ],
)
def test_a_class_that_is_derived_from_nothing_is_no_librarys_trainer(
    imports: str, bases: str, trains: str, drives: bool
) -> None:
    given = "model=model, args=args, train_dataset=data" if drives else "model, beta=0.1"
    program = _PROGRAM.format(imports=imports, bases=bases, trains=trains, given=given)
    report = report_of({"train.py": program, "run.sh": _COMMAND}, hardware="8xA100-80GB")
    assert ("OOM705" in {each.rule.code for each in report.diagnoses}) is drives
