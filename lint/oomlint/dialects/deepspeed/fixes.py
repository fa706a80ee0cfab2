"""How a run changes its DeepSpeed config where that is one that its framework ships."""

from __future__ import annotations

from typing import Any

from oomlint.dialects.deepspeed.keys import DEEPSPEED
from oomlint.dialects.deepspeed.presets import neighbour
from oomlint.dialects.draft import Draft


def swap_preset(own: dict[str, Any], draft: Draft) -> dict[str, Any]:
    """Wishes of a run whose DeepSpeed config is one that its framework ships: the run may name
    that one's neighbour instead, where one does just what is wished."""
    wanted = {name: v for name, v in own.items() if name.startswith(("parallel.zero.", "offload."))}
    blocks = (block for block in draft.blocks if block.table is DEEPSPEED)
    copy = next((block.copy for block in blocks if block.copy is not None), None)
    if copy is None:
        return own
    other = neighbour(str(draft.get("ref.deepspeed")), wanted)
    # A project that brings some of these files along need not have all of them.
    if other is None or (copy.others is not None and _name(other) not in copy.others):
        return own
    kept = {name: value for name, value in own.items() if name not in wanted}
    return {**kept, "ref.deepspeed": other}


def _name(reference: str) -> str:
    return reference.rpartition("/")[2]
