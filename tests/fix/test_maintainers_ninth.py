"""What a ninth reading of diffs in public repositories found, of safe fixes alone; the projects here are written anew."""

from __future__ import annotations

import pytest
from tests.fixing import repaired

from oomlint.linting.rule import Applicability
from oomlint_rules._examples import AXOLOTL

_LOAD = """\
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments

{first}
model = AutoModelForCausalLM.from_pretrained(
    "Qwen/Qwen2.5-0.5B-Instruct",
    {argument},
)
args = TrainingArguments("out", per_device_train_batch_size=1, max_steps=500, bf16=True)
Trainer(model=model, args=args, train_dataset=data).train()
"""
_ONE_CARD = 'device_map="cuda"'
_SPREAD = 'device_map="auto"'
_QUANTIZED = f"quantization_config=config,\n    {_SPREAD}"
_LAUNCHED = "torchrun --nproc_per_node 2 train.py\n"


@pytest.mark.parametrize(("seen", "is_applied"), [("CUDA_VISIBLE_DEVICES=0,1 ", True), ("", False)])
def test_a_load_onto_a_card_does_not_say_how_many_cards_there_are(
    seen: str, is_applied: bool
) -> None:
    files = {
        "train.py": _LOAD.format(first="", argument="torch_dtype=torch.bfloat16"),
        "run.sh": f"{seen}python train.py\n",
        "requirements.txt": "transformers==4.57.0\n",
    }
    for argument in ("torch_dtype=torch.bfloat16", _ONE_CARD):
        files["train.py"] = _LOAD.format(first="", argument=argument)
        result = repaired(files, hardware="4xRTX-4090-24GB")
        is_spread = b"torchrun" in result.texts.get("run.sh", b"")
        assert is_spread is (is_applied and argument != _ONE_CARD)


@pytest.mark.parametrize(
    ("merges", "is_applied"), [("model.merge_and_unload()", False), ("", True)]
)
def test_a_script_that_merges_its_adapter_itself_stays_one_process(
    merges: str, is_applied: bool
) -> None:
    files = {
        "train.py": f"{_LOAD.format(first='', argument='torch_dtype=torch.bfloat16')}{merges}\n",
        "run.sh": "CUDA_VISIBLE_DEVICES=0,1 python train.py\n",
    }
    result = repaired(files, hardware="2xA100-80GB")
    assert (b"torchrun" in result.texts.get("run.sh", b"")) is is_applied
    assert any(d.rule.code == "OOM705" for d in (result.before or result.report).diagnoses)


def test_workers_stay_where_neither_cores_nor_ram_are_known() -> None:
    files = {
        "train.yaml": f"{AXOLOTL}dataloader_num_workers: 32\n",
        "run.sh": "torchrun --nproc_per_node 8 -m axolotl.cli.train train.yaml\n",
    }
    result = repaired(files)
    [workers] = [d for d in result.report.diagnoses if d.rule.code == "OOM408"]
    assert workers.fix is not None
    assert workers.fix.applicability is Applicability.UNSAFE
    assert not result.texts


@pytest.mark.parametrize(
    ("first", "argument", "is_removed"),
    [
        ("", _SPREAD, True),
        ("config = BitsAndBytesConfig(load_in_4bit=True)", _QUANTIZED, False),
        (
            "config = BitsAndBytesConfig(load_in_4bit=True)\ntorch.cuda.set_device(rank)",
            _QUANTIZED,
            True,
        ),
        ('# device_map="auto" spreads the layers, and keeps DataParallel away', _SPREAD, False),
        ("# one map for each process", _SPREAD, True),
    ],
)
def test_a_device_map_goes_where_each_process_then_loads_onto_its_own_card(
    first: str, argument: str, is_removed: bool
) -> None:
    files = {"train.py": _LOAD.format(first=first, argument=argument), "run.sh": _LAUNCHED}
    result = repaired(files, hardware="2xA100-80GB")
    assert (
        _SPREAD.encode() not in result.texts.get("train.py", b'device_map="auto"')
    ) is is_removed
    assert any(d.rule.code == "OOM704" for d in (result.before or result.report).diagnoses)
