"""Settings in dicts of a script: handed to functions, one in another, asked for with a default."""

from __future__ import annotations

from typing import Any

import pytest
from tests.linked import report_of, run_of

from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_SCRIPT = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

def train(settings):
    model = AutoModelForCausalLM.from_pretrained(settings["model"]["name"], torch_dtype="bfloat16")
    args = TrainingArguments(output_dir="o", bf16=settings.get("bf16", True),
        per_device_train_batch_size=settings["training"]["batch"],
        gradient_accumulation_steps=settings["training"].get("accumulation", 8))
    Trainer(model=model, args=args, train_dataset=data).train()

if __name__ == "__main__":
    SETTINGS = {{
        "model": {{"name": "Qwen/Qwen2.5-0.5B"}},
        "training": {training},
    }}
    {changes}
    train(SETTINGS)
"""


def _run(training: str = '{"batch": 3, "accumulation": 2}', changes: str = "pass") -> Run:
    return run_of({"train.py": _SCRIPT.format(training=training, changes=changes)})


def test_what_a_function_is_given_is_the_dict_that_its_caller_has() -> None:
    plan = _run().plan
    assert (plan.model.id, plan.batch.micro, plan.batch.grad_accum) == ("Qwen/Qwen2.5-0.5B", 3, 2)
    assert plan.precision.autocast is True


@pytest.mark.parametrize(
    ("training", "steps"), [('{"batch": 3}', 8), ('{"batch": 3, **more}', None)]
)
def test_the_default_counts_where_the_dict_has_no_such_key(training: str, steps: Any) -> None:
    assert _run(training).plan.batch.grad_accum == steps


@pytest.mark.parametrize(
    "changes",
    [
        'SETTINGS["training"]["batch"] = asks()',
        'SETTINGS["training"].update(more)',
        'SETTINGS["training"] = more',
        "SETTINGS.update(more)",
    ],
)
def test_a_dict_that_is_changed_tells_nothing(changes: str) -> None:
    assert _run(changes=changes).level(f.batch.micro) is Level.UNREAD


def test_of_two_dicts_neither_is_what_the_function_is_given() -> None:
    run = _run(changes="train(OTHER)")
    assert run.level(f.batch.micro) is Level.UNREAD


_UNPACKED = """\
import inspect
from trl import GRPOConfig, GRPOTrainer

kwargs = {{"output_dir": "out", "per_device_train_batch_size": 8}}
{stores}
args = GRPOConfig(**kwargs)
GRPOTrainer(model="Qwen/Qwen2.5-0.5B", args=args, train_dataset=data, reward_funcs=[reward]).train()
"""
_STORE = 'kwargs["epsilon_low"] = 0.2'


@pytest.mark.parametrize(
    ("stores", "is_told"),
    [
        (_STORE, True),
        (f'if "epsilon_low" in inspect.signature(GRPOConfig).parameters:\n    {_STORE}', False),
        (f'if True:\n    pass\nelif hasattr(GRPOConfig, "epsilon_low"):\n    {_STORE}', False),
        (f'if "epsilon" in inspect.signature(GRPOConfig).parameters:\n    {_STORE}', True),
    ],
)
def test_a_key_that_is_set_where_the_callee_has_it_is_none_that_it_refuses(
    stores: str, is_told: bool
) -> None:
    report = report_of(
        {"train.py": _UNPACKED.format(stores=stores), "requirements.txt": "trl==0.24.0\n"}
    )
    told = [d.finding.message for d in report.diagnoses if d.rule.code == "OOM801"]
    assert ("epsilon_low" in "".join(told)) is is_told
