"""Training arguments of a class of the project's own that is derived from a library's."""

from __future__ import annotations

import pytest
from tests.linked import link, report_of, run_of

from oomlint.plan import Plan

_CLASS = """\
from dataclasses import dataclass, field
from {library} import {base}

@dataclass
class OurConfig({base}):
    temperature: float = 1.0
    optim: str = field(default="adamw_8bit")
    per_device_train_batch_size: int = 3
    {more}
"""
_SCRIPT = """\
import argparse
import torch
from transformers import AutoModelForCausalLM, Trainer
from trl import SFTTrainer
{classes}
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=2)
    args = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", torch_dtype=torch.bfloat16)
    options = OurConfig(output_dir="out", bf16=True, gradient_checkpointing=True, {given})
    {trainer}(model=model, args=options, train_dataset=rows, data_collator=pad).train()

main()
"""


def _files(
    given: str = "per_device_train_batch_size=args.batch",
    base: str = "TrainingArguments",
    library: str = "transformers",
    trainer: str = "Trainer",
    more: str = "",
) -> dict[str, str]:
    made = _CLASS.format(library=library, base=base, more=more)
    script = _SCRIPT.format(classes="from settings import OurConfig", given=given, trainer=trainer)
    return {"src/train.py": script, "src/settings.py": made}


def _plan(files: dict[str, str]) -> Plan:
    return run_of(files, hardware="1xA100-80GB").plan


def test_what_the_call_says_and_what_the_class_has_by_default_are_read() -> None:
    plan = _plan(_files())
    assert plan.batch.micro == 2
    assert plan.checkpointing.mode == "full"
    assert plan.precision.compute == "bf16"
    assert plan.optimizer.name == "adamw_8bit"


def test_a_default_of_the_class_holds_where_the_call_says_nothing() -> None:
    assert _plan(_files(given="")).batch.micro == 3


def test_the_class_tells_whose_arguments_they_are() -> None:
    files = _files(base="SFTConfig", library="trl", trainer="SFTTrainer", given="max_length=512")
    (run,) = link(files, hardware="1xA100-80GB").runs
    assert run.framework == "trl"
    assert run.plan.seq.max_len == 512


def test_it_may_stand_in_the_script_itself_and_be_started_by_a_command() -> None:
    made = _CLASS.format(library="transformers", base="TrainingArguments", more="")
    given = "per_device_train_batch_size=args.batch"
    script = _SCRIPT.format(classes=made, given=given, trainer="Trainer")
    plan = _plan({"train.py": script, "run.sh": "python train.py --batch 6\n"})
    assert plan.batch.micro == 6


def test_it_may_be_called_like_the_library_s() -> None:
    made = _CLASS.format(library="transformers", base="TrainingArguments", more="")
    script = _SCRIPT.format(classes=made, given="", trainer="Trainer")
    script = script.replace("from transformers import TrainingArguments", "import transformers")
    script = script.replace("(TrainingArguments)", "(transformers.TrainingArguments)")
    assert _plan({"train.py": script.replace("OurConfig", "TrainingArguments")}).batch.micro == 3


def test_of_what_the_class_assigns_to_the_object_nobody_knows() -> None:
    more = "\n    def __post_init__(self):\n        self.per_device_train_batch_size = pick()\n        super().__post_init__()\n"
    assert _plan(_files(more=more)).batch.micro is None


@pytest.mark.parametrize(
    ("given", "base", "library", "more"),
    [
        ("", "Settings", "ours", ""),
        (
            "",
            "TrainingArguments",
            "transformers",
            "\n    def __init__(self, **given):\n        pass\n",
        ),
    ],
)
def test_a_class_of_another_kind_makes_no_arguments_that_are_read(
    given: str, base: str, library: str, more: str
) -> None:
    files = _files(given, base, library, more=more)
    assert all(run.plan.optimizer.name != "adamw_8bit" for run in link(files).runs)


_NAMESAKE = """\
from {home} import SFTConfig, train

config = SFTConfig(model_name="Qwen/Qwen2.5-0.5B", per_device_train_batch_size=2, num_train_samples=200,
    max_seq_length=512)
train(config)
"""


@pytest.mark.parametrize(
    ("home", "codes"), [("trl", {"OOM801", "OOM805"}), ("mlx_lm_lora", set()), ("ours.sft", set())]
)
def test_a_class_that_only_bears_the_name_of_a_librarys_has_keys_of_its_own(
    home: str, codes: set[str]
) -> None:
    files = {"train.py": _NAMESAKE.format(home=home), "requirements.txt": "trl==1.0.0\n"}
    told = report_of(files, "train.py").diagnoses
    assert {each.finding.rule.code for each in told} & {"OOM801", "OOM805"} == codes
