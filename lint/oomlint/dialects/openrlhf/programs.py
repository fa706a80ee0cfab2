"""Which of OpenRLHF's programs a run is, and in which of two ways its options are written."""

from __future__ import annotations

from oomlint.dialects.cells import Cells
from oomlint.dialects.openrlhf.keys import CLI, KEY_OF, OLD_CLI


def _key(run: Cells) -> tuple[str, bool]:
    keys = (KEY_OF.get(block.table.name) for block in run.blocks)
    return next((key for key in keys if key), ("sft", True))


def program_of(run: Cells) -> str:
    """``sft`` of ``train_sft``."""
    return _key(run)[0]


def reinforces(run: Cells) -> bool:
    return program_of(run).startswith("ppo")


def is_dotted(run: Cells) -> bool:
    """Whether options are written as newer releases have them: ``--train.batch_size``."""
    return _key(run)[1]


def defaults_of(run: Cells) -> str:
    """Where the defaults of the options were read."""
    return CLI if is_dotted(run) else OLD_CLI
