"""The GPUs that a command sees."""

from __future__ import annotations

from itertools import takewhile

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import machine
from oomlint.dialects.machine.fields import scene
from oomlint.plan.fields import f


def visible_gpus(run: Cells) -> int | None:
    """How many GPUs of a node a command sees: those that ``CUDA_VISIBLE_DEVICES`` names, else those
    that its job or container asks for, however many more the machine has; ``None`` where nobody
    says.

    Slurm and containers show a job the devices that it was given (gres.conf(5), "AutoDetect";
    docker run(1), "--gpus").
    """
    shown = listed(run[f.env.cuda_visible_devices])
    if shown is not None:
        return shown
    asked, there = run[scene.gpus_per_node], run[machine.gpus_per_node]
    return asked if there is None or asked is None else min(asked, there)


def listed(devices: str | None) -> int | None:
    """How many GPUs a value of ``CUDA_VISIBLE_DEVICES`` leaves visible."""
    if devices is None:
        return None
    # CUDA stops at the first id that it cannot use, such as -1.
    ids = (part.strip() for part in str(devices).split(","))
    return len(list(takewhile(lambda name: name and not name.startswith("-"), ids)))
