"""What the directives of a Slurm job come to: nodes, GPUs, memory and tasks.

Names and meanings from sbatch(1) of Slurm 24.05.
"""

from __future__ import annotations

import math
import re
from typing import Any

from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.machine.fields import scene, slurm
from oomlint.dialects.machine.slurm_keys import SBATCH, SLURM_COMMAND
from oomlint.dialects.meaning import Meaning, Sourced, Wishes
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

slurm_job = Meaning()

_SOURCE = "Slurm"
_SAYS_MEMORY = ("mem", "mem_per_gpu", "mem_per_cpu", "exclusive")


# A node has rarely more; what asks for no more of them in all is on one.
_MOST_GPUS = 8


def is_asked(run: Cells) -> bool:
    """Whether the run stands in a job, as far as a script or a command says so."""
    return bool(_jobs(run))


def _jobs(run: Cells) -> list[Block]:
    return run.blocks_of(SBATCH, SLURM_COMMAND)


def _has_entry(run: Cells, key: str) -> bool:
    return any(key in block.mapping.entries for block in _jobs(run))


# -- counts ----------------------------------------------------------------------------------------


def _nodes(run: Cells) -> int | None:
    nodes = run[slurm.nodes]
    if nodes is not None or _has_entry(run, "nodes"):
        return nodes
    tasks, per_node = run[slurm.tasks], run[slurm.tasks_per_node]
    if tasks is not None and per_node is not None:
        return math.ceil(tasks / per_node)
    gpus = run[slurm.gpus]
    # sbatch(1), "--nodes": as many as satisfy what the job asks for in all.
    is_spread = (tasks or 1) > 1 or (gpus is not None and gpus.number > _MOST_GPUS)
    return None if is_spread else 1


def _gpus_per_node(run: Cells) -> int | None:
    for field in (slurm.gpus_per_node, slurm.gres):
        gres = run[field]
        if gres is not None:
            return gres.number
    total, nodes = run[slurm.gpus], _nodes(run)
    if total is not None:
        return total.number // nodes if nodes and total.number % nodes == 0 else None
    each, tasks = run[slurm.gpus_per_task], run[slurm.tasks_per_node]
    if tasks is None and nodes is not None:
        # sbatch(1): one task a node unless told otherwise; a number that nodes do not divide is spread somehow.
        asked = run.get(slurm.tasks, nodes)
        tasks = asked // nodes if asked % nodes == 0 else None
    return each.number * tasks if each is not None and tasks is not None else None


def _cpus(run: Cells) -> int | None:
    """CPUs that the job has on a node, as far as tasks decide it."""
    tasks = run[slurm.tasks_per_node]
    if tasks is None:
        nodes = _nodes(run)
        tasks = max(1, run.get(slurm.tasks, nodes) // nodes) if nodes else None
    return None if tasks is None else tasks * run.get(slurm.cpus_per_task, 1)


@slurm_job.fact(scene.nodes, f.parallel.nodes, source=_SOURCE)
def nodes_of_job(run: Cells) -> Any:
    return dict.fromkeys((scene.nodes, f.parallel.nodes), _nodes(run)) if is_asked(run) else None


@slurm_job.fact(scene.gpus_per_node, f.parallel.gpus_per_node, source=_SOURCE)
def gpus_of_job(run: Cells) -> Any:
    if not is_asked(run):
        return None
    return dict.fromkeys((scene.gpus_per_node, f.parallel.gpus_per_node), _gpus_per_node(run))


@slurm_job.fact(f.host.cpus, source=_SOURCE)
def cpus_of_job(run: Cells) -> Any:
    return _cpus(run) if run[slurm.cpus_per_task] is not None and is_asked(run) else None


def states_tasks(run: Cells) -> bool:
    """Whether a directive or an option says how many tasks the job has."""
    return run.mentions(slurm.tasks_per_node) or run.mentions(slurm.tasks)


def tasks_per_node(run: Cells) -> int | None:
    """How many processes ``srun`` starts on each node; ``None`` where no directive stands.

    sbatch(1): one task a node unless told otherwise.
    """
    if not is_asked(run):
        return None
    per_node = run[slurm.tasks_per_node]
    if per_node is not None:
        return per_node
    tasks = run[slurm.tasks]
    if tasks is None:
        return 1
    nodes = run[scene.nodes]
    return max(1, tasks // nodes) if nodes else None


# -- which GPU -------------------------------------------------------------------------------------

_GPU_FIELDS = (slurm.gpus_per_node, slurm.gres, slurm.gpus, slurm.gpus_per_task)


@slurm_job.fact(slurm.gpu, source=_SOURCE)
def gpu_of_job(run: Cells) -> Any:
    """The type that one of the options names."""
    asked = (run[field] for field in _GPU_FIELDS)
    return next((gres.name for gres in asked if gres is not None and gres.name), None)


@slurm_job.fact(scene.gpu_names, source=_SOURCE)
def gpu_names_of_job(run: Cells) -> Any:
    """The GPU that a directive names, with a size that only ``--constraint`` adds."""
    if not is_asked(run):
        return None
    name = run[slurm.gpu]
    features = _features(run[slurm.constraint])
    sizes = _sizes(features)
    if name is not None:
        return (tuple(f"{name}-{size}" for size in sizes), (name,), tuple(features))
    if features and _gpus_per_node(run) is not None:
        sized = tuple(f"{feature}-{size}" for feature in features for size in sizes)
        return (sized, tuple(features))
    return None


def _features(constraint: str | None) -> list[str]:
    """The features that a node must have; where they are alternatives, none."""
    text = constraint or ""
    return [] if "|" in text else [part for part in re.split(r"[&,*\[\]()\s]+", text) if part]


def _sizes(features: list[str]) -> list[str]:
    """Features that name the size of a GPU's memory: ``80gb``, ``gpu80``, ``gpu_mem_80gb``."""
    form = r"(?:gpu|vram|mem|_)*(\d{2,3})(?:gb?)?"
    found = (re.fullmatch(form, feature.lower()) for feature in features)
    return [f"{match[1]}GB" for match in found if match]


# -- memory ----------------------------------------------------------------------------------------


@slurm_job.fact(f.host.ram_gib, scene.ram_limit)
def ram_of_job(run: Cells) -> Any:
    """The limit for a node, whatever it is counted in."""
    if not is_asked(run):
        return None
    limit = run[slurm.mem]
    if limit is not None:
        return _limit(limit, "Slurm's limit for a node")
    gpus, per_gpu = _gpus_per_node(run), run[slurm.mem_per_gpu]
    if per_gpu is not None and gpus is not None:
        return _limit(per_gpu * gpus, "Slurm's limit for each GPU, times the GPUs of a node")
    cpus = _cpus(run) if run.says(slurm.mem_per_cpu) else None
    per_cpu = run[slurm.mem_per_cpu]
    if per_cpu is not None and cpus is not None:
        source = "Slurm's limit for each CPU, times the CPUs of the tasks of a node"
        return _limit(per_cpu * cpus, source)
    if gpus is not None and not any(_has_entry(run, key) for key in _SAYS_MEMORY):
        return {scene.ram_limit: Sourced("slurm default", _SOURCE)}
    return None


def _limit(gib: float, source: str) -> dict[Any, Sourced]:
    return {f.host.ram_gib: Sourced(gib, source), scene.ram_limit: Sourced("slurm", source)}


def ram_as_directive(wanted: float, run: Cells) -> Wishes | None:
    """A wish for RAM in terms of the directive that limits it now; ``None`` outside a job.

    Raises:
        CannotEdit: a limit for a GPU or a CPU, of which there are who knows how many.
    """
    if not is_asked(run):
        return None
    gpus, cpus = _gpus_per_node(run), _cpus(run)
    if run.says(slurm.mem_per_gpu) and gpus:
        return {slurm.mem_per_gpu: math.ceil(wanted / gpus)}
    if run.says(slurm.mem_per_cpu) and cpus:
        return {slurm.mem_per_cpu: math.ceil(wanted * 1024 / cpus) / 1024}
    if run.says(slurm.mem_per_gpu) or run.says(slurm.mem_per_cpu):
        raise CannotEdit("how many GPUs or CPUs the limit is for is not known")
    return {slurm.mem: math.ceil(wanted)}
