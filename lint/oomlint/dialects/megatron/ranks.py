"""How many ranks a command of Megatron-LM starts, as far as its launcher tells."""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import machine
from oomlint.dialects.common.world import world
from oomlint.dialects.machine.fields import launch, scene
from oomlint.dialects.machine.launcher_keys import PLAIN, SRUN, TORCHRUN
from oomlint.dialects.machine.launcher_meaning import launcher_of
from oomlint.dialects.machine.meaning import launch_one_process
from oomlint.dialects.machine.slurm_meaning import tasks_per_node
from oomlint.dialects.meaning import Left, Meaning, Said
from oomlint.dialects.megatron.keys import MEGATRON
from oomlint.dialects.setting import Origin, Setting
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

ranks = Meaning(world, launch_one_process)

_NODE = 8
_TASKS = "Slurm: a rank for each task"
_LEAST = "the least that the degrees of parallelism and a node of 8 GPUs allow"
_NAMED = "what starts the ranks is out of sight; the hardware has that many"


@ranks.derive(f.parallel.gpus_per_node, source=_TASKS)
def ranks_of_tasks(run: Cells) -> Any:
    """``srun sh -c "python pretrain_gpt.py"`` starts a rank for each of the job's tasks."""
    return tasks_per_node(run) if _is_started_by_tasks(run) else None


@ranks.derive(f.parallel.nodes, source=_TASKS)
def nodes_of_tasks(run: Cells) -> Any:
    return run[scene.nodes] if _is_started_by_tasks(run) else None


def _is_started_by_tasks(run: Cells) -> bool:
    return launcher_of(run) is PLAIN and (tasks_per_node(run) or 1) > 1


# -- what is out of sight --------------------------------------------------------------------------


@ranks.said(f.parallel.gpus_per_node, f.parallel.nodes)
def where_nobody_tells(run: Cells, field: Any, said: Said) -> Said:
    """Megatron refuses fewer ranks than its degrees need, so that many there are at least."""
    if isinstance(said, Setting | Left) or not _is_out_of_sight(run):
        return said
    known = run[machine.gpus_per_node] or run[scene.gpus_per_node]
    nodes = _stated(run, f.parallel.nodes) or run[machine.nodes] or run[scene.nodes] or 1
    if known is not None and known * nodes % _needed(run) == 0:
        why, level = _NAMED, Level.ASSUMED
    else:
        why, level = _LEAST, Level.UNREAD
        total = _least(run)
        nodes = _stated(run, f.parallel.nodes) or max(1, total // _NODE)
        known = max(1, total // nodes)
    value = nodes if field == f.parallel.nodes else known
    return Setting(value, Origin("assumed", run.block_with(field), source=why), level=level)


@ranks.assume(f.parallel.gpus_per_node, why=_LEAST)
def where_launcher_leaves_it_open(run: Cells) -> Any:
    nodes = _stated(run, f.parallel.nodes) or run[launch.machines] or 1
    return max(1, _least(run) // nodes)


def _is_out_of_sight(run: Cells) -> bool:
    """Whether the command leaves open how many ranks there are, where that is decided elsewhere."""
    stated = run.stated(f.parallel.gpus_per_node)
    if isinstance(stated, Setting) or _stated(run, launch.total_processes) is not None:
        return False
    if isinstance(stated, Origin):
        return True
    launcher = launcher_of(run)
    if launcher is PLAIN:
        is_alone = _needed(run) == 1 and not run.mentions(launch.unseen)
        return not is_alone and not _is_started_by_tasks(run)
    if launcher is SRUN:
        return run.mentions(launch.unseen) or tasks_per_node(run) is None
    # The options of torchrun are in a variable whose value is not known.
    return launcher is TORCHRUN and any(
        block.table is MEGATRON and block.mapping.open_ended for block in run.blocks
    )


def _stated(run: Cells, field: Any) -> int | None:
    stated = run.stated(field)
    return stated.value if isinstance(stated, Setting) else None


def _needed(run: Cells) -> int:
    """Ranks of one replica of the model."""
    needed = 1
    for degree in (f.parallel.tp, f.parallel.pp, f.parallel.cp):
        needed *= run[degree] or 1
    return needed


def _least(run: Cells) -> int:
    needed = _needed(run)
    return -(-max(needed, _NODE) // needed) * needed
