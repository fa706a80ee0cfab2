"""An adapter whose config one of several branches makes, or a function of the script returns."""

from __future__ import annotations

from typing import Any

import pytest
from tests.linked import run_of

from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_SCRIPT = """\
from dataclasses import dataclass, field
from peft import LoHaConfig, LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, HfArgumentParser, TrainingArguments
from trl import SFTTrainer

@dataclass
class ScriptArguments:
    model_name: str = field(default="Qwen/Qwen2.5-7B")
    method: str = field(default="small")
    use_4bit: bool = field(default=True)

{body}
trainer = SFTTrainer(model=model, train_dataset=data, peft_config=peft_config,
    args=TrainingArguments(output_dir="o", per_device_train_batch_size=2, bf16=True))
trainer.train()
"""
_PARSED = "script_args = HfArgumentParser(ScriptArguments).parse_args_into_dataclasses()[0]\n"
_ARMS = """\
if {0}.method == "small":
    peft_config = LoraConfig(r=8, target_modules=["q_proj"])
elif {0}.method == "big":
    peft_config = LoraConfig(r=64, target_modules=["q_proj"])
elif {0}.method == "loha":
    peft_config = LoHaConfig(r=16, target_modules=["q_proj"])
"""
_ENDS = "else:\n    raise ValueError\n"
_LOAD = (
    "model = AutoModelForCausalLM.from_pretrained({0}.model_name, torch_dtype='bfloat16', {1})\n"
)
_QUANTIZER = "quantization_config=BitsAndBytesConfig(load_in_4bit={0}.use_4bit)"


def _indented(code: str) -> str:
    return "".join(f"    {line}\n" for line in code.splitlines())


_FLAT = _PARSED + _LOAD.format("script_args", "") + _ARMS.format("script_args")
_BUILT = (
    "def build(args):\n"
    + _indented(_LOAD.format("args", _QUANTIZER.format("args")) + _ARMS.format("args") + _ENDS)
    + "    return model, peft_config\n"
    + _PARSED
    + "model, peft_config = build(script_args)\n"
)


def _run(body: str, options: str = "") -> Run:
    files = {"train.py": _SCRIPT.format(body=body), "run.sh": f"python train.py {options}\n"}
    return run_of(files, "run.sh")


@pytest.mark.parametrize("body", [_FLAT, _FLAT + _ENDS, _BUILT])
@pytest.mark.parametrize(("options", "rank"), [("", 8), ("--method big", 64)])
def test_the_arm_that_the_command_takes_says_the_config(body: str, options: str, rank: int) -> None:
    run = _run(body, options)
    assert run.plan.trainable.r == rank
    assert run.plan.trainable.method in ("lora", "qlora")


def test_of_another_kind_of_adapter_its_rank_is_not_read() -> None:
    run = _run(_FLAT, "--method loha")
    assert run.level(f.trainable.r) is Level.UNREAD
    assert run.level(f.trainable.method) < Level.UNREAD


def test_a_value_before_the_branches_is_that_of_none_of_them() -> None:
    before = _PARSED + _LOAD.format("script_args", "") + "peft_config = None\n"
    body = before + _ARMS.format("script_args")
    assert _run(body, "--method none").plan.trainable.method == "full"
    assert _run(body, "--method big").plan.trainable.r == 64


def test_branches_apart_are_no_choice() -> None:
    arms = _ARMS.format("script_args").replace("elif", "if")
    assert _run(_PARSED + _LOAD.format("script_args", "") + arms).plan.trainable.r is None


@pytest.mark.parametrize(("options", "method"), [("", "bnb4"), ("--use_4bit False", "none")])
def test_options_are_the_same_by_the_name_of_a_parameter(options: str, method: Any) -> None:
    assert _run(_BUILT, options).plan.quant.method == method
    run = _run(_BUILT, f"{options} --model_name Qwen/Qwen2.5-0.5B")
    assert run.plan.model.id == "Qwen/Qwen2.5-0.5B"
    assert run.level(f.model.id) is Level.STATED


def test_an_option_that_is_changed_on_the_way_is_not_known() -> None:
    changed = _BUILT.replace(
        "model, peft_config =", "script_args.use_4bit = asks()\nmodel, peft_config ="
    )
    assert _run(changed).level(f.quant.method) is Level.UNREAD


_OF_DICTIONARY = """\
import yaml
from peft import get_peft_config, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

told = yaml.safe_load(open("tune.yaml"))
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
model = get_peft_model(model, get_peft_config({}))
Trainer(model=model, args=TrainingArguments("out", per_device_train_batch_size=1), train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("dictionary", "method"),
    [
        ('{"peft_type": "LORA", "r": 24, "target_modules": ["q_proj"]}', "lora"),
        ('told["adapter"]', "lora"),
        ('{"peft_type": "OFT", "r": 24}', None),
        ("made()", None),
    ],
)
def test_peft_makes_an_adapter_of_a_dictionary(dictionary: str, method: str | None) -> None:
    files = {
        "train.py": _OF_DICTIONARY.replace("{}", dictionary),
        "tune.yaml": "adapter:\n  peft_type: LORA\n  r: 24\n  target_modules: [q_proj]\n",
    }
    run = run_of(files, "train.py")
    assert run.plan.trainable.r == (24 if method else None)
    is_known = run.level(f.trainable.method) is not Level.UNREAD
    assert is_known is (method is not None)
