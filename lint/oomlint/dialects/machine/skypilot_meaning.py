"""The nodes that a SkyPilot task asks for; memory is theirs, not a limit."""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.machine.fields import scene, sky
from oomlint.dialects.machine.skypilot_keys import PLAIN_NAMES, TASK
from oomlint.dialects.meaning import Meaning
from oomlint.plan.fields import f

sky_task = Meaning()

_SOURCE = "SkyPilot"


def _is_task(run: Cells) -> bool:
    return run.has_block_of(TASK)


@sky_task.fact(scene.nodes, f.parallel.nodes, source=_SOURCE)
def nodes_of_task(run: Cells) -> Any:
    if not _is_task(run):
        return None
    return dict.fromkeys((scene.nodes, f.parallel.nodes), run.get(sky.nodes, 1))


@sky_task.fact(scene.gpus_per_node, f.parallel.gpus_per_node, scene.gpu_names, source=_SOURCE)
def accelerators_of_task(run: Cells) -> Any:
    asked = run[sky.accelerators] if _is_task(run) else None
    if asked is None:
        return None
    return {
        scene.gpus_per_node: asked.number,
        f.parallel.gpus_per_node: asked.number,
        scene.gpu_names: ((PLAIN_NAMES.get(asked.name, asked.name),),),
    }


@sky_task.fact(scene.instance, source=_SOURCE)
def instance_of_task(run: Cells) -> Any:
    return run[sky.instance] if _is_task(run) else None
