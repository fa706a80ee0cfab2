"""Keys that Unsloth adds to TRL's classes, in scripts of which another module imports it."""

from __future__ import annotations

import pytest
from tests.linked import Files, report_of

from oomlint.linting.rule import Severity

_IMPORTS = "from unsloth import FastLanguageModel\n"
_SCRIPT = """\
from trl import GRPOConfig, GRPOTrainer
from core.models import load
def train(rows, rewards):
    args = GRPOConfig(output_dir='o', per_device_train_batch_size=2, {key}=1)
    GRPOTrainer(model='Qwen/Qwen2.5-0.5B', args=args, train_dataset=rows, reward_funcs=rewards).train()
"""
_ADDED, _UNKNOWN = "vllm_sampling_params", "no_key_of_anybody"


@pytest.mark.parametrize(
    ("key", "others", "severity"),
    [
        (_ADDED, {}, Severity.ERROR),
        (_ADDED, {"core/models.py": "def load():\n    pass\n"}, Severity.ERROR),
        (_ADDED, {"core/models.py": _IMPORTS}, Severity.INFO),
        (_UNKNOWN, {"core/models.py": _IMPORTS}, Severity.ERROR),
        (_ADDED, {"core/models.py": "from core.base import load\n", "core/base.py": _IMPORTS}, Severity.INFO),
        (_ADDED, {"training/__init__.py": "from .sft import run\n", "training/sft.py": _IMPORTS}, Severity.INFO),
        (_ADDED, {"core/models.py": "from core import base\n", "core/base.py": _IMPORTS}, Severity.INFO),
        (_ADDED, {"main.py": f"{_IMPORTS}from training.grpo import train\ntrain([], [])\n"}, Severity.INFO),
        (_ADDED, {"main.py": _IMPORTS}, Severity.ERROR),
    ],
    ids=["nowhere", "not there", "imported", "unknown to Unsloth too", "in turn", "by the package", "by name", "by who starts it", "by another"],
)  # fmt: skip
def test_a_key_that_unsloth_may_have_added(key: str, others: Files, severity: Severity) -> None:
    calls = "from training.grpo import train\ntrain([], [])\n"  # a function that nobody calls is a remark anyway
    files = {"training/grpo.py": _SCRIPT.format(key=key), "go.py": calls, **others}
    found = [d for d in report_of(files).diagnoses if d.rule.code == "OOM801"]
    assert [each.severity for each in found] == [severity]


@pytest.mark.parametrize(
    ("starts", "is_told"), [("", True), (_IMPORTS, False)], ids=["as it is", "by who starts it"]
)
def test_an_old_name_that_unsloth_gives_back_to_the_class(starts: str, is_told: bool) -> None:
    files = {
        "training/grpo.py": _SCRIPT.format(key="max_seq_length"),
        "main.py": f"{starts}from training.grpo import train\ntrain([], [])\n",
        "requirements.txt": "trl==0.24.0\n",
    }
    found = {each.rule.code for each in report_of(files).diagnoses}
    assert bool(found & {"OOM801", "OOM805"}) is is_told
