"""Ranks and machines as launchers, schedulers, containers and the user say them, through cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace
from tests.linked import run_of

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import machine
from oomlint.dialects.facts import facts
from oomlint.dialects.given import Given
from oomlint.dialects.machine.fields import docker, k8s, launch, scene, slurm
from oomlint.dialects.machine.meaning import launch_all_visible, launch_one_process
from oomlint.dialects.machine.named_hardware import hardware_in_files
from oomlint.dialects.machine.scene_meaning import scene as scene_meaning
from oomlint.dialects.meaning import Meaning, expressed, writable
from oomlint.dialects.roots import roots_of
from oomlint.dialects.surroundings import Surroundings
from oomlint.errors import CannotEdit
from oomlint.hardware import parse_hardware
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.parts import Parts

_TRAIN = (
    " train.py --output_dir out --per_device_train_batch_size 1 --learning_rate 1e-5"
    " --num_train_epochs 1 --bf16 True --model_name_or_path meta-llama/Llama-2-7b-hf"
)
_ALONE = Meaning(launch_one_process, facts, scene_meaning)
_SPREADING = Meaning(launch_all_visible, facts, scene_meaning)

Files = Mapping[str, str]


def _parts(files: Files | str, hardware: str | None = None) -> Parts:
    """The blocks of the one run that a script, or the first of some files, starts."""
    files = {"job.sh": files} if isinstance(files, str) else files
    parts = run_of(files, next(iter(files))).parts
    return replace(parts, hardware=None if hardware is None else parse_hardware(hardware))


def _cells(parts: Parts, meaning: Meaning = _ALONE) -> Cells:
    known = Surroundings(
        parts.options, parts.hardware, parts.find_model, parts.versions, parts.floors
    )
    return Cells(Given(parts.blocks), meaning, known)


def _run(files: Files | str, hardware: str | None = None, *, spreads: bool = False) -> Cells:
    return _cells(_parts(files, hardware), _SPREADING if spreads else _ALONE)


def _counts(run: Cells) -> tuple[int | None, int | None]:
    return run[f.parallel.nodes], run[f.parallel.gpus_per_node]


# -- launchers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("torchrun --nproc_per_node 4 --nnodes 2", (2, 4)),
        ("torchrun", (1, 1)),
        ("torchrun --nnodes 1:4 --nproc_per_node 8", (4, 8)),
        ("CUDA_VISIBLE_DEVICES=0,1,2 torchrun --nproc_per_node gpu", (1, 3)),
        ("CUDA_VISIBLE_DEVICES=0,1,-1,2 torchrun --nproc_per_node gpu", (1, 2)),
        ("torchrun --nproc_per_node auto", (1, None)),
        ("torchrun --nproc_per_node $N", (1, None)),
        ("deepspeed --num_gpus 2", (1, 2)),
        ("deepspeed", (1, None)),
        ("CUDA_VISIBLE_DEVICES=0,1 deepspeed", (1, 2)),
        ("CUDA_VISIBLE_DEVICES=0,1 deepspeed --exclude localhost:0", (1, None)),
        ("deepspeed --include localhost:0,1,3", (1, 3)),
        ("deepspeed --include worker-0:0,1@worker-1:0,1", (2, 2)),
        ("deepspeed --include worker-0@worker-1", (2, None)),
        ("deepspeed --include worker-0:0,1@worker-1:0", (2, None)),
        ("deepspeed --num_gpus 8 --num_nodes 2 --hostfile h", (2, 8)),
        ("deepspeed --num_gpus 8 --hostfile h", (1, 8)),
        ("accelerate launch --num_machines 2 --num_processes 8", (2, None)),
        ("mpirun -np 4 --host a:2,b:2", (2, 2)),
        ("mpirun --host a:2,b:4", (2, None)),
        ("mpirun -np 16 --map-by ppr:4:node", (4, 4)),
        ("mpirun -np 16 --npernode 8", (2, 8)),
        ("mpirun -np 3 --npernode 2 --hostfile h", (1, 2)),
        ("srun --nodes=2 --ntasks-per-node=4 python", (2, 4)),
        ("python", (1, 1)),
        ("CUDA_VISIBLE_DEVICES=0,1 python", (1, 1)),
    ],
)
def test_counts_what_a_launcher_starts(line: str, counts: tuple[int | None, int | None]) -> None:
    assert _counts(_run(line + _TRAIN)) == counts


def test_a_program_may_spread_over_every_gpu_that_it_sees() -> None:
    line = "CUDA_VISIBLE_DEVICES=0,1 python" + _TRAIN
    assert _counts(_run(line, spreads=True)) == (1, 2)
    assert _counts(_run("python" + _TRAIN, spreads=True)) == (1, None)
    assert _counts(_run("python" + _TRAIN, "4xA100-80GB", spreads=True)) == (1, 4)


def test_a_job_sees_no_more_gpus_than_it_asks_for() -> None:
    """However many more the machine has that the user names."""
    asks = "#SBATCH --nodes=1 --gres=gpu:{}\n"
    assert _counts(_run(asks.format(1) + "python" + _TRAIN, "8xA100-80GB", spreads=True)) == (1, 1)
    assert _counts(_run(asks.format(8) + "python" + _TRAIN, "2xA100-80GB", spreads=True)) == (1, 2)
    auto = "torchrun --nproc_per_node auto" + _TRAIN
    assert _counts(_run(asks.format(4) + auto, "8xA100-80GB")) == (1, 4)


def test_whether_it_spreads_may_depend_on_the_run() -> None:
    meaning = Meaning(launch_one_process)
    meaning.always(launch.one_process, False, "this one spreads")
    parts = _parts("CUDA_VISIBLE_DEVICES=0,1 python" + _TRAIN)
    assert _counts(_cells(parts, meaning)) == (1, 2)


_HOSTS = "a slots=8\nb slots=8\nc slots=4\n"


@pytest.mark.parametrize(
    ("line", "hosts", "nodes", "each", "total", "most"),
    [
        ("deepspeed --hostfile h", "a slots=8\nb slots=8\n", 2, 8, None, None),
        ("deepspeed --hostfile h", _HOSTS, 3, None, 20, 8),
        ("deepspeed --hostfile h --num_nodes 2", _HOSTS, 2, 8, None, None),
        ("deepspeed --hostfile h --include a:0,1@b:0,1", _HOSTS, 2, 2, None, None),
        ("deepspeed --hostfile h --exclude c", _HOSTS, 2, 8, None, None),
        ("deepspeed --hostfile h --exclude c@b:0,1", _HOSTS, 2, None, 14, 8),
        ("deepspeed --hostfile h --num_gpus 4", _HOSTS, 3, 4, None, None),
        ("mpirun --hostfile h", "a slots=8\nb slots=8\n", 2, 8, None, None),
        ("mpirun --hostfile h", _HOSTS, 3, None, 20, 8),
        ("mpirun -np 8 --hostfile h", "a slots=8\nb slots=8\n", 1, 8, 8, None),
        ("mpirun --hostfile h", "a\nb\n", 2, None, None, None),
    ],
)
def test_counts_the_hosts_of_a_list(
    line: str, hosts: str, nodes: int, each: int | None, total: int | None, most: int | None
) -> None:
    run = _run({"job.sh": line + _TRAIN, "h": hosts})
    assert _counts(run) == (nodes, each)
    assert run[launch.total_processes] == total
    assert run[launch.most_per_node] == most


_CONFIG = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 2\n"
    "num_processes: 16\nmixed_precision: bf16\n"
)


@pytest.mark.parametrize(
    ("flags", "nodes", "total"),
    [
        ("", 2, 16),
        ("--num_processes 4", 2, 4),
        ("--num_machines 1 --num_processes 8", 1, 8),
    ],
)
def test_flags_of_accelerate_beat_its_config(flags: str, nodes: int, total: int) -> None:
    line = f"accelerate launch --config_file c.yaml {flags}{_TRAIN}"
    run = _run({"job.sh": line, "c.yaml": _CONFIG})
    assert (run[f.parallel.nodes], run[launch.total_processes]) == (nodes, total)
    setting = run.setting(launch.total_processes)
    assert setting is not None
    assert [earlier.value for earlier in setting.shadowed] == ([16] if flags else [])


def test_accelerate_starts_a_process_for_each_visible_gpu() -> None:
    line = "accelerate launch --multi_gpu" + _TRAIN
    assert _run(line)[launch.total_processes] is None
    assert _run("CUDA_VISIBLE_DEVICES=1,2 " + line)[launch.total_processes] == 2
    ids = "accelerate launch --gpu_ids 0,1,2 --num_machines 2" + _TRAIN
    assert _run(ids)[launch.total_processes] == 6


def test_the_launcher_of_deepspeed_shards_nothing_by_itself() -> None:
    assert _run("deepspeed" + _TRAIN)[f.parallel.unapplied] == "launcher"
    files = {
        "job.sh": f"deepspeed{_TRAIN} --deepspeed ds.json",
        "ds.json": '{"train_batch_size": 8}',
    }
    assert _run(files)[f.parallel.unapplied] is None
    assert _run("torchrun" + _TRAIN)[f.parallel.unapplied] is None


@pytest.mark.parametrize(
    ("conf", "expandable"),
    [("expandable_segments:True", True), ("max_split_size_mb:128", False), ("", None)],
)
def test_segments_grow_where_the_allocator_is_told_so(conf: str, expandable: bool | None) -> None:
    prefix = f"PYTORCH_CUDA_ALLOC_CONF={conf} " if conf else ""
    assert _run(f"{prefix}python{_TRAIN}")[f.env.expandable_segments] is expandable


# -- the hardware that the user names --------------------------------------------------------------


def test_a_file_comes_before_a_launcher_and_that_before_the_hardware() -> None:
    assert _counts(_run("torchrun --nproc_per_node 4" + _TRAIN, "2x8xH100-80GB")) == (1, 4)
    assert _counts(_run("torchrun --nproc_per_node gpu" + _TRAIN, "2x8xH100-80GB")) == (1, 8)
    assert _counts(_run("mpirun -np 16" + _TRAIN, "4x8xH100-80GB")) == (2, 8)
    scheduled = "#SBATCH --nodes=4 --gres=gpu:a100:4\nmpirun -np 16" + _TRAIN
    assert _counts(_run(scheduled)) == (4, 4)
    named = _run(scheduled, "2x8xH100-80GB")
    assert (named[f.device.type], *_counts(named)) == ("H100-80GB", 2, 8)
    assert (named[scene.nodes], named[scene.gpus_per_node]) == (4, 4)
    assert (named[machine.nodes], named[machine.gpus_per_node]) == (2, 8)


# -- the scene -------------------------------------------------------------------------------------

_JOB = "#SBATCH --nodes=2 --gres=gpu:h100:8 --ntasks-per-node=8 --mem=512G\n"

_POD = """\
apiVersion: batch/v1
kind: Job
spec:
  parallelism: 2
  template:
    spec:
      nodeSelector:
        nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3
      containers:
      - name: train
        command: [{launcher}]
        args: [{words}]
        resources:
          limits:
            nvidia.com/gpu: 8
            memory: 256Gi
"""
_COMPOSE = """\
services:
  train:
    command: {launcher} {words}
    shm_size: 16gb
    mem_limit: 64g
    ulimits:
      memlock: -1
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              device_ids: ["0", "1"]
              capabilities: [gpu]
"""
_SKY = """\
resources:
  accelerators: H100:8
num_nodes: 2
run: |
  {launcher} {words}
"""
_TRAINJOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
spec:
  trainer:
    numNodes: 2
    command: [torchrun]
    args: [{words}]
    resourcesPerNode:
      limits:
        nvidia.com/gpu: 8
"""


def _pod(text: str, launcher: str = "torchrun", **more: str) -> Files:
    words = ", ".join(f'"{word}"' for word in _TRAIN.split())
    return {"job.yaml": text.format(launcher=launcher, words=words, **more)}


def _plain(text: str, launcher: str = "torchrun") -> Files:
    return {"job.yaml": text.format(launcher=launcher, words=_TRAIN.strip())}


def test_slurm_asks_for_a_machine() -> None:
    run = _run(_JOB + "srun python" + _TRAIN)
    assert _counts(run) == (2, 8)
    assert run[f.host.ram_gib] == 512
    assert run[scene.ram_limit] == "slurm"
    hardware = hardware_in_files(run)
    assert hardware is not None
    assert hardware.name == "2x8xH100-80GB"
    assert hardware.source == "Slurm asks for h100 (job.sh:1)"
    assert hardware.host_bytes_per_node == 512 * 2**30


def test_a_pod_asks_for_a_machine() -> None:
    run = _run(_pod(_POD, "python"))
    assert _counts(run) == (1, 1)
    assert (run[scene.nodes], run[scene.gpus_per_node]) == (2, 8)
    assert run[f.device.type] == "H100-80GB"
    assert run[f.host.ram_gib] == 256
    assert run[scene.ram_limit] == "container"
    assert run[f.host.shm_gib] == 64 / 1024


def test_kubeflow_tells_torchrun_how_many_ranks_there_are() -> None:
    assert _counts(_run(_pod(_TRAINJOB))) == (2, 8)


def test_a_service_of_compose_limits_what_it_may_use() -> None:
    run = _run(_plain(_COMPOSE))
    assert run[scene.gpus_per_node] == 2
    assert (run[f.host.ram_gib], run[f.host.shm_gib]) == (64, 16)
    assert run[f.host.memlock] == "unlimited"
    assert run[scene.ram_limit] == "container"


def test_skypilot_asks_for_nodes() -> None:
    run = _run(_plain(_SKY, "torchrun --nnodes $SKYPILOT_NUM_NODES --nproc_per_node $N"))
    assert _counts(run) == (2, 8)
    assert run[f.device.type] == "H100-80GB"


def test_a_machine_type_has_a_gpu_and_memory() -> None:
    text = _SKY.replace("accelerators: H100:8", "instance_type: p4d.24xlarge")
    run = _run(_plain(text, "deepspeed"))
    assert (run[f.device.type], run[scene.gpus_per_node]) == ("A100-40GB", 8)
    assert run[f.host.ram_gib] == 1134
    setting = run.setting(f.device.type)
    assert setting is not None
    assert setting.origin.source == "SkyPilot asks for p4d.24xlarge"


def test_a_run_outside_of_all_schedulers_has_no_scene() -> None:
    run = _run("python" + _TRAIN)
    assert [run[field] for field in scene.all()] == [None] * len(scene.all())
    assert hardware_in_files(run) is None


# -- what the command asks -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("torchrun --nnodes $SLURM_NNODES --nproc_per_node $(nvidia-smi -L | wc -l)", (2, 8)),
        ("torchrun --nnodes $N --nproc_per_node $G", (2, 8)),
        ("torchrun --nnodes $((SLURM_NNODES - 1)) --nproc_per_node 8", (1, 8)),
        ("srun --ntasks-per-node=$SLURM_GPUS_ON_NODE python", (2, 8)),
    ],
)
def test_the_job_answers_what_its_command_asks(line: str, counts: tuple[int, int]) -> None:
    run = _run(_JOB + line + _TRAIN)
    assert _counts(run) == counts
    assert (
        not run.says(f.parallel.gpus_per_node)
        or run.level(f.parallel.gpus_per_node) is Level.STATED
    )


def test_the_named_hardware_answers_where_no_file_does() -> None:
    ask = "torchrun --nproc_per_node $(nvidia-smi -L | wc -l)" + _TRAIN
    assert _run(ask).is_unread(f.parallel.gpus_per_node)
    run = _run(ask, "4xA100-80GB")
    assert _counts(run) == (1, 4)
    setting = run.setting(f.parallel.gpus_per_node)
    assert setting is not None
    assert setting.origin.kind == "assumed"
    assert setting.level is Level.ASSUMED


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node $1", (1, 2)),
        ("CUDA_VISIBLE_DEVICES= torchrun --nproc_per_node $1", (1, 8)),
        ("CUDA_VISIBLE_DEVICES=$2 torchrun --nproc_per_node $1", (1, 8)),
    ],
)
def test_a_count_that_nobody_tells_is_no_more_than_what_the_command_sees(
    line: str, counts: tuple[int, int]
) -> None:
    run = _run(line + _TRAIN, "8xA100-80GB")
    assert _counts(run) == counts
    assert run.level(f.parallel.gpus_per_node) is Level.ASSUMED


def test_processes_of_all_nodes_are_no_more_than_they_see() -> None:
    line = "CUDA_VISIBLE_DEVICES=0,1 accelerate launch --num_processes $1" + _TRAIN
    assert _run(line, "2x8xA100-80GB")[launch.total_processes] == 4


def test_what_the_answers_are_made_of_asks_nobody_in_turn() -> None:
    asks = "$(python -c 'import torch; print(torch.cuda.device_count())')"
    job = f"N={asks}\nsrun --nodes=$SLURM_GPUS_ON_NODE --gpus-per-node=$SLURM_NNODES "
    run = _run(job + "--ntasks=$SLURM_NTASKS env CUDA_VISIBLE_DEVICES=$N python" + _TRAIN)
    assert all(setting is not None for setting in run.settings.values())


# -- evidence --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "hardware", "counts"),
    [
        ("srun python", "4xA100-80GB", (1, 4)),
        ("#SBATCH --nodes=1 --gres=gpu:8\nsrun python", None, (1, 1)),
        ("ray job submit -- python", None, (1, 1)),
        ("python submit.py -- python", None, (1, 1)),
    ],
)
def test_ranks_that_are_told_elsewhere_are_unread(
    line: str, hardware: str | None, counts: tuple[int, int]
) -> None:
    run = _run(line + _TRAIN, hardware)
    assert _counts(run) == counts
    assert run.level(f.parallel.gpus_per_node) is Level.UNREAD
    assert roots_of(run, f.parallel.gpus_per_node) == (launch.unseen,)
    assert launch.unseen in run.unreadable


@pytest.mark.parametrize(
    "line",
    [
        "python",
        "#SBATCH --nodes=1 --gres=gpu:1\nsrun python",
        "#SBATCH --nodes=1 --gres=gpu:8 --ntasks=8\nsrun python",
        "srun --ntasks-per-node=2 python",
        "ray job submit -- torchrun --nproc_per_node 8",
    ],
)
def test_ranks_that_a_command_tells_are_read(line: str) -> None:
    run = _run(line + _TRAIN)
    assert run.level(f.parallel.gpus_per_node) <= Level.DEFAULT
    assert launch.unseen not in run.unreadable


def test_hosts_of_a_list_that_is_not_at_hand_are_unread() -> None:
    run = _run("deepspeed --hostfile /job/hosts --num_gpus 8" + _TRAIN)
    assert _counts(run) == (1, 8)
    assert run.level(f.parallel.nodes) is Level.UNREAD
    assert run.level(f.parallel.gpus_per_node) is Level.STATED


def test_what_depends_on_a_variable_that_nobody_tells_is_unread() -> None:
    line = "CUDA_VISIBLE_DEVICES=$GPUS torchrun --nproc_per_node gpu" + _TRAIN
    run = _run(line, "4xA100-80GB")
    assert _counts(run) == (1, 4)
    assert run.level(f.parallel.gpus_per_node) is Level.UNREAD


# -- wishes ----------------------------------------------------------------------------------------


def test_a_wish_for_memory_goes_to_the_file_that_limits_it() -> None:
    job = _run(_JOB + "srun python" + _TRAIN)
    assert writable(expressed({f.host.ram_gib: 600.5}, job), job, "test") == {slurm.mem: 601}
    assert job.changed({slurm.mem: 601})[f.host.ram_gib] == 601
    pod = _run(_pod(_POD))
    assert writable(expressed({f.host.ram_gib: 300.0}, pod), pod, "test") == {k8s.memory: 300}
    with pytest.raises(CannotEdit, match="volume of its own"):
        writable(expressed({f.host.shm_gib: 16.0}, pod), pod, "test")
    service = _run(_plain(_COMPOSE))
    wishes = {f.host.ram_gib: 99.5, f.host.shm_gib: 32.0, f.host.memlock: "unlimited"}
    assert writable(expressed(wishes, service), service, "test") == {
        docker.memory: 100, docker.shm: 32, docker.memlock: "unlimited",
    }  # fmt: skip
    with pytest.raises(CannotEdit, match=r"no key for host\.ram_gib"):
        writable({f.host.ram_gib: 64.0}, _run("python" + _TRAIN), "test")


@pytest.mark.parametrize(
    ("directives", "said"),
    [
        ("--gres=gpu:4 --mem-per-gpu=16G", {slurm.mem_per_gpu: 25}),
        ("--mem-per-cpu=1G --cpus-per-task=32", {slurm.mem_per_cpu: 3184 / 1024}),
        ("--nodes=1", {slurm.mem: 100}),
    ],
)
def test_a_wish_for_memory_counts_as_the_job_does(directives: str, said: dict[Any, Any]) -> None:
    run = _run(f"#SBATCH {directives}\npython{_TRAIN}")
    assert writable(expressed({f.host.ram_gib: 99.5}, run), run, "test") == said


# -- jobs of Beaker --------------------------------------------------------------------------------

_GANTRY = "gantry run --workspace a/b --gpus 8 --replicas 4 --"
_MASON = "uv run python mason.py --cluster a/b --num_nodes 4 --gpus 8 --"


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        (f"{_GANTRY} torchrun --nnodes 4 --nproc-per-node 8", (4, 8)),
        ("gantry run --gpus 8 -- python", (1, 1)),
        (f"{_MASON} python", (1, 1)),
        (f"{_MASON} pip list \\&\\& torchrun --nnodes 4 --nproc_per_node 2", (4, 2)),
        # Of any other script nobody knows what it makes of its options.
        ("python submit.py --num_nodes 4 -- torchrun --nproc_per_node 8", (1, 8)),
    ],
)
def test_ranks_of_jobs_of_beaker(line: str, counts: tuple[int, int]) -> None:
    run = _run(line + _TRAIN)
    assert _counts(run) == counts
    assert run.level(f.parallel.gpus_per_node) <= Level.DEFAULT


def test_the_machine_that_a_job_of_beaker_asks_for() -> None:
    run = _run(f"{_GANTRY} python" + _TRAIN)
    assert (run[scene.nodes], run[scene.gpus_per_node]) == (4, 8)
    open_ended = _run("gantry run --gpus 8 --replicas $N -- python" + _TRAIN)
    assert (open_ended[scene.nodes], open_ended[scene.gpus_per_node]) == (None, 8)
