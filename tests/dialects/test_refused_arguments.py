"""Arguments that a script gives and that no release has which the project allows."""

from __future__ import annotations

import pytest
from tests.linked import run_of, workspace_of

from oomlint.dialects.common.fields import shared

_SCRIPT = """\
from datasets import load_dataset
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, TrainingArguments
from trl import SFTConfig, SFTTrainer

data = load_dataset("csv", data_files="rows.csv")["train"].train_test_split(test_size=0.1)
model = AutoModelForCausalLM.from_pretrained("NousResearch/Llama-2-7b-hf", load_in_4bit=True)
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


_TRL = "trl==0.19.0\ntransformers==4.52.4\n"
_LATER = "trl==1.3.0\ntransformers==5.2.0\n"
_OF_GRPO = """\
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer
data = load_dataset("csv", data_files="rows.csv")["train"]
options = GRPOConfig(output_dir="out", {argument}=64)
GRPOTrainer(model="Qwen/Qwen2.5-7B", args=options, reward_funcs=score, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("argument", "pins", "why"),
    [
        ("max_new_tokens", _TRL, "GRPOConfig of TRL has no max_new_tokens"),
        ("max_new_tokens", "torch\n", "GRPOConfig of TRL has no max_new_tokens"),
        ("max_prompt_length", _LATER, "GRPOConfig of TRL 0.28.0 and later has no max_prompt_length"),
        ("max_prompt_length", _TRL, ""),
        ("max_prompt_length", "trl>=0.19\n", ""),
        ("max_completion_length", _LATER, ""),
        ("max_new_tokens", "git+https://github.com/ours/trl.git\n", ""),
    ],
)  # fmt: skip
def test_an_argument_that_the_class_lacks_ends_the_program(
    argument: str, pins: str, why: str
) -> None:
    assert _refused(argument, pins) == why


_OF_TRAINER = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("NousResearch/Llama-2-7b-hf")
options = TrainingArguments("out", predict_with_generate=True)
Trainer(model=model, args=options, train_dataset=data, data_collator=collate).train()
"""
_PATCHED = """\
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer
from {library} import {loader}
data = load_dataset("csv", data_files="rows.csv")["train"]
model, tokenizer = {loader}.from_pretrained("unsloth/Llama-3.2-1B", max_seq_length=1024)
options = GRPOConfig(output_dir="out", max_new_tokens=64)
GRPOTrainer(model=model, args=options, reward_funcs=score, train_dataset=data).train()
"""


def test_a_class_that_others_patch_is_not_known() -> None:
    script = _PATCHED.format(library="unsloth", loader="FastLanguageModel")
    files = {"train.py": script, "requirements.txt": _TRL}
    assert run_of(files, "train.py").settings.get(shared.refused) is None


def test_a_copy_of_the_library_in_the_project_decides() -> None:
    script = _OF_GRPO.format(argument="max_new_tokens")
    own = {"trl/__init__.py": "from .grpo import GRPOConfig, GRPOTrainer\n"}
    for more, is_told in (({}, True), (own, False)):
        facts = workspace_of({"train.py": script, **more}).document("train.py").facts
        assert any(fact.kind == "makes-arguments" for fact in facts) is is_told


def test_an_argument_that_a_class_may_have_had_before_the_first_release_read() -> None:
    lacks = "TrainingArguments of transformers has no predict_with_generate"
    for pins, why in (("torch\n", ""), ("transformers==4.52.4\n", lacks)):
        files = {"train.py": _OF_TRAINER, "requirements.txt": pins}
        found = run_of(files, "train.py").settings.get(shared.refused)
        assert ("" if found is None else found.value) == why


def _refused(argument: str, pins: str) -> str:
    script = _OF_GRPO.format(argument=argument)
    files = {"train.py": script, "requirements.txt": pins}
    found = run_of(files, "train.py", hardware="1xRTX-4090-24GB").settings.get(shared.refused)
    return "" if found is None else str(found.value)
