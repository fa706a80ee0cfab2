"""A run that starts from what another one saves has the dimensions of that one's model."""

from __future__ import annotations

import json

import pytest
from tests.linked import PROGRAM, link

from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_TRAINS = """\
python train.py --per_device_train_batch_size 1 --bf16 True --learning_rate 1e-5 \\
    --gradient_checkpointing True --model_max_length 1024 --num_train_epochs 1 \\
    --model_name_or_path {model} --output_dir {out}{more}
"""


def _line(model: str, out: str, more: str = "") -> str:
    return _TRAINS.format(model=model, out=out, more=more)


def _last(files: dict[str, str], name: str = "b.sh") -> Run:
    return link(files, name).runs[-1]


_QWEN, _LLAMA = "Qwen/Qwen2.5-7B-Instruct", "meta-llama/Llama-3.1-8B"


def test_a_run_before_it_in_the_script_says_what_a_folder_will_hold() -> None:
    run = _last(
        {"b.sh": "ROOT=out/x\n" + _line(_QWEN, '"$ROOT/sft"') + _line('"$ROOT/sft"', "out/dpo")}
    )
    assert run.plan.model.id == "out/x/sft"
    assert run.model is not None
    assert run.model.id == _QWEN
    assert run.plan.model.dims is not None
    assert run.plan.model.dims.layers == 28
    assert "saves it" in run.model.source


def test_so_does_one_of_another_script_of_the_folder_and_of_its_checkpoints() -> None:
    files = {
        "s/a.sh": _line(_QWEN, "models/sft_512"),
        "s/b.sh": _line("models/sft_512/checkpoint-9", "o"),
    }
    run = _last(files, "s/b.sh")
    assert run.model is not None
    assert run.model.id == _QWEN


def test_one_further_away_does_not() -> None:
    files = {"other/a.sh": _line(_QWEN, "models/sft"), "b.sh": _line("models/sft", "o")}
    assert _last(files).model is None


def test_what_is_saved_may_be_trained_on_more_than_once() -> None:
    run = _last(
        {"b.sh": _line(_QWEN, "o/one") + _line("o/one", "o/two") + _line("o/two", "o/three")}
    )
    assert run.model is not None
    assert run.model.id == _QWEN


def test_a_name_under_which_two_models_are_saved_tells_nothing() -> None:
    run = _last({"b.sh": _line(_QWEN, "o/sft") + _line(_LLAMA, "o/sft") + _line("o/sft", "o/dpo")})
    assert run.model is None


def test_a_run_that_goes_on_from_its_own_folder_has_nothing_to_tell() -> None:
    assert _last({"b.sh": _line("o/sft", "o/sft")}).model is None


def test_who_is_trained_of_an_adapter_that_another_run_saves_is_open() -> None:
    lora = " --use_peft True --lora_r 16"
    whole = _last({"b.sh": _line(_QWEN, "o/sft") + _line("o/sft", "o/dpo"), "train.py": PROGRAM})
    assert whole.level(f.trainable.method) is not Level.UNREAD
    files = {"b.sh": _line(_QWEN, "o/sft", lora) + _line("o/sft", "o/dpo")}
    assert _last(files).level(f.trainable.method) is Level.UNREAD
    files = {"b.sh": _line(_QWEN, "o/sft", lora) + _line("o/sft", "o/dpo", lora)}
    assert _last(files).plan.trainable.method == "lora"


def test_a_loop_over_seeds_is_still_one_run_of_each_line() -> None:
    loop = (
        "for s in 1 2 3; do\n" + _line(_QWEN, "o/$s/sft") + _line("o/$s/sft", "o/$s/dpo") + "done\n"
    )
    assert len(link({"b.sh": loop}).runs) == 2


_MERGES = """\
import os
from pathlib import Path
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
base = "Qwen/Qwen2.5-7B-Instruct"
model = AutoModelForCausalLM.from_pretrained(base)
tokenizer = AutoTokenizer.from_pretrained(base)
model = PeftModel.from_pretrained(model, "out/adapter").merge_and_unload()
folder = Path(os.path.join("models", "merged_7b"))
while folder.exists():
    folder = Path(f"models/merged_7b_{n}")
model.save_pretrained(folder)
tokenizer.save_pretrained(folder)
"""
_DOWNLOADS = """\
from huggingface_hub import snapshot_download
from transformers import AutoModelForCausalLM
snapshot_download("Qwen/Qwen2.5-7B-Instruct", local_dir="models/merged_7b")
"""


@pytest.mark.parametrize("program", [_MERGES, _DOWNLOADS])
def test_what_a_program_of_the_folder_merges_or_downloads_is_assumed(program: str) -> None:
    run = _last({"make.py": program, "b.sh": _line("models/merged_7b", "o")})
    assert run.model is not None
    assert (run.model.id, run.model.is_adapter) == (_QWEN, False)
    assert run.level(f.model.arch) is Level.ASSUMED
    assert _last({"make.py": program, "b.sh": _line("models/other_7b", "o")}).model != run.model


def test_a_program_that_adapts_a_model_saves_an_adapter_of_it() -> None:
    program = _MERGES.replace(
        'model = PeftModel.from_pretrained(model, "out/adapter").merge_and_unload()',
        "model = get_peft_model(model, LoraConfig(r=8))",
    )
    run = _last({"make.py": program, "b.sh": _line("models/merged_7b", "o")})
    assert run.model is not None
    assert run.model.is_adapter


_MERGE_LINE = "python merge.py --base_model {} --lora_model o/lora --output_dir merged/\n"


@pytest.mark.parametrize(
    "merges",
    [
        _MERGE_LINE.format(_QWEN),
        f"python -m verl.model_merger merge --local_dir {_QWEN} --target_dir ./merged\n",
        # What wrote the model that it starts from.
        _line(_QWEN, "o/full") + _MERGE_LINE.format("o/full"),
    ],
)
def test_a_command_that_writes_a_folder_from_a_model_says_what_that_will_hold(merges: str) -> None:
    run = _last({"b.sh": merges + _line("merged", "o/dpo")})
    assert run.model is not None
    assert run.model.confidence in ("assumed", "derived")
    assert run.plan.model.dims is not None
    assert run.plan.model.dims.layers == 28


def test_a_command_that_names_several_models_or_folders_says_nothing() -> None:
    of_two = f"python mix.py --base_model {_QWEN} --model {_LLAMA} --output_dir merged\n"
    assert _last({"b.sh": of_two + _line("merged", "o/dpo")}).model is None


def test_what_a_run_saves_says_more_than_what_its_folder_is_called() -> None:
    folder = "models/Llama-3.1-8B/first"
    run = _last({"b.sh": _line(_QWEN, folder) + _line(folder, "models/second")})
    assert run.model is not None
    assert run.model.id == _QWEN
    alone = _last({"b.sh": _line(folder, "models/second")})
    assert alone.plan.model.dims is not None
    assert alone.plan.model.dims.layers == 32


_STAGE = """\
from dataclasses import dataclass
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

@dataclass
class Stage:
    model: str = "{model}"
    output_dir: str = "{out}"

def train(stage: Stage):
    model = AutoModelForCausalLM.from_pretrained(stage.model)
    arguments = TrainingArguments(output_dir=stage.output_dir, per_device_train_batch_size=2)
    trainer = Trainer(model=model, args=arguments, train_dataset=rows)
    trainer.train()
    trainer.save_model(stage.output_dir)
"""


def _notebook(code: str) -> str:
    cell = {"cell_type": "code", "source": code, "metadata": {}, "outputs": []}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.mark.parametrize("suffix", ["py", "ipynb"])
def test_stages_in_programs_of_a_folder_that_hold_their_paths_in_records(suffix: str) -> None:
    stages = {
        f"01.{suffix}": _STAGE.format(model=_QWEN, out="out/stage_one"),
        f"02.{suffix}": _STAGE.format(model="out/stage_one", out="out/stage_two"),
    }
    if suffix == "ipynb":
        stages = {name: _notebook(code) for name, code in stages.items()}
    run = _last(stages, f"02.{suffix}")
    assert run.model is not None
    assert run.model.id == _QWEN
