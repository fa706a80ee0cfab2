"""Records of a project's own that are made of what a config file says, and copies of its sections."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.plan import Plan

_RECORD = """\
import yaml
from dataclasses import dataclass, field

@dataclass
class Settings:
    model: str = "Qwen/Qwen2.5-0.5B"
    batch: int = 1
    steps: int = field(default=16)
    targets: list = field(default_factory=lambda: ["q_proj"])
{body}
"""
_TRAINS = """\
import argparse
from peft import LoraConfig
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from settings import {imported}

def main(path):
    settings = {made}
{then}
    model = AutoModelForCausalLM.from_pretrained({holder}.model)
    options = TrainingArguments(output_dir="o", per_device_train_batch_size={holder}.batch,
        gradient_accumulation_steps={holder}.steps)
    Trainer(model=model, args=options, train_dataset=rows).train()

parser = argparse.ArgumentParser()
parser.add_argument("--config", default="run.yaml")
args = parser.parse_args()
main(args.config)
"""
_FILE = "model: Qwen/Qwen2.5-1.5B\nbatch: 2\n"
_BY_CLASS = """
    @classmethod
    def load(cls, path):
        with open(path) as file:
            return cls(**yaml.safe_load(file))
"""
_KNOWN_ALONE = """
    @classmethod
    def load(cls, path):
        with open(path) as file:
            said = yaml.safe_load(file)
        return cls(**{k: v for k, v in said.items() if k in cls.__dataclass_fields__})
"""


def _plan(
    body: str,
    made: str = "Settings.load(path)",
    *,
    imported: str = "Settings",
    then: str = "",
    holder: str = "settings",
    file: str = _FILE,
) -> Plan:
    script = _TRAINS.format(imported=imported, made=made, then=then, holder=holder)
    files = {"train.py": script, "settings.py": _RECORD.format(body=body), "run.yaml": file}
    return run_of(files, "train.py").plan


@pytest.mark.parametrize("body", [_BY_CLASS, _KNOWN_ALONE])
def test_a_record_says_what_its_file_says_and_else_its_defaults(body: str) -> None:
    plan = _plan(body)
    assert plan.model.id == "Qwen/Qwen2.5-1.5B"
    assert plan.batch.micro == 2
    assert plan.batch.grad_accum == 16


@pytest.mark.parametrize(
    ("body", "then"),
    [
        (_BY_CLASS, "    settings.batch = measure()"),
        (f"{_BY_CLASS}\n    def __post_init__(self):\n        self.batch *= 2\n", ""),
    ],
    ids=["by the script", "by the class"],
)
def test_what_is_made_of_it_later_the_file_does_not_say(body: str, then: str) -> None:
    assert _plan(body, then=then).batch.micro != 2


_OF_PARTS = """
@dataclass
class Whole:
    run: Settings
    seed: int = 0

def load(path):
    with open(path) as file:
        raw = yaml.safe_load(file)
    return Whole(run=Settings(**raw["run"]), seed=raw.get("seed", 0))
"""
_SECTION = "run:\n  model: Qwen/Qwen2.5-1.5B\n  batch: 2\n"


def test_a_record_of_records_each_of_a_section() -> None:
    plan = _plan(_OF_PARTS, "load(path)", imported="load", holder="settings.run", file=_SECTION)
    assert plan.model.id == "Qwen/Qwen2.5-1.5B"
    assert plan.batch.micro == 2
    assert plan.batch.grad_accum == 16


def test_another_record_in_the_place_of_one() -> None:
    then = "    settings.run = tuned()"
    plan = _plan(
        _OF_PARTS, "load(path)", imported="load", then=then, holder="settings.run", file=_SECTION
    )
    assert plan.batch.micro != 2


_ADAPTS = """\
import yaml
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

config = yaml.safe_load(open("run.yaml"))
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
lora = None
if config.get("lora", {{}}).get("enabled", False):
    said = {copied}
    said.pop("enabled", None)
    lora = LoraConfig(**said)
SFTTrainer(model=model, args=SFTConfig(output_dir="o"), train_dataset=rows, peft_config=lora).train()
"""


@pytest.mark.parametrize("copied", ['dict(config["lora"])', 'config["lora"].copy()'])
@pytest.mark.parametrize(("enabled", "method"), [("true", "lora"), ("false", "full")])
def test_what_a_script_takes_out_of_a_copy_is_still_in_the_section(
    copied: str, enabled: str, method: str
) -> None:
    file = f"lora:\n  enabled: {enabled}\n  r: 32\n"
    run = run_of({"train.py": _ADAPTS.format(copied=copied), "run.yaml": file}, "train.py")
    assert run.plan.trainable.method == method
    assert run.plan.trainable.r == (32 if method == "lora" else None)
