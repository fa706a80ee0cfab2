"""How many ranks GPT-NeoX starts: what DeepSpeed's launcher makes of options, of hosts, and of nobody's
word.

Read from gpt-neox ea7aefd8 (2026-05-20) ``deepy.py`` and ``megatron/neox_arguments/arguments.py``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import machine
from oomlint.dialects.common.world import world
from oomlint.dialects.gpt_neox.keys import own
from oomlint.dialects.machine.fields import launch, scene
from oomlint.dialects.machine.meaning import launch_all_visible
from oomlint.dialects.machine.visible import visible_gpus
from oomlint.dialects.meaning import Meaning, Sourced
from oomlint.plan.fields import f

ranks = Meaning(world, launch_all_visible)

_NODE = 8
_HOSTS = "gpt-neox ea7aefd8 deepy.py: the hosts of /job/hostfile or DLTS_HOSTFILE, if there are any"
_LEAST = "the least that the degrees of parallelism and a node of 8 GPUs allow"


@ranks.derive(f.parallel.nodes, source=_HOSTS)
def nodes(run: Cells) -> Any:
    """A list of hosts that nobody names is where it always is: it has the nodes that the hardware
    or the job has, else as many as one replica of the model needs. GPT-NeoX stops where that is not
    a whole number of replicas (arguments.py calculate_derived)."""
    if run[launch.hostfile] is not None or run[launch.include]:
        return None
    known = run[machine.nodes] or run[scene.nodes]
    each = run[machine.gpus_per_node] or visible_gpus(run)
    if known is not None and (known > 1 or each is None or needed(run) <= each):
        return Sourced(known, _HOSTS)
    least = -(-needed(run) // (each or _NODE))
    return Sourced(least, _LEAST, is_assumed=True) if least > 1 else None


@ranks.assume(f.parallel.gpus_per_node, why=_LEAST)
def gpus_of_node(run: Cells) -> Any:
    whole = needed(run)
    return whole if whole >= _NODE or _NODE % whole else _NODE


def needed(run: Cells) -> int:
    """Ranks of one replica of the model."""
    return (run[f.parallel.tp] or 1) * max(1, run[own.pipes] or 0)
