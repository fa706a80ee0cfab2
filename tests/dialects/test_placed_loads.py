"""What a script that says where its weights go can be told of ZeRO's stages."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

_SCRIPT = """\
import os, torch
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

(how,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", torch_dtype=torch.half{more})
trainer = Trainer(model=model, args=how, train_dataset=data)
trainer.train()
"""
_FILES = {
    "ds.json": '{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}',
    "run.sh": "deepspeed --num_gpus 4 train.py --deepspeed ds.json --output_dir out --per_device_train_batch_size 1\n",
}


@pytest.mark.parametrize(
    "device_map", ['"auto"', '{"": int(os.environ.get("LOCAL_RANK") or 0)}', '"cuda:0"']
)
def test_stage_3_is_not_written_where_transformers_refuses_a_device_map(device_map: str) -> None:
    run = run_of({"train.py": _SCRIPT.format(more=f", device_map={device_map}"), **_FILES})
    with pytest.raises(CannotEdit, match="device_map"):
        run.dialect.express({f.parallel.zero.stage: 3}, run.cells)
    assert run.dialect.express({f.parallel.zero.stage: 1}, run.cells)


@pytest.mark.parametrize("more", ["", ", device_map=None"])
def test_stage_3_is_written_where_nothing_says_where_the_weights_go(more: str) -> None:
    run = run_of({"train.py": _SCRIPT.format(more=more), **_FILES})
    assert run.dialect.express({f.parallel.zero.stage: 3}, run.cells)
