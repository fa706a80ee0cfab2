"""What is kept in the host's memory: whether it is pinned there, and wishes for it."""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.releases import KEEPS_SHARED, PINS_OFFLOADED
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f


def pins_by_default(run: Cells) -> bool | None:
    """Whether DeepSpeed pins what it offloads where nobody says; ``None`` where it offloads nothing."""
    offloads = {"cpu", "nvme"} & {run[f.offload.optimizer], run[f.offload.params]}
    return run.has(PINS_OFFLOADED) if offloads else None


def hooks_of_trl(run: Cells) -> dict[Any, Any]:
    """What TRL's ``OffloadActivations`` takes: it is around the whole training step, loss included."""
    return {f.offload.keeps_shared: run.has(KEEPS_SHARED), f.offload.takes_loss: True}


def to_cpu(device: Any, what: str) -> bool:
    """Whether a wish is for the CPU, of a framework that knows that place and no other.

    Args:
        what: who offloads, and what: ``TRL offloads activations``.

    Raises:
        CannotEdit: it is for another place.
    """
    if device not in ("cpu", "none"):
        raise CannotEdit(f"{what} to the CPU or not at all")
    return bool(device == "cpu")
