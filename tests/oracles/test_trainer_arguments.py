"""What trainers are made with by their own signatures, beside the tables that were read from wheels."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from tests.linked import run_of

from oomlint.dialects.library_tables import fields_of

_PYTHON = os.environ.get("OOMLINT_ORACLE_PYTHON")

pytestmark = pytest.mark.skipif(
    _PYTHON is None, reason="OOMLINT_ORACLE_PYTHON names no interpreter"
)

_TRAINERS = {
    "transformers": ("Trainer", "Seq2SeqTrainer"),
    "trl": ("SFTTrainer", "DPOTrainer", "GRPOTrainer", "RewardTrainer"),
}
_ASKS = """\
import importlib
import inspect
import json
import sys

library, *names = sys.argv[1:]
try:
    module = importlib.import_module(library)
except ImportError:
    print("null")
    raise SystemExit
classes = {name: getattr(module, name, None) for name in names}
taken = {
    name: [each for each in inspect.signature(cls.__init__).parameters if each != "self"]
    for name, cls in classes.items()
    if cls is not None
}
print(json.dumps({"version": module.__version__, "taken": taken}))
"""
_SCRIPT = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
Trainer(model, TrainingArguments("out"), data_collator=collate, train_dataset=data).train()
"""


@pytest.mark.parametrize("library", _TRAINERS)
def test_a_trainer_takes_what_its_table_says(library: str) -> None:
    told = subprocess.run(
        [str(_PYTHON), "-c", _ASKS, library, *_TRAINERS[library]],
        capture_output=True,
        text=True,
        check=True,
    )
    answer = json.loads(told.stdout.splitlines()[-1])
    if answer is None:
        pytest.skip(f"that interpreter has no {library}")
    assert answer["taken"]
    pins = f"{library}=={answer['version']}\n"
    run = run_of({"train.py": _SCRIPT, "requirements.txt": pins}, "train.py")
    for name, taken in answer["taken"].items():
        assert set(fields_of(f"{library}.{name}", run.cells) or ()) == set(taken), name
