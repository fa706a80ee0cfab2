"""Models in a folder that only the machine knows."""

from __future__ import annotations

import pytest
from tests.linked import PROGRAM, run_of

from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

_OWN = """\
import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
parser = argparse.ArgumentParser()
parser.add_argument('--base')
ours = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained(ours.base)
args = TrainingArguments(output_dir='o', per_device_train_batch_size=2)
Trainer(model=model, args=args, train_dataset=data).train()
"""
_LINE = (
    "torchrun --nproc_per_node 8 {script} --{option} {path} --output_dir o"
    " --per_device_train_batch_size 1 --learning_rate 1e-5 --num_train_epochs 1\n"
)


@pytest.mark.parametrize(
    "path",
    [
        "$MODELS/Qwen2.5-7B-Instruct",
        '"${ROOT}/weights/Qwen/Qwen2.5-7B-Instruct/"',
        "$(here)/Qwen2.5-7B-Instruct",
    ],
)
def test_the_end_of_a_path_names_the_model(path: str) -> None:
    for script, option, text in (
        ("train.py", "model_name_or_path", PROGRAM),
        ("own.py", "base", _OWN),
    ):
        line = _LINE.format(script=script, option=option, path=path)
        run = run_of({script: text, "run.sh": line}, "run.sh")
        assert run.plan.model.dims is not None
        assert run.plan.model.dims.layers == 28


@pytest.mark.parametrize("path", ["$MODEL", "$MODELS/final", "$MODELS/"])
def test_an_end_that_is_no_model_names_none(path: str) -> None:
    line = _LINE.format(script="train.py", option="model_name_or_path", path=path)
    run = run_of({"train.py": PROGRAM, "run.sh": line}, "run.sh")
    assert run.level(f.model.id) is Level.UNREAD
