"""Jobs of Beaker, as the commands that hand them over ask for them: ``mason.py ... -- COMMAND``, ``gantry run ... -- COMMAND``.

Read from AI2's mason.py of 2026-08-20 (e6c3044a) and the options of beaker-gantry's ``gantry run``. The command runs once on
each node that the job has.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.kinds import POSITIVE
from oomlint.dialects.machine.fields import beaker, launch, scene
from oomlint.dialects.machine.launcher_keys import NODES
from oomlint.dialects.meaning import Meaning
from oomlint.dialects.table import Row, Table
from oomlint.plan.fields import f

GANTRY = Table(
    name="gantry",
    rows=(Row("replicas", beaker.nodes, NODES), Row("gpus", beaker.gpus, POSITIVE)),
    known_prefixes=("",),
    loader="yaml12",
    section="scheduler",
)
MASON = Table(
    name="mason.py",
    rows=(Row("num_nodes", beaker.nodes, NODES), Row("gpus", beaker.gpus, POSITIVE)),
    known_prefixes=("",),
    loader="yaml12",
    section="scheduler",
)
TABLES = {"gantry": GANTRY, "mason.py": MASON}

beaker_job = Meaning()
beaker_ranks = Meaning()

_SOURCE = "Beaker"


def is_beaker_job(run: Cells) -> bool:
    """Whether the command stands behind one that asks Beaker for nodes and GPUs."""
    return run.has_block_of(GANTRY, MASON)


def _nodes(run: Cells) -> int | None:
    """One where nobody says how many; nothing where that is not read."""
    return None if run.is_unread(beaker.nodes) else run[beaker.nodes] or 1


@beaker_job.fact(scene.nodes, f.parallel.nodes, source=_SOURCE)
def nodes_of_job(run: Cells) -> Any:
    if not is_beaker_job(run):
        return None
    return dict.fromkeys((scene.nodes, f.parallel.nodes), _nodes(run))


@beaker_job.fact(scene.gpus_per_node, f.parallel.gpus_per_node, source=_SOURCE)
def gpus_of_job(run: Cells) -> Any:
    if not is_beaker_job(run) or run[beaker.gpus] is None:
        return None
    return dict.fromkeys((scene.gpus_per_node, f.parallel.gpus_per_node), run[beaker.gpus])


@beaker_ranks.override(
    launch.total_processes,
    launch.machines,
    source="mason.py e6c3044a make_internal_command: --num_processes of one node",
)
def processes_of_mason(run: Cells) -> Any:
    """It multiplies what stands behind ``--num_processes`` and adds ``--num_machines``; a line that has both counts
    them itself, as older ones had to."""
    if not run.has_block_of(MASON) or run[launch.machines]:
        return None
    each, nodes = run[launch.total_processes], _nodes(run)
    if each is None or nodes is None or nodes == 1:
        return None
    return {launch.total_processes: each * nodes, launch.machines: nodes}
