"""Training jobs that a script or a notebook hands to SageMaker."""

from __future__ import annotations

import json

import pytest
from tests.linked import link

from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_TRAIN = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

parser = HfArgumentParser((TrainingArguments,))
(arguments,) = parser.parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
Trainer(model=model, args=arguments, train_dataset=data).train()
"""
_ESTIMATOR = """\
from sagemaker.huggingface import HuggingFace

hyperparameters = {
    "per_device_train_batch_size": 2,
    "gradient_checkpointing": True,
    "bf16": True,
    "fsdp": '"full_shard auto_wrap"',
    "output_dir": "/opt/ml/model",
}
estimator = HuggingFace(
    entry_point="train.py",
    source_dir="./scripts",
    instance_type="ml.p4d.24xlarge",
    instance_count=2,
    transformers_version="4.28",
    pytorch_version="2.0",
    hyperparameters=hyperparameters,
    distribution={"torch_distributed": {"enabled": True}},
)
estimator.fit({"training": "s3://bucket/train"})
"""
_TRAINER = """\
from sagemaker.modules.configs import Compute, SourceCode
from sagemaker.modules.distributed import Torchrun
from sagemaker.modules.train import ModelTrainer

code = SourceCode(source_dir="./scripts", entry_script="train.py", requirements="requirements.txt")
trainer = ModelTrainer(
    source_code=code,
    compute=Compute(instance_type="ml.g5.12xlarge", instance_count=1),
    distributed=Torchrun(),
    hyperparameters={"per_device_train_batch_size": 4, "output_dir": "/opt/ml/model", "bf16": True},
)
"""


def _run(job: str, name: str = "job.py") -> Run:
    (run,) = [
        r for r in link({name: job, "scripts/train.py": _TRAIN}, name).runs if not r.is_fragment
    ]
    return run


def test_what_an_estimator_is_told() -> None:
    plan = _run(_ESTIMATOR).plan
    assert (plan.parallel.nodes, plan.parallel.gpus_per_node, plan.parallel.backend) == (
        2,
        8,
        "fsdp1",
    )
    assert (plan.batch.micro, plan.checkpointing.mode, plan.precision.autocast) == (2, "full", True)
    assert (plan.device.type, plan.host.ram_gib) == ("A100-40GB", 1134)
    assert plan.model.id == "meta-llama/Llama-2-7b-hf"
    # The container's release is before the one that computes attention by itself.
    assert plan.model.attn_impl == "eager"


def test_a_notebook_points_at_the_hyperparameter() -> None:
    cells = [{"cell_type": "code", "source": _ESTIMATOR.splitlines(keepends=True), "outputs": []}]
    text = json.dumps(
        {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1
    )
    run = _run(text, "job.ipynb")
    origin = run.origin(f.batch.micro)
    assert origin is not None
    assert origin.entry is not None
    span = origin.entry.value.span
    assert (text[span.start : span.end], run.plan.batch.micro) == ("2", 2)


def test_what_a_model_trainer_is_told() -> None:
    plan = _run(_TRAINER).plan
    assert (plan.parallel.gpus_per_node, plan.batch.micro) == (4, 4)
    assert plan.device.type == "A10G-24GB"


def test_a_command_of_its_own() -> None:
    command = 'command="accelerate launch --num_processes 2 train.py --bf16 True --output_dir o --per_device_train_batch_size 2 --learning_rate 1e-5"'
    job = _TRAINER.replace('entry_script="train.py"', command)
    assert _run(job).plan.parallel.gpus_per_node == 2


def test_without_a_launcher_one_process_trains() -> None:
    line = '    distribution={"torch_distributed": {"enabled": True}},\n'
    run = _run(_ESTIMATOR.replace(line, ""))
    assert (run.plan.parallel.nodes, run.plan.parallel.gpus_per_node) == (1, 1)


def test_a_hyperparameter_that_is_not_read_is_open() -> None:
    run = _run(
        _ESTIMATOR.replace(
            '"per_device_train_batch_size": 2', '"per_device_train_batch_size": size'
        )
    )
    assert run.level(f.batch.micro) is Level.UNREAD


@pytest.mark.parametrize(
    ("read", "other"),
    [
        ('{"torch_distributed": {"enabled": True}}', '{"smdistributed": {"modelparallel": {"enabled": True}}}'),
        ('source_dir="./scripts"', 'source_dir="./scripts", git_config={"repo": "https://x/y"}'),
        ("from sagemaker.huggingface import", "from ours import"),
        ('entry_point="train.py"', 'entry_point="inference.sh"'),
    ],
)  # fmt: skip
def test_jobs_that_are_not_read(read: str, other: str) -> None:
    files = {"job.py": _ESTIMATOR.replace(read, other), "scripts/train.py": _TRAIN}
    assert [run for run in link(files, "job.py").runs if "job.py" in run.files] == []
