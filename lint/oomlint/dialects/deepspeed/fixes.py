"""How a run changes its DeepSpeed config where that is one that its framework ships."""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import ref
from oomlint.dialects.deepspeed.keys import DEEPSPEED
from oomlint.dialects.deepspeed.presets import neighbour
from oomlint.plan.fields import below, f


def swap_preset(wishes: MappingABC[Any, Any], run: Cells) -> dict[Any, Any]:
    """Wishes of a run whose DeepSpeed config is one that its framework ships: the run may name
    that one's neighbour instead, where one does just what is wished."""
    own = dict(wishes)
    asked = {*below(f.parallel.zero), *below(f.offload)}
    wanted = {field: value for field, value in own.items() if field in asked}
    blocks = (block for block in run.blocks if block.table is DEEPSPEED)
    copy = next((block.copy for block in blocks if block.copy is not None), None)
    if copy is None:
        return own
    other = neighbour(str(run[ref.deepspeed]), wanted, run[f.precision.compute])
    # A project that brings some of these files along need not have all of them.
    if other is None or (copy.others is not None and _name(other) not in copy.others):
        return own
    kept = {name: value for name, value in own.items() if name not in wanted}
    return {**kept, ref.deepspeed: other}


def _name(reference: str) -> str:
    return reference.rpartition("/")[2]
