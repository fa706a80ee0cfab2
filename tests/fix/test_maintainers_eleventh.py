"""What an eleventh reading of diffs in public repositories found; the projects here are written anew."""

from __future__ import annotations

import pytest
from tests.fixing import repaired

_FOUR_ON_TWO = (
    "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 4 train.py {options} --bf16 True\n"
)
_PARSED = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments
from ours import model_of
(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
Trainer(model=model_of(), args=args, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("options", "becomes", "said"),
    [
        ("--gradient_accumulation_steps 3", "--gradient_accumulation_steps 6", "over 6 micro"),
        ("--gradient_accumulation_steps $STEPS", "$STEPS", "with 1/2 of the global batch"),
    ],
)
def test_fewer_processes_keep_a_batch_that_nobody_knows_or_say_what_becomes_of_it(
    options: str, becomes: str, said: str
) -> None:
    batch = f"--output_dir out --per_device_train_batch_size $BATCH {options}"
    command = _FOUR_ON_TWO.format(options=batch)
    result = repaired({"train.py": _PARSED, "run.sh": command}, unsafe=True)
    (applied,) = (d for d in result.report.applied if d.rule.code == "OOM706")
    assert applied.fix is not None
    assert said in applied.fix.title
    text = result.texts["run.sh"].decode()
    assert "--nproc_per_node 2" in text
    assert becomes in text
