"""Options of the programs that start ranks, and the environment variables that they read."""

from __future__ import annotations

from typing import Any

from oomlint.dialects.accelerate.keys import LAUNCH_ROWS
from oomlint.dialects.kinds import AUTO, BOOLEAN, POSITIVE, TEXT, BadValue, Kind, read_integer
from oomlint.dialects.machine.fields import env_, launch
from oomlint.dialects.table import Row, Table
from oomlint.plan.fields import f

# Other options and variables are many and none of our business.
_ALL_OTHERS = ("",)

# More than any node starts: what stands there is a slip, and counts of ranks stay numbers.
_MOST_PROCESSES = 1_000_000
_ALL_VISIBLE = frozenset({"gpu", "auto", "cuda", "-1"})


def _read_ranks(raw: Any) -> Any:
    """A number of processes per node; ``gpu`` and ``auto`` mean one for each visible GPU."""
    text = str(raw).strip()
    if text in _ALL_VISIBLE:
        return AUTO
    number = read_integer(text)
    if not 1 <= number <= _MOST_PROCESSES:
        raise BadValue("expected a number of processes, gpu or auto")
    return number


def _read_nodes(raw: Any) -> int:
    """A number of nodes; of an elastic range ``2:4`` the most."""
    number = read_integer(str(raw).rpartition(":")[2])
    if number < 1:
        raise BadValue("expected a number of nodes")
    return number


def _read_set(raw: Any) -> bool:
    """A variable that counts as on with any value but ``0`` and nothing."""
    return str(raw).strip().lower() not in ("", "0", "false")


RANKS = Kind(_read_ranks)
_SET = Kind(_read_set, lambda on: "1" if on else "0")
NODES = Kind(_read_nodes)

# torch 2.9 distributed/run.py get_args_parser: both default to 1.
TORCHRUN = Table(
    name="torchrun",
    rows=(
        Row("nproc_per_node", f.parallel.gpus_per_node, RANKS, aliases=("nproc", "npernode")),
        Row("nnodes", f.parallel.nodes, NODES, aliases=("nnode",)),
    ),
    known_prefixes=_ALL_OTHERS,
    loader="yaml12",
    section="launcher",
)

# DeepSpeed edaa7221 launcher/runner.py:86-104: -1 stands for every GPU and every host.
DEEPSPEED_LAUNCHER = Table(
    name="deepspeed",
    rows=(
        Row("num_gpus", f.parallel.gpus_per_node, RANKS, aliases=("num_accelerators",)),
        Row("num_nodes", f.parallel.nodes, RANKS),
        Row("include", launch.include, TEXT, aliases=("i",)),
        Row("exclude", launch.exclude, TEXT, aliases=("e",)),
        Row("hostfile", launch.hostfile, TEXT, aliases=("H",)),
    ),
    known_prefixes=_ALL_OTHERS,
    loader="yaml12",
    section="launcher",
)

# ColossalAI 4f9953be colossalai/cli/launcher/__init__.py: a hostfile has no slots, --num_nodes takes the first of its hosts.
COLOSSALAI_RUN = Table(
    name="colossalai run",
    rows=(
        Row("nproc_per_node", f.parallel.gpus_per_node, RANKS),
        Row("num_nodes", launch.machines, NODES),
        Row("hostfile", launch.hostfile, TEXT),
        Row("host", launch.hosts, TEXT),
        Row("include", launch.include, TEXT),
        Row("exclude", launch.exclude, TEXT),
    ),
    known_prefixes=_ALL_OTHERS,
    loader="yaml12",
    section="launcher",
)

# accelerate 16cb6eb8 commands/launch.py:205-300: processes are counted over all machines.
_ACCELERATE_ROWS = (
    Row("num_processes", launch.total_processes, POSITIVE),
    Row("num_machines", launch.machines, POSITIVE),
    Row("config_file", launch.config_file, TEXT),
    Row("gpu_ids", launch.gpu_ids, TEXT),
    Row("multi_gpu", launch.multi_gpu, BOOLEAN),
    *LAUNCH_ROWS,
)
ACCELERATE_LAUNCHER = Table(
    name="accelerate launch",
    rows=_ACCELERATE_ROWS,
    known_prefixes=_ALL_OTHERS,
    loader="yaml12",
    section="launcher",
)

# srun(1), where it starts the ranks itself.
SRUN = Table(
    name="srun",
    rows=(
        Row("ntasks_per_node", f.parallel.gpus_per_node, RANKS),
        Row("nodes", f.parallel.nodes, NODES, aliases=("N",)),
        Row("ntasks", launch.total_processes, POSITIVE, aliases=("n",)),
    ),
    known_prefixes=_ALL_OTHERS,
    loader="yaml12",
    section="launcher",
)

# mpirun(1) of Open MPI 5 and MPICH 4: a process is a rank and has a GPU to itself.
MPIRUN = Table(
    name="mpirun",
    rows=(
        Row("np", launch.total_processes, POSITIVE, aliases=("n", "c")),
        Row("npernode", f.parallel.gpus_per_node, RANKS, aliases=("N", "ppn", "perhost")),
        Row("host", launch.hosts, TEXT, aliases=("H", "hosts")),
        Row("map_by", launch.map_by, TEXT),
        Row("hostfile", launch.hostfile, TEXT, aliases=("machinefile", "f")),
    ),
    known_prefixes=_ALL_OTHERS,
    loader="yaml12",
    section="launcher",
)

HOSTFILE_ALIASES = {
    table.name: table.by_field[launch.hostfile].aliases for table in (DEEPSPEED_LAUNCHER, MPIRUN)
}
"""Other names of the option that names the list of hosts, by launcher."""

PLAIN = Table(name="python", rows=(), known_prefixes=_ALL_OTHERS, section="launcher")

LAUNCHER_TABLES = {
    "torchrun": TORCHRUN,
    "torch.distributed.run": TORCHRUN,
    "torch.distributed.launch": TORCHRUN,
    "deepspeed": DEEPSPEED_LAUNCHER,
    "deepspeed.launcher.runner": DEEPSPEED_LAUNCHER,
    "accelerate": ACCELERATE_LAUNCHER,
    "accelerate-launch": ACCELERATE_LAUNCHER,
    "accelerate.commands.launch": ACCELERATE_LAUNCHER,
    "accelerate.commands.accelerate_cli": ACCELERATE_LAUNCHER,
    # SageMaker HyperPod's, with torchrun's options (HyperPod training operator, "Using the training operator to run jobs").
    "hyperpodrun": TORCHRUN,
    "colossalai": COLOSSALAI_RUN,
    "srun": SRUN,
    "mpirun": MPIRUN,
    "mpiexec": MPIRUN,
    "mpiexec.hydra": MPIRUN,
}

# CUDA C Programming Guide, "CUDA Environment Variables"; PyTorch docs, "CUDA semantics".
ENVIRONMENT = Table(
    name="environment",
    rows=(
        Row(
            "CUDA_VISIBLE_DEVICES",
            f.env.cuda_visible_devices,
            TEXT,
            aliases=("ASCEND_RT_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
        ),
        Row(
            "PYTORCH_CUDA_ALLOC_CONF",
            f.env.alloc_conf,
            TEXT,
            aliases=("PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"),
        ),
        # PyTorch docs, "CUDA Environment Variables" and "torch.distributed: Debugging".
        Row("CUDA_LAUNCH_BLOCKING", f.env.launch_blocking, _SET),
        Row("PYTORCH_NO_CUDA_MEMORY_CACHING", f.env.no_caching, _SET),
        Row("TORCH_DISTRIBUTED_DEBUG", f.env.distributed_debug, TEXT),
        # transformers 5.23 modeling_utils.py and accelerate 16cb6eb8 utils/launch.py.
        Row("ACCELERATE_USE_FSDP", env_.use_fsdp, _SET),
        Row("FSDP_CPU_RAM_EFFICIENT_LOADING", env_.fsdp_efficient, _SET),
        Row("NPROC_PER_NODE", env_.nproc_per_node, RANKS),
        Row("NNODES", env_.nnodes, NODES),
    ),
    known_prefixes=_ALL_OTHERS,
    loader="yaml12",
    section="environment",
)
