"""Scripts over the Trainer that load the model in one of several ways."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

_SCRIPT = """\
import argparse
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments
parser = argparse.ArgumentParser()
parser.add_argument("--bits_wanted", type=int, default=None)
parser.add_argument("--per_device_train_batch_size", type=int, default=1)
args = parser.parse_args()


def load(bits_wanted):
    if bits_wanted is None:
        return AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", torch_dtype="bfloat16")
    how = BitsAndBytesConfig(load_in_8bit=True)
    return AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", quantization_config=how)


model = load(args.bits_wanted)
Trainer(
    model=model,
    train_dataset=data,
    args=TrainingArguments(output_dir="o", per_device_train_batch_size=args.per_device_train_batch_size, bf16=True),
).train()
"""


@pytest.mark.parametrize(
    ("options", "is_unread"),
    [("", False), (" --per_device_train_batch_size 2", False), (" --bits_wanted 8", True)],
)
def test_call_that_the_options_do_not_lead_to_tells_nothing(
    options: str, *, is_unread: bool
) -> None:
    run = run_of({"train.py": _SCRIPT, "run.sh": f"python train.py{options}\n"})
    assert (run.level(f.quant.method) is Level.UNREAD) is is_unread
    assert (run.level(f.load.dtype) is Level.UNREAD) is is_unread
