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


_OVER_A_MODEL = """\
from peft import {made}, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", load_in_4bit=True)
model = prepare_model_for_kbit_training(model)
Trainer(
    model={made}.from_pretrained({given}"outputs/adapter", is_trainable=True),
    train_dataset=data, args=TrainingArguments(output_dir="o"),
).train()
"""


def test_an_adapter_goes_over_the_model_that_was_loaded() -> None:
    run = run_of({"train.py": _OVER_A_MODEL.format(made="PeftModel", given="model, ")})
    assert (run.plan.model.id, run.plan.quant.method) == ("Qwen/Qwen2.5-7B", "bnb4")
    itself = _OVER_A_MODEL.format(made="AutoPeftModelForCausalLM", given="")
    assert run_of({"train.py": itself}).plan.quant.method != "bnb4"


_OWN_OPTIONS = """\
from dataclasses import dataclass, field
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, HfArgumentParser, Trainer, TrainingArguments
@dataclass
class Own:
    model_name_or_path: str = field(default="Qwen/Qwen2.5-7B")
    model_revision: str = field(default="main")
    load_in_4bit: bool = field(default=True)
own = HfArgumentParser(Own).parse_args_into_dataclasses()[0]
packed = BitsAndBytesConfig(load_in_4bit=own.load_in_4bit, load_in_8bit=not own.load_in_4bit)
model = AutoModelForCausalLM.from_pretrained(own.model_name_or_path, quantization_config=packed)
Trainer(model=model, args=TrainingArguments(output_dir="o"), train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("options", "method"),
    [("", "bnb4"), (" --load_in_4bit False", "bnb8"), (" --load_in_4bit True", "bnb4")],
)
def test_what_an_option_denies_follows_the_command(options: str, method: str) -> None:
    run = run_of({"train.py": _OWN_OPTIONS, "run.sh": f"python train.py{options}\n"})
    assert run.plan.quant.method == method


@pytest.mark.parametrize(
    ("option", "model"),
    [
        ("--model_name", "Qwen/Qwen2.5-1.5B"),
        ("--model_name_or_path", "Qwen/Qwen2.5-1.5B"),
        ("--model", "Qwen/Qwen2.5-7B"),  # of two: argparse refuses it
    ],
)
def test_an_option_that_is_written_as_far_as_tells_it_apart(option: str, model: str) -> None:
    line = f"python train.py {option} Qwen/Qwen2.5-1.5B\n"
    run = run_of({"train.py": _OWN_OPTIONS, "run.sh": line})
    assert run.plan.model.id == model
