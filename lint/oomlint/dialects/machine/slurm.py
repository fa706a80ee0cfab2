"""Slurm: what the ``#SBATCH`` lines of a script ask for.

Names and meanings from sbatch(1) of Slurm 24.05. A count of zero, a value that only the site's
configuration would tell and an option that is no GPU's are no facts and leave things unknown.
"""

from __future__ import annotations

import math
import re
from typing import Any

from oomlint.dialects.base import Wishes
from oomlint.dialects.draft import Draft
from oomlint.dialects.machine.scene import (
    GPU_NAMES,
    NODES,
    RAM_LIMIT,
    provide_counts,
    provide_ram,
)
from oomlint.dialects.machine.slurm_keys import SBATCH, SLURM_COMMAND, Gres
from oomlint.errors import CannotEdit

_TABLES = (SBATCH, SLURM_COMMAND)

_GPU_FIELDS = ("slurm.gpus_per_node", "slurm.gres", "slurm.gpus", "slurm.gpus_per_task")
_SAYS_MEMORY = ("mem", "mem_per_gpu", "mem_per_cpu", "exclusive")
_SOURCE = "Slurm"


def finish_slurm(draft: Draft) -> None:
    """Provide what the directives of the run's script ask for."""
    if not _asks(draft):
        return
    nodes, gpus = _nodes(draft), _gpus_per_node(draft)
    provide_counts(draft, nodes, gpus, _SOURCE, "slurm.nodes", *_GPU_FIELDS)
    _provide_gpu(draft)
    cpus = _cpus(draft)
    if draft.get("slurm.cpus_per_task") is not None:
        draft.fact("host.cpus", cpus, _SOURCE, "slurm.cpus_per_task")
    per_gpu, per_cpu = draft.get("slurm.mem_per_gpu"), draft.get("slurm.mem_per_cpu")
    limit = draft.get("slurm.mem")
    provide_ram(draft, limit, "slurm", "Slurm's limit for a node", "slurm.mem")
    if per_gpu is not None and gpus is not None:
        source = "Slurm's limit for each GPU, times the GPUs of a node"
        provide_ram(draft, per_gpu * gpus, "slurm", source, "slurm.mem_per_gpu")
    elif per_cpu is not None and cpus is not None:
        source = "Slurm's limit for each CPU, times the CPUs of the tasks of a node"
        provide_ram(draft, per_cpu * cpus, "slurm", source, "slurm.mem_per_cpu")
    elif gpus is not None and not any(_has_entry(draft, key) for key in _SAYS_MEMORY):
        draft.fact(RAM_LIMIT, "slurm default", _SOURCE, *_GPU_FIELDS)


def _asks(draft: Draft) -> bool:
    return any(block.table in _TABLES for block in draft.blocks)


def _has_entry(draft: Draft, key: str) -> bool:
    return any(b.table in _TABLES and key in b.mapping.entries for b in draft.blocks)


def tasks_per_node(draft: Draft) -> int | None:
    """How many processes ``srun`` starts on each node; ``None`` where no directive stands.

    sbatch(1): one task a node unless told otherwise.
    """
    if not _asks(draft):
        return None
    per_node: int | None = draft.get("slurm.tasks_per_node")
    if per_node is not None:
        return per_node
    tasks, nodes = draft.get("slurm.tasks"), draft.get(NODES)
    if tasks is not None:
        return max(1, int(tasks) // nodes) if nodes else None
    return 1


def _nodes(draft: Draft) -> int | None:
    nodes: int | None = draft.get("slurm.nodes")
    if nodes is not None or _has_entry(draft, "nodes"):
        return nodes
    tasks: int | None = draft.get("slurm.tasks")
    per_node: int | None = draft.get("slurm.tasks_per_node")
    if tasks is not None and per_node is not None:
        return math.ceil(tasks / per_node)
    spread = (tasks or 1) > 1 or draft.get("slurm.gpus") is not None
    return None if spread else 1


def _gpus_per_node(draft: Draft) -> int | None:
    for name in ("slurm.gpus_per_node", "slurm.gres"):
        gres: Gres | None = draft.get(name)
        if gres is not None:
            return gres.number
    nodes = _nodes(draft)
    total: Gres | None = draft.get("slurm.gpus")
    if total is not None:
        return total.number // nodes if nodes and total.number % nodes == 0 else None
    each: Gres | None = draft.get("slurm.gpus_per_task")
    tasks: int | None = draft.get("slurm.tasks_per_node")
    if tasks is None and nodes == 1:
        tasks = draft.get("slurm.tasks", 1)
    return each.number * tasks if each is not None and tasks is not None else None


def _cpus(draft: Draft) -> int | None:
    """CPUs that the job has on a node, as far as tasks decide it."""
    tasks = draft.get("slurm.tasks_per_node")
    if tasks is None:
        nodes = _nodes(draft)
        tasks = max(1, draft.get("slurm.tasks", nodes) // nodes) if nodes else None
    return None if tasks is None else int(tasks * draft.get("slurm.cpus_per_task", 1))


def _provide_gpu(draft: Draft) -> None:
    """The GPU that a directive names, with a size that only ``--constraint`` adds."""
    features = _features(draft)
    sizes = _sizes(features)
    for field in _GPU_FIELDS:
        gres: Gres | None = draft.get(field)
        if gres is not None and gres.name is not None:
            sized = tuple(f"{gres.name}-{size}" for size in sizes)
            tiers = (sized, (gres.name,), tuple(features))
            draft.fact(GPU_NAMES, tiers, _SOURCE, field)
            return
    if features and _gpus_per_node(draft) is not None:
        sized = tuple(f"{name}-{size}" for name in features for size in sizes)
        draft.fact(GPU_NAMES, (sized, tuple(features)), _SOURCE, "slurm.constraint")


def _features(draft: Draft) -> list[str]:
    """The features that a node must have; where they are alternatives, none."""
    text = str(draft.get("slurm.constraint", ""))
    return [] if "|" in text else [f for f in re.split(r"[&,*\[\]()\s]+", text) if f]


def _sizes(features: list[str]) -> list[str]:
    """Features that name the size of a GPU's memory: ``80gb``, ``gpu80``, ``gpu_mem_80gb``."""
    found = (re.fullmatch(r"(?:gpu|vram|mem|_)*(\d{2,3})(?:gb?)?", f.lower()) for f in features)
    return [f"{match[1]}GB" for match in found if match]


def express_slurm(changes: Wishes, draft: Draft) -> dict[str, Any]:
    """A wish for RAM in terms of the directive that limits it now."""
    own = dict(changes)
    if "host.ram_gib" not in own or not _asks(draft):
        return own
    wanted = own.pop("host.ram_gib")
    gpus, cpus = _gpus_per_node(draft), _cpus(draft)
    if draft.says("slurm.mem_per_gpu") and gpus:
        own["slurm.mem_per_gpu"] = math.ceil(wanted / gpus)
    elif draft.says("slurm.mem_per_cpu") and cpus:
        own["slurm.mem_per_cpu"] = math.ceil(wanted * 1024 / cpus) / 1024
    elif draft.says("slurm.mem_per_gpu") or draft.says("slurm.mem_per_cpu"):
        raise CannotEdit("how many GPUs or CPUs the limit is for is not known")
    else:
        own["slurm.mem"] = math.ceil(wanted)
    return own
