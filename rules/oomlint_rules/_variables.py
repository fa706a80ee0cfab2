"""What comes of an environment variable that a run was to get and does not: which cards it sees, how it is started and what
it needs, or nothing of that."""

from __future__ import annotations

from oomlint.dialects.machine.fields import launch
from oomlint.plan.fields import f
from oomlint.runs.run import Run

OF_DEVICES = frozenset({"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"})

# Where what a run reports goes; it trains the same without.
_OF_LOGS = ("WANDB_", "MLFLOW_", "COMET_", "SWANLAB_", "NEPTUNE_")

# How fast a process computes or tokenizes on its CPUs: it needs what it needs without, too.
_OF_SPEED = frozenset({"OMP_NUM_THREADS", "MKL_NUM_THREADS", "TOKENIZERS_PARALLELISM"})

# How ranks reach one another: NCCL's, and those of torch about it.
_OF_RANKS = ("NCCL_", "TORCH_NCCL_", "GLOO_SOCKET_")


def matters_not(name: str, run: Run) -> bool:
    """Whether a run trains the same without a variable, as far as anybody has seen.

    Of the allocator's settings frameworks set some themselves, and engines refuse some (vLLM 0.8 with its sleep mode refuses
    expandable segments): what a line that nobody missed would do nobody has seen.
    """
    return (
        name.startswith(_OF_LOGS)
        or name.endswith("ALLOC_CONF")
        or name in _OF_SPEED
        or (name.startswith(_OF_RANKS) and run.plan.parallel.world == 1)
    )


def listed(name: str, value: str) -> frozenset[int]:
    """The GPUs that a variable lists by number, none where it lists none or says something else."""
    parts = [part.strip() for part in value.split(",")]
    is_list = name in OF_DEVICES and all(part.isdecimal() for part in parts)
    return frozenset(map(int, parts)) if is_list else frozenset()


def is_whole_machine(shown: frozenset[int], run: Run) -> bool:
    """Whether a list hides no GPU; of a machine that nobody names nothing is known."""
    hardware = run.parts.hardware
    return hardware is not None and shown >= frozenset(range(hardware.gpus_per_node))


def are_its_first(shown: frozenset[int], run: Run) -> bool:
    """Whether a list names just the GPUs that the run's processes take without it."""
    return bool(shown) and shown == frozenset(range(asked_for(run)))


def seen_of(shown: frozenset[int], run: Run) -> int:
    """How many of the GPUs in a list there are, as far as the machine is known."""
    hardware = run.parts.hardware
    return len(shown) if hardware is None else len(shown & frozenset(range(hardware.gpus_per_node)))


def asked_for(run: Run) -> int:
    """How many GPUs of a node the run's own files ask for, none where no file does: in a number for each node, or in one for
    all of a single node, as Accelerate's is."""
    processes, nodes = f.parallel.gpus_per_node, run.plan.parallel.nodes
    is_asked = run.is_explicit(processes) or (
        run.is_explicit(launch.total_processes) and nodes in (None, 1)
    )
    return run.plan.parallel.gpus_per_node or 0 if is_asked else 0
