"""Adapters on stacked experts: what they take, and what PEFT refuses of them."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.linting.rule import Finding, Severity
from oomlint_rules.precision.adapters_on_stacked_experts import AdaptersOnStackedExperts
from oomlint_rules.precision.stacked_experts_refuse_adapter import StackedExpertsRefuseAdapter

_SCRIPT = """\
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
data = load_dataset("json", data_files="rows.jsonl")["train"]
model = AutoModelForCausalLM.from_pretrained("{name}")
model = get_peft_model(model, LoraConfig(r=16, {given}))
Trainer(model, TrainingArguments("out"), data_collator=collate, train_dataset=data).train()
"""
_SEVEN = (
    'target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]'
)
_STACKS = "transformers==5.3.0\npeft=={}\n"


def _refused(given: str, pins: str, name: str = "Qwen/Qwen3-30B-A3B") -> tuple[Finding, ...]:
    files = {"train.py": _SCRIPT.format(name=name, given=given), "requirements.txt": pins}
    return tuple(StackedExpertsRefuseAdapter().check(run_of(files, "train.py")))


@pytest.mark.parametrize(
    ("given", "peft", "title"),
    [
        (f"{_SEVEN}, lora_dropout=0.05", "0.19.1", "adapters on stacked experts take no dropout, and it is 0.05"),
        (f"{_SEVEN}, use_dora=True", "0.21.2", "adapters on stacked experts cannot be DoRA's"),
        ('target_modules=["q_proj", "mlp.up_proj"]', "0.20.0", "PEFT takes up_proj of this model only together with gate_proj"),
        ('target_modules="all-linear"', "0.19.1", "PEFT 0.19 finds no layers by all-linear in this model"),
        ("lora_alpha=8", "0.21.2", "PEFT has to be told which layers of this model carry adapters"),
        (
            'target_modules=["q_proj"], target_parameters=["experts.down_proj"], lora_dropout=0.1',
            "0.17.1",
            "adapters on stacked experts take no dropout, and it is 0.1",
        ),
    ],
)  # fmt: skip
def test_what_peft_refuses_ends_the_run(given: str, peft: str, title: str) -> None:
    (found,) = _refused(given, _STACKS.format(peft))
    assert found.message == title
    assert found.severity is Severity.ERROR
    assert found.ends_the_run


@pytest.mark.parametrize(
    ("given", "pins"),
    [
        (f"{_SEVEN}, lora_dropout=0.05", _STACKS.format("0.18.1")),
        (f"{_SEVEN}, lora_dropout=0.05", "transformers==4.57.1\npeft==0.21.2\n"),
        (_SEVEN, _STACKS.format("0.21.2")),
        ('target_modules="all-linear"', _STACKS.format("0.20.0")),
        ('target_modules=["q_proj", "v_proj"], lora_dropout=0.05', _STACKS.format("0.21.2")),
    ],
)
def test_what_it_takes_is_not_told_of(given: str, pins: str) -> None:
    assert _refused(given, pins) == ()


def test_a_dense_model_takes_all_of_it() -> None:
    pins = _STACKS.format("0.21.2")
    assert _refused(f"{_SEVEN}, lora_dropout=0.05", pins, "Qwen/Qwen3-8B") == ()


@pytest.mark.parametrize("pins", ["torch\n", "transformers>=4.50\npeft==0.21.2\n"])
def test_it_is_a_remark_where_earlier_releases_may_run(pins: str) -> None:
    (found,) = _refused(f"{_SEVEN}, lora_dropout=0.05", pins)
    assert found.severity is Severity.INFO
    assert not found.ends_the_run


def test_experts_whose_stacks_names_reach_are_told_with_what_they_take() -> None:
    files = {
        "train.py": _SCRIPT.format(name="Qwen/Qwen3-30B-A3B", given=_SEVEN),
        "requirements.txt": _STACKS.format("0.21.2"),
    }
    run = run_of(files, "train.py", hardware="1xH100-80GB")
    (found,) = AdaptersOnStackedExperts().check(run)
    assert found.message.startswith("adapters on all experts take ")
    assert found.details[-2].startswith("PEFT takes down_proj, gate_proj, up_proj for")
    files["requirements.txt"] = _STACKS.format("0.18.1")
    run = run_of(files, "train.py", hardware="1xH100-80GB")
    assert not tuple(AdaptersOnStackedExperts().check(run))
