"""A script that asks for the state dict of its Trainer's model itself."""

from __future__ import annotations

import pytest
from tests.linked import run_of

_SCRIPT = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

args = TrainingArguments(output_dir="out", bf16=True, fsdp="full_shard auto_wrap")
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
trainer = Trainer(model=model, args=args, train_dataset=data)
trainer.train()
"""
_LAUNCH = "torchrun --nproc_per_node=4 train.py\n"


def _saves_with(last: str) -> int:
    run = run_of({"train.py": _SCRIPT + last, "run.sh": _LAUNCH})
    return run.estimate.gpu.by_phase["save"]["temporary"] or 0


def test_it_gathers_the_model_on_every_gpu() -> None:
    own = _saves_with("state = trainer.model.state_dict()\n")
    assert own == pytest.approx(4 * 6_738_415_616, rel=1e-3)
    assert _saves_with("trainer.save_model()\n") < own / 10


_ADAPTS = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lora_enable", type=bool, default=False)
own, _ = parser.parse_known_args()


def save(trainer):
    return trainer.model.state_dict()


"""
_EITHER = """\
if own.lora_enable:
    model.save_pretrained("out")
else:
    save(trainer)
"""


@pytest.mark.parametrize(("option", "speaks"), [("", True), (" --lora_enable True", False)])
def test_what_a_branch_saves_that_is_not_taken_is_none_of_the_run(
    option: str, *, speaks: bool
) -> None:
    launch = _LAUNCH.replace("train.py", f"train.py{option}")
    run = run_of({"train.py": f"{_ADAPTS}{_SCRIPT}{_EITHER}", "run.sh": launch})
    assert ("state-dict-on-gpu" in run.fact_kinds) is speaks
