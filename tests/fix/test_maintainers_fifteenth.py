"""What a fifteenth reading of diffs in public repositories found; the projects here are written anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.fixing import fix_of, repaired
from tests.linked import link, run_of

from oomlint.documents.text import Edit
from oomlint.files.workspace import Workspace
from oomlint.fix.packages import missing_package
from oomlint.linting.engine import Options, lint
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_SCRIPT = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("{model}", torch_dtype="bfloat16")
args = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size={micro},
    gradient_checkpointing=True,
    bf16=True,
{more})
Trainer(model=model, args=args, train_dataset=data).train()
"""
_ACCELERATE = """\
distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: {stage}
  offload_optimizer_device: none
  offload_param_device: none
mixed_precision: bf16
num_machines: 1
num_processes: {gpus}
"""


def _script(model: str = "Qwen/Qwen2.5-7B", micro: int = 1, more: str = "") -> str:
    return _SCRIPT.format(model=model, micro=micro, more=more and f"    {more},\n")


def _launched(optim: str) -> Run:
    files = {
        "train.py": _script(more=f'optim="{optim}"'),
        "acc.yaml": _ACCELERATE.format(stage=2, gpus=4),
        "run.sh": "accelerate launch --config_file acc.yaml train.py\n",
    }
    return next(run for run in link(files, *files).runs if "acc.yaml" in run.files)


@pytest.mark.parametrize(
    ("optim", "is_kept"),
    [("adamw_torch", True), ("rmsprop", False), ("adagrad", False), ("adamw_bnb_8bit", False)],
)
def test_an_optimizer_that_deepspeeds_adam_would_replace_is_not_offloaded(
    optim: str, is_kept: bool
) -> None:
    fix = fix_of(_launched(optim), {f.offload.optimizer: "cpu"})
    assert bool(fix.edits) is is_kept
    if not is_kept:
        assert fix.reason is not None
        assert "DeepSpeed's own Adam takes the place" in fix.reason


_CLASSIFIER = """\
from transformers import {loader}
from trl import SFTConfig, SFTTrainer

model = {loader}.from_pretrained("Qwen/Qwen2.5-7B")
args = SFTConfig(output_dir="out", eval_strategy="epoch", max_length=1024)
SFTTrainer(model=model, args=args, train_dataset=a, eval_dataset=b, compute_metrics=c).train()
"""


@pytest.mark.parametrize(
    ("loader", "keeps"),
    [("AutoModelForSequenceClassification", False), ("AutoModelForCausalLM", True)],
)
def test_a_classifier_that_trls_trainer_trains_has_few_logits(loader: str, keeps: bool) -> None:
    run = run_of({"train.py": _CLASSIFIER.format(loader=loader)})
    assert run.plan.eval.keeps_logits is keeps


_ZERO = """\
{{
  "bf16": {{"enabled": "auto"}},
  "zero_optimization": {{"stage": {stage}{more}}},
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto"
}}
"""
_CPU = '"offload_{}": {{"device": "cpu"}}'
_PARSED = """\
import transformers

parser = transformers.HfArgumentParser(transformers.TrainingArguments)
(args,) = parser.parse_args_into_dataclasses()
model = transformers.AutoModelForCausalLM.from_pretrained(
    "Qwen/Qwen2.5-7B", torch_dtype="bfloat16"
)
transformers.Trainer(model=model, args=args, train_dataset=data).train()
"""


def _zero(stage: int, *offloaded: str) -> str:
    return _ZERO.format(stage=stage, more="".join(f", {_CPU.format(each)}" for each in offloaded))


def _line(config: str, micro: int = 1) -> str:
    return (
        f"deepspeed --num_gpus 4 train.py --deepspeed {config} --output_dir out --bf16 True "
        f"--gradient_checkpointing True --per_device_train_batch_size {micro}\n"
    )


@pytest.mark.parametrize(
    ("comment", "is_written"),
    [
        ("", True),
        ("# shards states and gradients (ZeRO-2)\n", False),
        ("# DeepSpeed ZeRO Stage 2 on four cards\n", False),
        ("# ZeRO-2, or ZeRO-3 where it does not fit\n", True),
        ("# supports ZeRO-2\n", True),
        ("# --deepspeed ds_zero2.json\n", True),
    ],
)
def test_a_comment_that_says_the_stage_stays_true(comment: str, is_written: bool) -> None:
    files = {"train.py": _PARSED, "ds.json": _zero(2), "run.sh": comment + _line("ds.json")}
    fix = fix_of(run_of(files, "run.sh"), {f.parallel.zero.stage: 3})
    assert bool(fix.edits) is is_written


def _shared(name: str, text: str, beside: str = "", **more: str) -> Run:
    files = {
        "configs/train.yaml": beside,
        "train.py": _PARSED,
        "one.sh": _line(name),
        "two.sh": _line(name, micro=2),
        name: text,
        **{path.replace("__", "/") + ".json": content for path, content in more.items()},
    }
    return link(files, "one.sh", "two.sh").runs[0]


@pytest.mark.parametrize(
    ("name", "copy"),
    [("ds.json", "ds_offload_optimizer.json"), ("offload_opt_param.json", None)],
)
def test_a_copy_says_once_what_it_offloads(name: str, copy: str | None) -> None:
    fix = fix_of(_shared(name, _zero(3)), {f.offload.optimizer: "cpu"})
    assert [edit.path for edit in fix.edits if edit.creates] == ([copy] if copy else [])


def test_a_copy_is_not_called_by_the_stage_that_its_file_has() -> None:
    changes = {f.parallel.zero.stage: 3, f.offload.params: "cpu", f.offload.optimizer: "cpu"}
    fix = fix_of(_shared("ds.json", _zero(3)), changes)
    assert [edit.path for edit in fix.edits if edit.creates] == ["ds_offload.json"]


_OTHERWISE = ', "round_robin_gradients": true'


@pytest.mark.parametrize(
    ("other", "beside", "is_copied"),
    [
        ("ds__zero3_offload", "", False),
        ("configs__offload", "", False),
        ("configs__offload", "deepspeed: offload.json\n", True),  # that is for its runs
        ("configs__zero3", "", True),
    ],
)
def test_no_second_config_is_made_for_a_job(other: str, beside: str, is_copied: bool) -> None:
    offloaded = () if other.endswith("zero3") else ("optimizer", "param")
    text = _zero(3, *offloaded).replace('"stage": 3', f'"stage": 3{_OTHERWISE}')
    run = _shared("ds/zero3.json", _zero(3), beside=beside, **{other: text})
    fix = fix_of(run, {f.offload.optimizer: "cpu", f.offload.params: "cpu"})
    assert any(edit.creates for edit in fix.edits) is is_copied


_LLAMA_FACTORY = """\
model_name_or_path: Qwen/Qwen2.5-3B
stage: sft
finetuning_type: full
dataset: mine
template: qwen
cutoff_len: 4096
packing: true
flash_attn: fa2
output_dir: out
per_device_train_batch_size: 8
deepspeed: ds.json
bf16: true
"""


def test_what_is_offloaded_stays_there_where_the_card_is_too_small() -> None:
    files = {
        "a.yaml": _LLAMA_FACTORY,
        "ds.json": _zero(2, "optimizer"),
        "run.sh": "FORCE_TORCHRUN=1 llamafactory-cli train a.yaml\n",
        "data/dataset_info.json": '{"mine": {"file_name": "mine.json"}}',
    }
    done = repaired(files, "a.yaml", hardware="4xA100-40GB", unsafe=True)
    assert done.texts
    config = json.loads(done.texts.get("ds.json", files["ds.json"].encode()))
    assert config["zero_optimization"]["offload_optimizer"]["device"] == "cpu"


@pytest.mark.parametrize(
    ("shown", "is_written"), [("0,1", True), ("0, 4", False), ("0,1,2,3,4,5,6,7", False)]
)
def test_nothing_is_fitted_to_a_machine_without_the_cards_that_are_listed(
    shown: str, is_written: bool
) -> None:
    files = {
        "train.py": _script(),
        "acc.yaml": _ACCELERATE.format(stage=2, gpus=2),
        "run.sh": f'export CUDA_VISIBLE_DEVICES="{shown}"\naccelerate launch --config_file acc.yaml train.py\n',
    }
    done = repaired(files, "run.sh", hardware="4xA100-40GB", unsafe=True)
    assert bool(done.texts) is is_written


@pytest.mark.parametrize(
    ("line", "gpus"),
    [
        ("CUDA_VISIBLE_DEVICES=2,3,4,5,6,7,0,1 python train.py\n", 4),
        (f"export CUDA_VISIBLE_DEVICES=0,1,2,3\n{_line('ds.json')}", 1),
    ],
)
def test_no_launch_is_changed_under_a_list_of_more_cards(line: str, gpus: int) -> None:
    script = _script("Qwen/Qwen2.5-0.5B") if " python " in line else _PARSED
    files = {"train.py": script, "ds.json": _zero(3), "run.sh": line}
    for cards, is_written in ((gpus, False), (8, " python " in line)):
        done = repaired(files, "run.sh", hardware=f"{cards}xA100-80GB", unsafe=True)
        assert ("run.sh" in done.texts) is is_written


_AXOLOTL = """\
base_model: mistralai/Mistral-7B-v0.1
datasets: [{path: d, type: alpaca}]
sequence_len: 2048
micro_batch_size: 1
gradient_checkpointing: true
flash_attention: true
bf16: true
output_dir: out
"""


@pytest.mark.parametrize(
    ("said", "lacks"), [("Axolotl", None), ("Axolotl (no DeepSpeed)", "deepspeed")]
)
def test_deepspeed_that_the_setup_leaves_out_is_not_brought_in(
    said: str, lacks: str | None, tmp_path: Path
) -> None:
    files = {
        "sft.yaml": _AXOLOTL,
        "requirements.txt": "torch\naxolotl[deepspeed]\n",
        "install.sh": f'echo "{said}"\npip install torch axolotl\n',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (run,) = lint(Workspace(tmp_path), ["sft.yaml"], Options(), rules=()).runs
    edit = Edit("sft.yaml", 0, 0, "deepspeed: zero3.json\n")
    assert missing_package(run, [edit]) == lacks


_DISTILLED = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


class DistillTrainer(Trainer):
    def __init__(self, *args, teacher_model=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.teacher = AutoModelForCausalLM.from_pretrained(teacher_model)


model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B", torch_dtype="bfloat16")
args = TrainingArguments(output_dir="out", per_device_train_batch_size=1, bf16=True)
DistillTrainer(model=model, args=args, train_dataset=data{more}).train()
"""


def test_the_teacher_of_a_trainer_of_the_projects_own_is_counted() -> None:
    teacher = ', teacher_model="Qwen/Qwen3-8B"'
    alone, taught = (
        run_of({"train.py": _DISTILLED.format(more=more)}, hardware="1xA100-80GB")
        for more in ("", teacher)
    )
    assert alone.plan.objective.teacher is None
    assert taught.plan.objective.teacher == "Qwen/Qwen3-8B"
    assert (taught.plan.objective.teacher_params or 0) > 8e9
