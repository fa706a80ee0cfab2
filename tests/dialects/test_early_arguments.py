"""Arguments that a script gives and that only later releases than the project allows have."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.dialects.common.fields import shared

_SCRIPT = """\
from datasets import load_dataset
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, TrainingArguments
from trl import SFTConfig, SFTTrainer

data = load_dataset("csv", data_files="rows.csv")["train"].train_test_split(test_size=0.1)
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", load_in_4bit=True)
model = prepare_model_for_kbit_training(model)
model.print_trainable_parameters()
{made}
SFTTrainer(model=model, args=options, train_dataset=data, peft_config=LoraConfig(r=8)).train()
"""


def _why(made: str, pins: str) -> str:
    files = {"train.py": _SCRIPT.format(made=made), "requirements.txt": pins}
    found = run_of(files, "train.py", hardware="1xRTX-4090-24GB").settings.get(shared.refused)
    return "" if found is None else str(found.value)


_NEW = 'options = TrainingArguments("out", eval_strategy="steps")'
_OLD = "transformers before 4.41 calls eval_strategy evaluation_strategy"


@pytest.mark.parametrize(
    ("made", "pins", "why"),
    [
        (_NEW, "transformers==4.38.0\n", _OLD),
        (
            _NEW.replace("TrainingArguments", "SFTConfig"),
            "transformers==4.39.3\ntrl==0.9.6\n",
            _OLD,
        ),
        (
            'options = SFTConfig("out", assistant_only_loss=True)',
            "trl==0.12.0\n",
            "SFTConfig of TRL before 0.19 has no assistant_only_loss",
        ),
    ],
)
def test_an_argument_of_later_releases_ends_the_program(made: str, pins: str, why: str) -> None:
    assert _why(made, pins) == why


@pytest.mark.parametrize(
    ("made", "pins"),
    [
        (_NEW, "transformers==4.41.0\n"),
        (_NEW, "transformers>=4.38\n"),
        (_NEW, "torch\n"),
        (f"if new:\n    {_NEW}\nelse:\n    options = old()", "transformers==4.38.0\n"),
        (f"try:\n    {_NEW}\nexcept TypeError:\n    options = old()", "transformers==4.38.0\n"),
        (f"def later():\n    {_NEW}\n\noptions = old()", "transformers==4.38.0\n"),
        ("options = train(model)\n" + _NEW, "transformers==4.38.0\n"),
    ],
)
def test_it_is_said_only_of_what_is_certain(made: str, pins: str) -> None:
    assert _why(made, pins) == ""
