"""Slurm's directives: hardware, ranks and RAM of the launches in a script."""

from __future__ import annotations

import pytest
from tests.linked import run_of

from oomlint.errors import CannotEdit
from oomlint.fix.edits import make_fix
from oomlint.judgement.words import resting_on_card
from oomlint.linting.rule import Proposal
from oomlint.runs.run import Run

_TRAIN = (
    " train.py --output_dir out --per_device_train_batch_size 1 --learning_rate 1e-5"
    " --num_train_epochs 1 --bf16 True --model_name_or_path meta-llama/Llama-2-7b-hf\n"
)


def _run(directives: str, launch: str = "torchrun --nproc_per_node 8", **options: object) -> Run:
    lines = "".join(f"#SBATCH {line}\n" for line in directives.split("; ") if line)
    script = f"#!/bin/bash\n{lines}\n{launch}{_TRAIN}"
    return run_of({"job.sh": script}, **options)


@pytest.mark.parametrize(
    ("directives", "name"),
    [
        ("--nodes=1; --gres=gpu:h100:8", "8xH100-80GB"),
        ("-N 2; --gpus-per-node=h200:8", "2x8xH200-141GB"),
        ("--nodes=2; --gpus=h100:16", "2x8xH100-80GB"),
        ("--gres=gpu:l40s:4(S:0-1)", "8xL40S-48GB"),
        ("--gres=gpu:8,nvme:1; --constraint=h100", "8xH100-80GB"),
        ("--gres=gpu:a100:8; --constraint=80gb", "8xA100-80GB"),
        ("--gres=gpu:8; -C a100&gpu80", "8xA100-80GB"),
        ("--gres=gpu:a100_80g:8", "8xA100-80GB"),
        ("--gpus-per-node=A100:8 -C a100-80g", "8xA100-80GB"),
        ("--ntasks=2; --ntasks-per-node=1; --gpus-per-task=h100:8", "2x8xH100-80GB"),
        ("--ntasks=2; --nodes=2; --gpus-per-task=h100:8", "2x8xH100-80GB"),
    ],
)
def test_infers_the_hardware(directives: str, name: str) -> None:
    run = _run(directives, "srun torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES")
    assert run.hardware is not None
    assert run.hardware.name == name
    assert run.hardware.source.startswith("Slurm asks for ")
    assert "(job.sh:" in run.hardware.source
    assert run.limits.gpu_bytes is not None


@pytest.mark.parametrize(
    ("directives", "name", "smaller"),
    [
        ("--gres=gpu:a100:8", "8xA100-80GB", ["A100-40GB"]),
        ("--gpus-per-node=v100:4", "4xV100-32GB", ["V100-16GB"]),
        ("--gres=gpu:h100:8", "8xH100-80GB", []),
    ],
)
def test_a_name_of_several_sizes_is_taken_for_the_largest(
    directives: str, name: str, smaller: list[str]
) -> None:
    """What does not fit there dies whichever it is."""
    hardware = _run(directives, "srun torchrun --nproc_per_node gpu --nnodes 1").hardware
    assert hardware is not None
    assert hardware.name == name
    assert [gpu.name for gpu in hardware.smaller] == smaller
    assert bool(resting_on_card(hardware)) is bool(smaller)


@pytest.mark.parametrize(
    "directives",
    [
        "",
        "--gres=gpu:8",
        "--gres=gpu:8; --constraint=a100|h100",
        "--gres=gpu:8; --constraint=infiniband",
        "--constraint=h100",  # no GPUs are asked for
        "--gres=nvme:1",
        "--gres=gpu:bigone:8",
    ],
)
def test_does_not_guess_the_hardware(directives: str) -> None:
    run = _run(directives)
    assert run.hardware is None
    assert run.plan.device.type is None


def test_the_command_line_of_oomlint_comes_first_and_the_launcher_second() -> None:
    directives = "--nodes=4; --gres=gpu:h100:8; --mem=64G"
    given = _run(directives, hardware="8xA100-80GB")
    assert given.hardware is not None
    assert given.hardware.gpu.name == "A100-80GB"
    assert given.plan.parallel.nodes == 1  # torchrun without --nnodes
    told = _run(directives, values={"host.ram_gib": 512.0})
    assert told.plan.host.ram_gib == 512
    launched = _run(directives, "torchrun --nproc_per_node 4 --nnodes 2")
    assert launched.hardware is not None
    assert launched.hardware.name == "2x4xH100-80GB"


@pytest.mark.parametrize(
    ("directives", "gib"),
    [
        ("--mem=64G", 64),
        ("--mem=65536", 64),
        ("--mem 0", None),
        ("--exclusive", None),
        ("--gres=gpu:4; --mem-per-gpu=100G", 400),
        ("--mem-per-gpu=100G", None),
        ("--mem-per-cpu=6G; --cpus-per-task=32", 192),
        ("--nodes=2; --ntasks-per-node=8; --mem-per-cpu=2G; --cpus-per-task=6", 96),
        ("--nodes=2; --ntasks=16; --mem-per-cpu=2G; --cpus-per-task=6", 96),
        ("--mem=$RAM", None),
    ],
)
def test_reads_the_limit_of_a_node(directives: str, gib: float | None) -> None:
    run = _run(directives)
    assert run.plan.host.ram_gib == gib
    assert run.limits.host_bytes == (None if gib is None else gib * 2**30)
    assert not run.wrong
    if gib is not None:
        place = run.location("host.ram_gib")
        assert place.path == "job.sh"
        assert "mem" in run.claims[0].document.source.text[place.span.start : place.span.end]


@pytest.mark.parametrize(
    ("directives", "launch", "ranks"),
    [
        ("--nodes=2; --ntasks-per-node=4; --gres=gpu:4", "srun python", (2, 4)),
        ("--nodes=2; --ntasks=8; --gres=gpu:4", "srun python", (2, 4)),
        ("--nodes=2; --ntasks-per-node=4; --gres=gpu:4", "srun --ntasks-per-node=2 python", (2, 2)),
        ("--nodes=2; --ntasks-per-node=1; --gres=gpu:8", "srun torchrun --nnodes 2 --nproc_per_node 8", (2, 8)),
        ("--nodes=2; --gres=gpu:8", "srun torchrun --nnodes $SLURM_JOB_NUM_NODES --nproc_per_node gpu", (2, 8)),
        ("--nodes=2; --gres=gpu:8", "accelerate launch --num_processes $N --num_machines $SLURM_NNODES", (2, 8)),
        ("--nodes=2-4; --gres=gpu:8", "srun torchrun --nnodes $SLURM_NNODES --nproc_per_node $G", (4, 8)),
    ],
)  # fmt: skip
def test_counts_ranks(directives: str, launch: str, ranks: tuple[int, int]) -> None:
    parallel = _run(directives, launch).plan.parallel
    assert (parallel.nodes, parallel.gpus_per_node) == ranks
    assert parallel.world == ranks[0] * ranks[1]


@pytest.mark.parametrize(
    ("directives", "old", "new"),
    [
        ("--mem=64G", "--mem=64G", "--mem=100G"),
        ("--gres=gpu:4; --mem-per-gpu=16G", "--mem-per-gpu=16G", "--mem-per-gpu=25G"),
        ("--mem-per-cpu=1G; --cpus-per-task=32", "--mem-per-cpu=1G", "--mem-per-cpu=3184M"),
        ("--nodes=1", "--nodes=1\n", "--nodes=1\n#SBATCH --mem=100G\n"),
    ],
)
def test_a_wish_for_ram_is_written_where_it_is_limited(directives: str, old: str, new: str) -> None:
    run = _run(directives)
    changed = run.what_if({"host.ram_gib": 99.5})
    assert 99.5 <= (changed.plan.host.ram_gib or 0) <= 100
    fix = make_fix(run, Proposal.set("ask for more", {"host.ram_gib": 99.5}), "host")
    assert fix is not None
    assert fix.reason is None
    source = run.claims[0].document.source
    assert source.edited(fix.edits).text == source.text.replace(old, new)


def test_what_the_script_leaves_to_the_command_line_of_sbatch_is_unknown() -> None:
    launch = "srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8"
    assert _run("--nodes=$NODES; --gres=gpu:8", launch).plan.parallel.nodes is None
    # Without --nodes and --ntasks sbatch gives one task on one node.
    assert _run("--gres=gpu:8", launch).plan.parallel.nodes == 1


def test_a_wish_for_ram_without_directives_cannot_be_written() -> None:
    with pytest.raises(CannotEdit):
        _run("").what_if({"host.ram_gib": 99.5})


# -- heterogeneous jobs, and what a script asks its machine --------------------------------------

_HETEROGENEOUS = (
    "--nodes=1 --mem=32G; hetjob; --nodes=2 --gpus-per-node=a100:4 --ntasks-per-node=4 --mem=500G"
)


def test_srun_names_the_component_of_a_heterogeneous_job() -> None:
    run = _run(_HETEROGENEOUS, "srun --het-group=1 python")
    assert (run.plan.parallel.nodes, run.plan.parallel.gpus_per_node) == (2, 4)
    assert run.plan.host.ram_gib == 500


def test_the_script_itself_runs_in_the_first_component() -> None:
    run = _run(_HETEROGENEOUS, "torchrun --nproc_per_node 2")
    assert (run.plan.parallel.nodes, run.plan.host.ram_gib) == (1, 32)


def test_a_step_over_several_components_has_no_one_limit() -> None:
    assert _run(_HETEROGENEOUS, "srun --het-group=0,1 python").plan.host.ram_gib is None


@pytest.mark.parametrize(
    ("launch", "counts"),
    [
        ("torchrun --nnodes $SLURM_NNODES --nproc_per_node $SLURM_GPUS_ON_NODE", (4, 8)),
        ("torchrun --nnodes ${SLURM_NNODES:-1} --nproc_per_node $(nvidia-smi -L | wc -l)", (4, 8)),
        ("accelerate launch --num_machines $SLURM_NNODES --num_processes $((SLURM_NNODES * 8))", (4, 8)),
    ],
)  # fmt: skip
def test_the_job_answers_what_its_script_asks(launch: str, counts: tuple[int, int]) -> None:
    for options in ({}, {"hardware": "16xV100-32GB"}):
        plan = _run("--nodes=4; --gpus-per-node=a100:8", launch, **options).plan
        assert (plan.parallel.nodes, plan.parallel.gpus_per_node) == counts


def test_the_named_hardware_answers_where_no_file_does() -> None:
    ask = "torchrun --nproc_per_node $(nvidia-smi -L | wc -l)"
    assert _run("", ask).plan.parallel.gpus_per_node is None
    run = _run("", ask, hardware="4xA100-80GB")
    assert run.plan.parallel.gpus_per_node == 4
    origin = run.origin("parallel.gpus_per_node")
    assert origin is not None
    assert origin.kind == "assumed"


def test_device_count_sees_the_visible_gpus_only() -> None:
    ask = "N=$(python -c 'import torch; print(torch.cuda.device_count())')\n"
    ask += "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node $N"
    run = _run("", ask, hardware="4xA100-80GB")
    assert run.plan.parallel.gpus_per_node == 2
