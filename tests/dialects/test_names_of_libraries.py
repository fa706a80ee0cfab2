"""Names that scripts take from modules of a library of which the project pins a release."""

from __future__ import annotations

import pytest
from tests.linked import report_of

_SCRIPT = """\
from peft.tuners.{module} import {name}
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
Trainer(model, TrainingArguments(output_dir="o", per_device_train_batch_size=1)).train()
"""


def _ends(module: str, name: str, release: str) -> bool:
    files = {
        "train.py": _SCRIPT.format(module=module, name=name),
        "requirements.txt": f"peft=={release}\n",
    }
    return any(d.finding.rule.code == "OOM905" for d in report_of(files, "train.py").diagnoses)


@pytest.mark.parametrize("release", ["0.3.0", "0.4.0.dev0", "0.4.0", "0.5.0", "0.6.0", "0.17.0"])
def test_what_a_module_has_it_has_as_a_package_too(release: str) -> None:
    """peft/tuners/lora.py is a package from 0.6.0 on; so are its neighbours."""
    assert not _ends("lora", "LoraLayer", release)
    assert not _ends("prompt_tuning", "PromptTuningInit", release)


def test_what_comes_with_a_later_release_is_not_there() -> None:
    assert _ends("lora", "QuantLinear", "0.3.0")
    assert not _ends("lora", "QuantLinear", "0.5.0")


def test_a_pin_to_what_is_on_the_way_to_a_release_may_have_what_goes_with_it() -> None:
    """mark_only_lora_as_trainable is gone in 0.5.0."""
    name = "mark_only_lora_as_trainable"
    assert _ends("lora", name, "0.5.0")
    assert not _ends("lora", name, "0.5.0.dev0")
    assert not _ends("lora", name, "0.4.0")
