"""Libraries that cannot be imported beside one another."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.dialects.common.clashing_libraries import Import, _covers
from oomlint.dialects.common.fields import shared
from oomlint.dialects.library_tables import Reach
from oomlint.plan.library_changes import release_of

_SCRIPT = """\
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("NousResearch/Llama-2-7b-hf")
model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj"]))
Trainer(model=model, args=TrainingArguments("out"), train_dataset=data, data_collator=pad).train()
"""
_CACHE = "PEFT from 0.14 on imports EncoderDecoderCache, new in transformers 4.43"
_HYBRID = "PEFT from 0.16 on, before 0.18, imports HybridCache, gone from transformers 5.0"
_CLEARS = "PEFT from 0.15 on imports clear_device_cache, new in accelerate 0.32"
_GIT = "git+https://github.com/huggingface/peft.git\n"


def _ends(pins: str, script: str = _SCRIPT) -> str:
    settings = run_of({"train.py": script, "requirements.txt": pins}, "train.py").settings
    found = settings.get(shared.refused)
    return "" if found is None else str(found.value)


@pytest.mark.parametrize(
    ("pins", "why"),
    [
        ("transformers==4.42.4\npeft==0.14.0\n", _CACHE),
        ("transformers==5.1.0\npeft==0.17.1\n", _HYBRID),
        ("transformers==4.37.2\npeft>=0.14\n", _CACHE),
        ("transformers==4.48.0\naccelerate==0.27.2\npeft==0.15.2\n", _CLEARS),
    ],
)
def test_what_the_one_imports_and_the_other_lacks_ends_the_program(pins: str, why: str) -> None:
    assert _ends(pins) == why


@pytest.mark.parametrize(
    "pins",
    [
        "transformers==4.28.0\npeft\n",  # one of its day may run
        f"transformers==4.28.0\n{_GIT}",  # so it may of what stood in the repository on that day
        "transformers\npeft==0.17.1\n",
        f"transformers==4.43.0\n{_GIT}",
        f"transformers>=4.28.0\n{_GIT}",
        "transformers==4.28.0\npeft==0.13.2\n",
        "transformers==5.1.0\npeft==0.18.0\n",
        "transformers==4.57.1\npeft==0.17.1\n",
    ],
)
def test_releases_that_go_together_end_nothing(pins: str) -> None:
    assert _ends(pins) == ""


def test_a_script_that_leaves_the_library_alone_is_not_told() -> None:
    script = _SCRIPT.replace("from peft import LoraConfig, get_peft_model\n", "").replace(
        'model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj"]))\n', ""
    )
    assert _ends(f"transformers==4.28.0\n{_GIT}", script) == ""


def test_what_only_the_newest_imports_is_a_remark() -> None:
    for pins, is_told in (
        ("transformers==4.37.2\npeft\n", True),
        ("transformers==4.37.2\n", True),
        ("transformers==4.37.2\npeft<0.14\n", False),
        ("transformers==4.57.1\npeft\n", False),
        ("peft\n", False),
    ):
        files = {"train.py": _SCRIPT, "requirements.txt": pins}
        settings = run_of(files, "train.py").settings
        assert settings.get(shared.refused) is None
        assert (settings.get(shared.refused_lately) is not None) is is_told


def test_each_release_that_may_run_has_to_fail() -> None:
    assert _covers([_import("0.14", "0.16"), _import("0.16", "")], Reach((0, 15), _OPEN))
    assert _covers([_import("0.14", "0.18")], Reach((0, 15), (0, 17)))
    assert not _covers([_import("0.14", "0.16"), _import("0.17", "")], Reach((0, 15), _OPEN))
    assert not _covers([_import("0.14", "0.16")], Reach((0, 15), (0, 16)))
    assert not _covers([_import("0.14", "")], Reach((), _OPEN))


_OPEN = (99,)


def _import(since: str, before: str) -> Import:
    first, last = (release_of(each) or () for each in (since, before))
    return Import("peft", "*", "transformers.Cache", first, last, (), (), ())
