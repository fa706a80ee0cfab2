"""Models that the pinned transformers does not know."""

from __future__ import annotations

import pytest
from tests.linked import report_of, run_of

from oomlint.dialects.common.fields import shared
from oomlint.linting.rule import Severity

_SCRIPT = """\
import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="{model}")
args = parser.parse_args()
model = {loader}.from_pretrained({given})
Trainer(model=model, args=TrainingArguments("out"), train_dataset=data, data_collator=pad).train()
"""
_RENAMED = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("{model}"{more})
args = TrainingArguments("out", evaluation_strategy="steps", per_device_train_batch_size=8)
Trainer(model=model, args=args, train_dataset=data, data_collator=pad).train()
"""
_QWEN3 = "transformers up to 4.50 knows no qwen3"


def _ends(
    pins: str,
    model: str = "Qwen/Qwen3-4B",
    loader: str = "AutoModelForCausalLM",
    given: str = "args.model",
    **files: str,
) -> str:
    script = _SCRIPT.format(model=model, loader=loader, given=given)
    texts = {"train.py": script, "requirements.txt": pins, **files}
    found = run_of(texts).settings.get(shared.refused)
    return "" if found is None else str(found.value)


@pytest.mark.parametrize(
    ("pins", "model", "why"),
    [
        ("transformers==4.46.3\n", "Qwen/Qwen3-4B", _QWEN3),
        ("transformers<4.40\n", "Qwen/Qwen3-4B", _QWEN3),
        ("transformers==4.36.0\n", "Qwen/Qwen2-7B", "transformers up to 4.36 knows no qwen2"),
        ("transformers==4.38.0\n", "google/gemma-2-9b", "transformers up to 4.41 knows no gemma2"),
    ],
)
def test_a_model_that_is_newer_than_the_library_ends_the_program(
    pins: str, model: str, why: str
) -> None:
    assert _ends(pins, model) == why


def test_the_model_that_a_command_names_counts() -> None:
    run = {"run.sh": "python train.py --model meta-llama/Llama-3.1-8B\n"}
    assert _ends("transformers==4.46.3\n", **run) == ""


@pytest.mark.parametrize(
    "changed",
    [
        {"pins": "transformers==4.51.0\n"},
        {"pins": "transformers>=4.46\n"},
        {"pins": "torch\n"},
        {"given": "args.model, trust_remote_code=True"},
        {"given": "args.model, trust_remote_code=told()"},
        {"loader": "OurModel"},
        {"model": "somebody/a-model-of-their-own"},
        {"model": "meta-llama/Llama-3.1-8B"},
    ],
)
def test_where_the_library_may_know_it_nothing_ends(changed: dict[str, str]) -> None:
    assert _ends(**{"pins": "transformers==4.46.3\n", **changed}) == ""


_LLAMA3 = "transformers before 4.43 refuses rope_scaling of type llama3"


@pytest.mark.parametrize(
    ("pins", "model", "why"),
    [
        ("transformers==4.38.0\n", "meta-llama/Llama-3.2-1B", _LLAMA3),
        ("transformers>=4.34,<4.40\n", "meta-llama/Llama-3.1-8B-Instruct", _LLAMA3),
        ("transformers==4.42.4\n", "unsloth/Llama-3.2-3B", _LLAMA3),
        ("transformers==4.43.0\n", "meta-llama/Llama-3.2-1B", ""),
        ("transformers>=4.30,<4.43\n", "meta-llama/Llama-3.2-1B", ""),  # 4.30 does not look at it
        ("transformers>=4.38\n", "meta-llama/Llama-3.2-1B", ""),
        ("transformers==4.38.0\n", "meta-llama/Meta-Llama-3-8B-Instruct", ""),
        ("transformers==4.38.0\n", "NousResearch/Llama-2-7b-hf", ""),
    ],
)
def test_positions_that_the_library_refuses_end_the_program(
    pins: str, model: str, why: str
) -> None:
    assert _ends(pins, model) == why
    assert _ends(pins, model, given="args.model, trust_remote_code=True") == why


@pytest.mark.parametrize(
    ("pins", "given", "why"),
    [
        ("transformers==4.35.2\n", 'attn_implementation="sdpa"', "before 4.36 takes no attn_implementation"),
        ("transformers==4.31.0\n", "use_flash_attention_2=True", "before 4.34 takes no use_flash_attention_2"),
        ("transformers==4.56.0\n", "use_flash_attention_2=True", "4.53 and later takes no use_flash_attention_2"),
        ("transformers==5.2.0\n", "load_in_4bit=True", "5.0 and later takes no load_in_4bit"),
        ("transformers==4.36.0\n", 'attn_implementation="sdpa"', ""),
        ("transformers>=4.31\n", 'attn_implementation="sdpa"', ""),
        ("transformers==4.40.0\n", "use_flash_attention_2=True", ""),
        ("transformers==4.57.1\n", "load_in_4bit=True", ""),
        ("transformers==4.35.2\n", 'attn_implementation="sdpa", trust_remote_code=True', ""),
        ("transformers==4.35.2\n", "**({'attn_implementation': 'sdpa'} if new else {})", ""),
    ],
)  # fmt: skip
def test_arguments_that_the_load_does_not_take(pins: str, given: str, why: str) -> None:
    model = "NousResearch/Llama-2-7b-hf"
    said = f"from_pretrained of transformers {why}" if why else ""
    assert _ends(pins, model, given=f"args.model, {given}") == said
    own = {"loader": "OurModel", "given": f"args.model, {given}"}
    assert _ends(pins, model, **own) == ""


@pytest.mark.parametrize(
    ("model", "more", "pins", "ends"),
    [
        # 4.50 has the name and no Qwen3, 4.51 has no such name.
        ("Qwen/Qwen3-8B", "", "torch", True),
        ("Qwen/Qwen3-8B", "", "transformers>=4.40", True),
        ("Qwen/Qwen3-8B", "", "transformers", True),
        ("Qwen/Qwen3-8B", ", trust_remote_code=True", "torch", False),
        ("google/gemma-3-1b-it", "", "torch", False),
        ("meta-llama/Llama-3.1-8B", "", "torch", False),
    ],
)
def test_an_argument_that_no_release_takes_which_knows_the_model(
    model: str, more: str, pins: str, ends: bool
) -> None:
    files = {
        "train.py": _RENAMED.format(model=model, more=more),
        "requirements.txt": f"{pins}\n",
    }
    found = report_of(files, "train.py", hardware="1xRTX-3090-24GB").diagnoses
    errors = {each.rule.code for each in found if each.severity is Severity.ERROR}
    assert (errors == {"OOM905"}) is ends
    assert ("OOM905" in errors) is ends


_REGISTERS = (
    "from transformers import AutoModelForCausalLM\nAutoModelForCausalLM.register(Mine, Model)\n"
)
_OF_PICTURES = "AutoModelForCausalLM loads no qwen2_5_vl: AutoModelForImageTextToText does"


@pytest.mark.parametrize(
    ("loader", "given", "more", "why"),
    [
        ("AutoModelForCausalLM", "args.model", "", _OF_PICTURES),
        ("AutoModelForImageTextToText", "args.model", "", ""),
        ("Qwen2_5_VLForConditionalGeneration", "args.model", "", ""),
        ("AutoModelForCausalLM", "args.model, trust_remote_code=True", "", ""),
        ("AutoModelForCausalLM", "args.model", _REGISTERS, ""),
    ],
)
def test_a_model_of_pictures_by_the_class_of_causal_ones(
    loader: str, given: str, more: str, why: str
) -> None:
    script = more + _SCRIPT.format(model="Qwen/Qwen2.5-VL-7B-Instruct", loader=loader, given=given)
    found = run_of({"train.py": script}).settings.get(shared.refused)
    assert ("" if found is None else str(found.value)) == why
    of_words = script.replace("Qwen2.5-VL-7B-Instruct", "Qwen2.5-7B-Instruct")
    assert run_of({"train.py": of_words}).settings.get(shared.refused) is None
