"""The GPUs that a command sees."""

from __future__ import annotations

from itertools import takewhile

from oomlint.dialects.cells import Cells
from oomlint.plan.fields import f


def visible_gpus(run: Cells) -> int | None:
    """How many GPUs ``CUDA_VISIBLE_DEVICES`` leaves visible; ``None`` where it is not set."""
    shown = run[f.env.cuda_visible_devices]
    if shown is None:
        return None
    # CUDA stops at the first id that it cannot use, such as -1.
    ids = (part.strip() for part in str(shown).split(","))
    return len(list(takewhile(lambda name: name and not name.startswith("-"), ids)))
