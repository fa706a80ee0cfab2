"""What a tenth reading of diffs in public repositories found; the projects here are written anew."""

from __future__ import annotations

import pytest
from tests.fixing import repaired

_SCRIPT = """\
import torch
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained(
    "openlm-research/open_llama_13b", torch_dtype=torch.half{argument}
)
Trainer(model=model, args=args, train_dataset=data).train()
"""
_LAUNCH = (
    "deepspeed --num_gpus 8 train.py --deepspeed ds.json --output_dir out --fp16 True "
    "--per_device_train_batch_size 1 --gradient_checkpointing True --max_steps 500\n"
)
_STAGE_2 = '{"zero_optimization": {"stage": 2}, "fp16": {"enabled": "auto"}}\n'


@pytest.mark.parametrize(
    ("argument", "is_sharded"), [("", True), (', device_map={"": args.local_rank}', False)]
)
def test_no_stage_3_for_a_load_whose_device_map_it_refuses(argument: str, is_sharded: bool) -> None:
    files = {
        "train.py": _SCRIPT.format(argument=argument),
        "run.sh": _LAUNCH,
        "ds.json": _STAGE_2,
    }
    result = repaired(files, hardware="8xA100-40GB")
    assert any(d.rule.code == "OOM100" for d in (result.before or result.report).diagnoses)
    is_stage_3 = b'"stage": 3' in b"".join(result.texts.values())
    assert is_stage_3 is is_sharded
