"""What PEFT itself takes and refuses of adapters on stacked experts, on the meta device, beside what the rule says of it."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest
from tests.linked import run_of

from oomlint_rules.precision.stacked_experts_refuse_adapter import StackedExpertsRefuseAdapter

_PYTHON = os.environ.get("OOMLINT_ORACLE_PYTHON")

pytestmark = pytest.mark.skipif(
    _PYTHON is None, reason="OOMLINT_ORACLE_PYTHON names no interpreter"
)

_ASKS = """\
import json
import sys

import peft
import torch
import transformers
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, MixtralConfig, Qwen3MoeConfig

small = dict(
    hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4,
    num_key_value_heads=2, vocab_size=128, num_experts_per_tok=2,
)
models = {
    "Qwen/Qwen3-30B-A3B": Qwen3MoeConfig(moe_intermediate_size=32, num_experts=4, **small),
    "mistralai/Mixtral-8x7B-v0.1": MixtralConfig(num_local_experts=4, **small),
}
refused = []
for name, given in json.load(sys.stdin):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(models[name])
    try:
        get_peft_model(model, LoraConfig(r=4, **given))
    except Exception as error:
        refused.append(str(error))
    else:
        refused.append("")
versions = {"peft": peft.__version__, "transformers": transformers.__version__}
print(json.dumps({"refused": refused, "versions": versions}))
"""
_SCRIPT = """\
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
data = load_dataset("json", data_files="rows.jsonl")["train"]
model = AutoModelForCausalLM.from_pretrained("{name}")
model = get_peft_model(model, LoraConfig(r=4, {given}))
Trainer(model, TrainingArguments("out"), data_collator=collate, train_dataset=data).train()
"""
_QWEN, _MIXTRAL = "Qwen/Qwen3-30B-A3B", "mistralai/Mixtral-8x7B-v0.1"
_ATTENTION = ["q_proj", "v_proj"]
_ALL = [*_ATTENTION, "gate_proj", "up_proj", "down_proj"]
_CASES: list[tuple[str, dict[str, Any]]] = [
    (_QWEN, {"target_modules": _ALL}),
    (_QWEN, {"target_modules": _ALL, "lora_dropout": 0.1}),
    (_QWEN, {"target_modules": _ALL, "use_dora": True}),
    (_QWEN, {"target_modules": _ATTENTION, "lora_dropout": 0.1}),
    (_QWEN, {"target_modules": [*_ATTENTION, "up_proj"]}),
    (_QWEN, {"target_modules": [*_ATTENTION, "down_proj"]}),
    (_QWEN, {"target_modules": [*_ATTENTION, "gate"], "lora_dropout": 0.1}),
    (_QWEN, {"target_modules": "all-linear"}),
    (_QWEN, {"target_modules": "all-linear", "lora_dropout": 0.1}),
    (_QWEN, {}),
    (_QWEN, {"target_modules": ["q_proj"], "target_parameters": ["mlp.experts.down_proj"], "lora_dropout": 0.1}),
    (_QWEN, {"target_modules": ["q_proj"], "target_parameters": ["mlp.experts.down_proj"]}),
    (_MIXTRAL, {"target_modules": _ALL, "lora_dropout": 0.1}),
    (_MIXTRAL, {"target_modules": ["q_proj", "w1"]}),
    (_MIXTRAL, {"target_modules": ["q_proj", "w1", "w3"]}),
]  # fmt: skip


def test_peft_refuses_what_the_rule_says() -> None:
    told = subprocess.run(
        [str(_PYTHON), "-c", _ASKS],
        input=json.dumps(_CASES),
        capture_output=True,
        text=True,
        check=True,
    )
    answer = json.loads(told.stdout.splitlines()[-1])
    pins = "".join(f"{name}=={version}\n" for name, version in answer["versions"].items())
    for (name, given), refused in zip(_CASES, answer["refused"], strict=True):
        arguments = ", ".join(f"{key}={value!r}" for key, value in given.items())
        files = {
            "train.py": _SCRIPT.format(name=name, given=arguments),
            "requirements.txt": pins,
        }
        found = tuple(StackedExpertsRefuseAdapter().check(run_of(files, "train.py")))
        assert bool(found) == bool(refused), (name, given, refused, found)
        assert all(finding.ends_the_run for finding in found), (name, given)
