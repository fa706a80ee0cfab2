"""SkyPilot tasks: accelerators, nodes, and the training in their script."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.linked import link

from oomlint.dialects import registry
from oomlint.files.workspace import Workspace
from oomlint.fix.edits import make_fix
from oomlint.linting.rule import Proposal
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

_TASK = """resources:
  accelerators: A100-80GB:8
num_nodes: 2
envs:
  CUDA_VISIBLE_DEVICES: 0,1,2,3
setup: |
  pip install transformers
run: |
  conda activate train
  torchrun --nnodes $SKYPILOT_NUM_NODES --nproc_per_node $SKYPILOT_NUM_GPUS_PER_NODE \\
    train.py --output_dir out --per_device_train_batch_size 1 --learning_rate 1e-5 \\
    --num_train_epochs 1 --bf16 True --model_name_or_path meta-llama/Llama-2-7b-hf
"""


def _runs(text: str) -> list[Run]:
    return link({"sky.yaml": text}).runs


def test_reads_a_task() -> None:
    (run,) = _runs(_TASK)
    assert run.framework == "hf-trainer"
    assert (run.plan.parallel.nodes, run.plan.parallel.gpus_per_node) == (2, 8)
    assert run.plan.env.cuda_visible_devices == "0,1,2,3"
    assert run.hardware is not None
    assert run.hardware.name == "2x8xA100-80GB"
    assert run.hardware.source == "SkyPilot asks for A100-80GB (sky.yaml:2)"
    # Memory that a task asks for is the least that its machines have, no limit.
    assert run.plan.host.ram_gib is None
    fix = make_fix(run, Proposal.set("change", {"batch.micro": 2, "batch.grad_accum": 4}), "gpu")
    assert fix is not None
    text = run.claims[0].document.source.edited(fix.edits).text
    assert text == _TASK.replace("batch_size 1", "batch_size 2 --gradient_accumulation_steps 4")


@pytest.mark.parametrize(
    ("accelerators", "gpu", "count"),
    [
        ("A100:8", "A100-40GB", 8),
        ("H100", "H100-80GB", 1),
        ("{L4: 4}", "L4-24GB", 4),
        ("['H100:8']", "H100-80GB", 8),
        ("['A100-80GB:8', 'H100:8']", None, None),
        ("{H100: 8, L4: 8}", None, None),
        ("{'L40S:4'}", "L40S-48GB", 4),
        ("tpu-v4-8", None, None),
    ],
)
def test_reads_accelerators(accelerators: str, gpu: str | None, count: int | None) -> None:
    text = (
        _TASK.replace("A100-80GB:8", accelerators)
        .replace("--nproc_per_node $SKYPILOT_NUM_GPUS_PER_NODE", "--nproc_per_node gpu")
        .replace("  CUDA_VISIBLE_DEVICES: 0,1,2,3\n", "  A: b\n")
    )
    (run,) = _runs(text)
    assert run.plan.device.type == gpu
    if gpu is not None:
        assert run.plan.parallel.gpus_per_node == count


def test_reads_an_instance_type() -> None:
    (run,) = _runs(_TASK.replace("accelerators: A100-80GB:8", "instance_type: p4d.24xlarge"))
    assert run.hardware is not None
    assert run.hardware.gpu.name == "A100-40GB"
    assert run.plan.host.ram_gib == 1134


def test_the_task_s_variables_are_those_of_the_script() -> None:
    text = _TASK.replace("  CUDA", '  SIZE: 13b\n  MICRO: "4"\n  NOTE: it\'s $x\n  CUDA')
    text = text.replace("Llama-2-7b-hf", "Llama-2-${SIZE}-hf").replace("size 1", "size $MICRO")
    (run,) = _runs(text)
    assert run.plan.model.id == "meta-llama/Llama-2-13b-hf"
    assert run.plan.batch.micro == 4
    fix = make_fix(run, Proposal.set("change", {"batch.micro": 2}), "gpu")
    assert fix is not None
    new = run.claims[0].document.source.edited(fix.edits).text
    assert new == text.replace('MICRO: "4"', 'MICRO: "2"')
    # What the set-up uses too is not changed for the sake of the run.
    (shared,) = _runs(text.replace("pip install", "echo $MICRO; pip install"))
    fix = make_fix(shared, Proposal.set("change", {"batch.micro": 2}), "gpu")
    assert fix is not None
    assert not fix.edits


@pytest.mark.parametrize(
    "text",
    [
        "resources: {accelerators: L4}\nrun: echo hi\n",
        "resources: {accelerators: L4}\nrun: [a]\n",
        "resources: {accelerators: L4}\n",
        "resources: 'accelerators: L4'\nrun: python train.py\n",
    ],
)
def test_tasks_that_do_not_train_are_left_alone(text: str) -> None:
    assert _runs(text) == []


def test_variables_of_the_scheduler_reach_other_launchers() -> None:
    config = (
        "model_name_or_path: meta-llama/Llama-2-13b-hf\nstage: sft\ndo_train: true\n"
        "finetuning_type: full\ndataset: alpaca\ntemplate: llama2\noutput_dir: out\n"
    )
    task = (
        "resources: {accelerators: H200:8}\nnum_nodes: 2\nrun: |\n  cd LLaMA-Factory\n"
        "  FORCE_TORCHRUN=1 NNODES=$SKYPILOT_NUM_NODES llamafactory-cli train tune.yaml\n"
    ).replace("H200:8", "'H200:8'")
    workspace = Workspace(Path("/x"), {"tune.yaml": config.encode(), "sky.yml": task.encode()})
    (run,) = Linker(workspace, registry(), LinkOptions()).link(["tune.yaml", "sky.yml"]).runs
    assert run.files == ("tune.yaml", "sky.yml")
    assert (run.plan.parallel.nodes, run.plan.parallel.gpus_per_node) == (2, 8)
    assert run.hardware is not None
    assert run.hardware.name == "2x8xH200-141GB"
