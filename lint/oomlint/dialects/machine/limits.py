"""Wishes about the machine, said in the file that limits it now.

A container's limit is inside the job's, so it counts first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.machine import containers_meaning, kubernetes_meaning, slurm_meaning
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.plan.fields import f

limits = Meaning()

_Way = Callable[[Any, Cells], Wishes | None]


def _said_by(field: Any, *ways: _Way) -> None:
    """A wish is said in the first way that there is."""

    @limits.written(field)
    def write(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
        said = (way(wanted, run) for way in ways)
        return next((own for own in said if own is not None), {field: wanted})


_said_by(
    f.host.ram_gib,
    containers_meaning.ram_as_option,
    kubernetes_meaning.ram_as_limit,
    slurm_meaning.ram_as_directive,
)
_said_by(
    f.host.shm_gib,
    containers_meaning.shared_memory_as_option,
    kubernetes_meaning.shared_memory_as_volume,
)
_said_by(f.host.memlock, containers_meaning.locked_memory_as_option)
