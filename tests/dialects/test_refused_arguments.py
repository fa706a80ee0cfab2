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


_OF_SFT = """\
from datasets import load_dataset
from transformers import AutoModelForCausalLM, TrainingArguments
from trl import {cls}
data = load_dataset("csv", data_files="rows.csv")["train"]
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
options = TrainingArguments("out")
{cls}(model=model, args=options, train_dataset=data, {argument}=given).train()
"""


@pytest.mark.parametrize(
    ("cls", "argument", "pins", "why"),
    [
        ("SFTTrainer", "tokenizer", "trl==0.24.0\n", "SFTTrainer of TRL 0.16.0 and later has no tokenizer: it is processing_class now"),
        ("SFTTrainer", "tokenizer", "trl==0.15.2\n", ""),
        ("SFTTrainer", "tokenizer", "trl>=0.12\n", ""),
        ("SFTTrainer", "max_seq_length", "trl>=0.13\n", "SFTTrainer of TRL 0.13.0 and later has no max_seq_length"),
        ("SFTTrainer", "processing_class", "trl==0.11.0\n", "SFTTrainer of TRL before 0.12 has no processing_class"),
        ("SFTTrainer", "rows", "trl==0.24.0\n", "SFTTrainer of TRL has no rows"),
        ("DPOTrainer", "beta", "trl==0.13.0\n", "DPOTrainer of TRL 0.13.0 and later has no beta: DPOConfig takes it"),
        ("BCOTrainer", "rows", "trl==0.25.1\n", ""),
        ("SFTTrainer", "tokenizer", "trl @ git+https://github.com/ours/trl.git\n", ""),
    ],
)  # fmt: skip
def test_an_argument_that_a_trainer_lacks_ends_the_program(
    cls: str, argument: str, pins: str, why: str
) -> None:
    """Parameters of ``__init__`` in the wheels; TRL 0.25.1's BCOTrainer takes any and hands them on."""
    assert _of_a_trainer(cls, argument, pins, shared.refused) == why


def test_transformers_5_takes_no_tokenizer() -> None:
    script = _OF_TRAINER.replace("predict_with_generate", "do_train")
    script = script.replace("data_collator=collate", "data_collator=collate, tokenizer=tokenizer")
    for pin, why in (
        ("4.57.1", None),
        (
            "5.0.0",
            "Trainer of transformers 5.0.0 and later has no tokenizer: it is processing_class now",
        ),
    ):
        files = {"train.py": script, "requirements.txt": f"transformers=={pin}\n"}
        found = run_of(files, "train.py").settings.get(shared.refused)
        assert (None if found is None else found.value) == why


@pytest.mark.parametrize(
    ("pins", "why"),
    [
        (
            "torch\n",
            "SFTTrainer of TRL 0.16.0 and later has no tokenizer: it is processing_class now",
        ),
        (
            "trl>=0.9\n",
            "SFTTrainer of TRL 0.16.0 and later has no tokenizer: it is processing_class now",
        ),
        ("trl==0.15.2\n", ""),
        ("trl<0.16\n", ""),
    ],
)
def test_what_the_newest_release_refuses_is_told_where_nothing_keeps_it_away(
    pins: str, why: str
) -> None:
    assert _of_a_trainer("SFTTrainer", "tokenizer", pins, shared.refused_lately) == why
    assert _of_a_trainer("SFTTrainer", "tokenizer", pins, shared.refused) == ""


def test_what_code_gives_away_of_its_release_keeps_no_newer_one_from_an_installation() -> None:
    """Its memory is predicted with the transformers that it was written for."""
    script = _OF_TRAINER.replace("predict_with_generate", "do_train")
    script = script.replace("data_collator=collate", "data_collator=collate, tokenizer=tokenizer")
    found = run_of({"train.py": script}, "train.py").settings
    why = "Trainer of transformers 5.0.0 and later has no tokenizer: it is processing_class now"
    assert found[shared.refused_lately].value == why
    assert shared.refused not in found


def test_an_option_that_transformers_5_took_away_is_told_where_nothing_is_pinned() -> None:
    script = _OF_TRAINER.replace("predict_with_generate", "overwrite_output_dir")
    found = run_of({"train.py": script}, "train.py").settings
    why = "TrainingArguments of transformers 5.0.0 and later has no overwrite_output_dir"
    assert found[shared.refused_lately].value == why
    assert shared.refused not in found


def test_unsloth_s_trainers_take_what_theirs_do_not() -> None:
    script = _PATCHED.format(library="unsloth", loader="FastLanguageModel").replace(
        "GRPOTrainer(model", "GRPOTrainer(tokenizer=tokenizer, model"
    )
    files = {"train.py": script.replace("max_new_tokens", "max_steps"), "requirements.txt": _TRL}
    assert run_of(files, "train.py").settings.get(shared.refused) is None


def test_a_former_name_that_its_own_rule_tells_of_is_told_once() -> None:
    made = 'options = SFTConfig("out", max_seq_length=512)'
    assert _why(made, "trl==0.24.0\n") == ""
    made = 'options = TrainingArguments("out", evaluation_strategy="no")'
    assert _why(made, "transformers==4.57.1\n") == ""
    # Where nothing is pinned that rule knows no release, and the model's own bounds tell.
    script = _SCRIPT.format(made=made).replace("NousResearch/Llama-2-7b-hf", "Qwen/Qwen3-8B")
    found = run_of({"train.py": script}, "train.py").settings[shared.refused]
    assert found.value.endswith("has no evaluation_strategy")


def _of_a_trainer(cls: str, argument: str, pins: str, field: object) -> str:
    files = {
        "train.py": _OF_SFT.format(cls=cls, argument=argument),
        "requirements.txt": pins,
    }
    found = run_of(files, "train.py").settings.get(field)
    return "" if found is None else str(found.value)
