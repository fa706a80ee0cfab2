"""OOM201: what Adam keeps, where it is known and where a file that is not there may share it."""

from __future__ import annotations

import pytest
from tests.linked import report_of

_SCRIPT = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-13b-hf", torch_dtype="bfloat16")
Trainer(model=model, args=args, train_dataset=load()).train()
"""
_LINE = "deepspeed train.py --output_dir out --deepspeed zero.json --bf16 True --gradient_checkpointing True\n"
_ZERO_3 = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}\n'


@pytest.mark.parametrize(
    ("config", "amount"),
    # 13.02B parameters at 12 bytes, over four cards and on each.
    [({"zero.json": _ZERO_3}, " keep 36.4 GiB "), ({}, " keep 36.4 to 145 GiB ")],
)
def test_states_that_an_unread_file_may_share_are_told_with_both_amounts(
    config: dict[str, str], amount: str
) -> None:
    files = {"train.py": _SCRIPT, "run.sh": _LINE, **config}
    found = report_of(files, hardware="4xRTX-4090-24GB").diagnoses
    (told,) = [each.finding.text for each in found if each.finding.rule.code == "OOM201"]
    assert amount in told
