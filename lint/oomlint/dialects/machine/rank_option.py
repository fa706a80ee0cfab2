"""``--local-rank``, which ``python -m torch.distributed.launch`` hands to a script whether it knows it or not."""

from __future__ import annotations

from typing import Any

from oomlint.dialects.block import Block
from oomlint.dialects.blocks import facts_of
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import shared
from oomlint.dialects.machine.launcher_keys import TORCHRUN
from oomlint.dialects.meaning import Meaning
from oomlint.plan.library_changes import LibraryChange

rank_option = Meaning()

_WHY = "torch.distributed.launch hands over --local-rank, and the script knows --local_rank alone"

DASHED = LibraryChange(
    "torch",
    (2, 0),
    "torch.distributed.launch hands --local_rank to the script",
    "torch 1.13.1 and 2.0.0 distributed/launch.py, distributed/run.py config_from_args",
)


@rank_option.derive(shared.refused, source=DASHED.source)
def refused_rank(run: Cells) -> Any:
    """Where the script's argparse knows the option as it was spelled before torch 2 alone."""
    return _WHY if run.surely_made(DASHED) and _is_handed_over(run) else None


@rank_option.derive(shared.refused_lately, source=DASHED.source)
def lately_refused_rank(run: Cells) -> Any:
    """The same where the project allows an earlier torch, too."""
    return _WHY if run.has(DASHED, noted=False) and _is_handed_over(run) else None


def _is_handed_over(run: Cells) -> bool:
    return any(map(_hands_rank_over, run.blocks_of(TORCHRUN))) and run.once(_knows_old_alone)


def _hands_rank_over(block: Block) -> bool:
    if {"use_env", "use-env"} & block.mapping.entries.keys():
        return False
    span, text = block.mapping.span, block.document.source.text
    return "torch.distributed.launch" in text[span.start : span.end]


def _knows_old_alone(blocks: list[Block]) -> bool:
    return next(facts_of(blocks, "refuses-dashed-rank"), None) is not None
