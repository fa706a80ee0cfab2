"""DeepSpeed that a command asks for and the environment lacks, and what leaves that open."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.dialects.common.fields import shared

_SCRIPT = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.2-1B")
Trainer(model=model, args=args, train_dataset=data, data_collator=collator).train()
"""
_NEEDED = ("certifi==2024.2.2", "idna==3.6", "urllib3==2.2.1", "torch==2.3.0")
_FROZEN = "".join(f"{line}\n" for line in (*_NEEDED, *(f"needed{n}==1.0" for n in range(30))))
_LOCK = '[[package]]\nname = "torch"\nversion = "2.3.0"\n'
_SIZES = "--per_device_train_batch_size 4 --learning_rate 1e-5 --bf16 True"
_START = f"deepspeed --num_gpus 1 train.py --output_dir out {_SIZES} --deepspeed ds.json"


@pytest.mark.parametrize(
    ("start", "files", "is_sure"),
    [
        (_START, {"requirements.txt": _FROZEN}, True),
        (_START, {"uv.lock": _LOCK}, True),
        (_START.replace("deepspeed --num_gpus 1", "python"), {"uv.lock": _LOCK}, True),
        (f"python train.py --output_dir out {_SIZES}", {"uv.lock": _LOCK}, False),
        (_START, {"requirements.txt": "torch==2.3.0\ntransformers==4.44.0\n"}, False),
        (_START, {"requirements.txt": f"{_FROZEN}numpy>=1.0\n"}, False),
        (_START, {"requirements.txt": f"{_FROZEN}deepspeed==0.15.0\n"}, False),
        (_START, {"uv.lock": _LOCK.replace("torch", "flask")}, False),
        (_START, {"uv.lock": _LOCK, "README.md": "Then `pip install deepspeed`\n"}, False),
        (_START, {"uv.lock": _LOCK, "README.md": "| deepspeed | >=0.14 |\n"}, False),
        (_START, {"uv.lock": _LOCK, "README.md": f"Run:\n\n    {_START}\n"}, True),
        (_START, {"uv.lock": _LOCK, "Dockerfile": "FROM a/b:1\n"}, False),
        (f"module load DeepSpeed\n{_START}", {"uv.lock": _LOCK}, False),
    ],
)
def test_deepspeed_in_the_environment(start: str, files: dict[str, str], is_sure: bool) -> None:
    ours = {
        "train.py": _SCRIPT,
        "run.sh": f"{start}\n",
        "ds.json": '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}',
    }
    run = run_of({**ours, **files}, "run.sh", "train.py", hardware="1xRTX-4090-24GB")
    found = run.settings.get(shared.refused)
    assert (found is not None and "no deepspeed" in str(found.value)) is is_sure


_PLAIN = f"python train.py --output_dir out {_SIZES} --deepspeed ds.json"
_LISTED = {"requirements.txt": "torch\ntransformers\ndeepspeed\n"}


@pytest.mark.parametrize(
    ("start", "script", "files", "is_sure"),
    [
        (_PLAIN, _SCRIPT, _LISTED, True),
        (f"CUDA_VISIBLE_DEVICES=0 {_PLAIN}", _SCRIPT, _LISTED, True),
        (_START, _SCRIPT, _LISTED, False),
        (_PLAIN.replace("python", "torchrun --nproc_per_node 1"), _SCRIPT, _LISTED, False),
        (_PLAIN.replace(" --deepspeed ds.json", ""), _SCRIPT, _LISTED, False),
        (f"export MASTER_ADDR=localhost RANK=0\n{_PLAIN}", _SCRIPT, _LISTED, False),
        (_PLAIN, f'import os\nos.environ["RANK"] = "0"\n{_SCRIPT}', _LISTED, False),
        (f"module load mpi\n{_PLAIN}", _SCRIPT, _LISTED, False),
        (_PLAIN, _SCRIPT, {"requirements.txt": "torch\ntransformers\n"}, False),
        (_PLAIN, _SCRIPT, {"requirements.txt": "deepspeed\nmpi4py\n"}, False),
        (_PLAIN, _SCRIPT, {**_LISTED, "README.md": "`conda install mpi4py` first\n"}, False),
        (_PLAIN, _SCRIPT, {**_LISTED, "Dockerfile": "FROM a/b:1\n"}, False),
    ],
)
def test_deepspeed_without_a_launcher_looks_for_mpi(
    start: str, script: str, files: dict[str, str], is_sure: bool
) -> None:
    ours = {
        "train.py": script,
        "run.sh": f"{start}\n",
        "ds.json": '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}',
    }
    run = run_of({**ours, **files}, "run.sh", "train.py", hardware="1xRTX-4090-24GB")
    found = run.settings.get(shared.refused)
    assert (found is not None and "mpi4py" in str(found.value)) is is_sure
