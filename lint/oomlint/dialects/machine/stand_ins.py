"""Numbers that a command takes from its machine or its scheduler, as far as these are known.

``$(nvidia-smi -L | wc -l)`` is what this machine would answer, and a count that a variable of the
scheduler holds is what the job asks for. A count that nothing here tells is that of the hardware
which the user names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import machine
from oomlint.dialects.kinds import BadValue
from oomlint.dialects.machine.fields import docker, env_, k8s, launch, scene, sky, slurm
from oomlint.dialects.machine.visible import listed, visible_gpus
from oomlint.dialects.meaning import Meaning, Said
from oomlint.dialects.setting import Origin, Setting
from oomlint.documents.shell.nodes import ShellScalar
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

stand_ins = Meaning()

# What the answers are made of is not asked for: `srun --nodes=$((SLURM_NNODES - 1))` counts a step,
# and the variable the job.
_MADE_OF = frozenset(
    {f.env.cuda_visible_devices}.union(
        *(kind.all() for kind in (machine, scene, slurm, k8s, docker, sky))
    )
)


@stand_ins.said(if_any=True)
def stand_in(run: Cells, field: Any, said: Said) -> Said:
    """What stands in for a value that only running the command would tell."""
    if not isinstance(said, Origin) or field in _MADE_OF:
        return said
    return _answer(run, field, said) or _count(run, field) or said


def _assumed(run: Cells, field: Any, value: Any, why: str) -> Setting:
    origin = Origin("assumed", run.block_with(field), source=why)
    return Setting(value, origin, level=Level.ASSUMED)


# -- what the command asks its machine -------------------------------------------------------------

_Answer = Callable[[Cells], int | None]
_NAME = r"[a-z_]+"
# What a job asks for is what its scheduler tells it; GPUs the machine may have more of.
_OF_JOB = frozenset({"nodes", "tasks", "tasks_per_node"})


def _answer(run: Cells, field: Any, asker: Origin) -> Setting | None:
    """What this machine answers, if it is asked at all and the field takes that for a value."""
    asked = None if asker.entry is None else asker.entry.value
    asks = asked.asks if isinstance(asked, ShellScalar) else ""
    if not asks or asker.row is None:
        return None
    from oomlint.documents.shell import machine as shell

    answers: dict[str, _Answer] = {
        shell.GPUS: _gpus,
        shell.VISIBLE: _visible,
        shell.NODES: _nodes,
        shell.TASKS: _tasks,
        shell.TASKS_PER_NODE: _tasks_per_node,
    }
    names = answers.keys() & re.findall(_NAME, asks)
    number = shell.answered(asks, {name: answers[name](run) for name in names})
    try:
        value = None if number is None else asker.row.kind.read(number)
    except BadValue:
        return None
    if value is None:
        return None
    if names <= _OF_JOB and run.says(slurm.nodes):
        return Setting(value, Origin("derived", asker.block, source="the job asks for that many"))
    return _assumed(run, field, value, "the script asks its machine, which has that many")


def _gpus(run: Cells) -> int | None:
    return run[scene.gpus_per_node] or run[machine.gpus_per_node]


def _visible(run: Cells) -> int | None:
    seen = visible_gpus(run)
    return _gpus(run) if seen is None else seen


def _nodes(run: Cells) -> int | None:
    return run[scene.nodes] or run[machine.nodes]


def _tasks_per_node(run: Cells) -> int | None:
    return run[slurm.tasks_per_node]


def _tasks(run: Cells) -> int | None:
    tasks = run[slurm.tasks]
    if tasks is not None:
        return tasks
    per_node, nodes = _tasks_per_node(run), _nodes(run)
    return per_node * nodes if per_node and nodes else None


# -- counts that it takes from its scheduler -------------------------------------------------------

_BY_SCHEDULER = "the command asks its scheduler for that many"
_BY_HARDWARE = "only running the script tells; the named hardware has that many"


def _count(run: Cells, field: Any) -> Setting | None:
    """A count that is not told, as the files around the command or the user tell it."""
    take = _COUNTS.get(field)
    if take is None:
        return None
    value = take(run, scene)
    if value is not None:
        return _assumed(run, field, value, _BY_SCHEDULER)
    if run[machine.gpus_per_node] is not None:
        value = take(run, machine)
    return None if value is None else _assumed(run, field, value, _BY_HARDWARE)


def _nodes_of(run: Cells, of: Any) -> Any:
    return run[of.nodes]


def _gpus_of(run: Cells, of: Any) -> Any:
    """Of a machine no more than the command sees; a scheduler is asked for the number itself."""
    gpus = run[of.gpus_per_node]
    if gpus is None or of is scene:
        return gpus
    shown = listed(run.otherwise(f.env.cuda_visible_devices, ""))
    return min(gpus, shown) if shown else gpus


def _total_of(run: Cells, of: Any) -> Any:
    gpus = _gpus_of(run, of)
    return None if gpus is None else gpus * (run[of.nodes] or 1)


_COUNTS: dict[Any, Callable[[Cells, Any], Any]] = {
    f.parallel.nodes: _nodes_of,
    env_.nnodes: _nodes_of,
    f.parallel.gpus_per_node: _gpus_of,
    env_.nproc_per_node: _gpus_of,
    launch.total_processes: _total_of,
}
