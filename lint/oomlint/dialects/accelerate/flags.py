"""Flags of ``accelerate launch`` and the file that ``--config_file`` names: which of them counts."""

from __future__ import annotations

from typing import Any

from oomlint.dialects.accelerate.keys import ACCELERATE
from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.meaning import Meaning, Said
from oomlint.dialects.setting import Setting

flags_first = Meaning()


@flags_first.said(*ACCELERATE.by_field)
def prefer_flags(run: Cells, field: Any, said: Said) -> Said:
    """A flag beats the file, although that is read after it."""
    if not isinstance(said, Setting) or not said.shadowed or not _is_of_file(said.origin.block):
        return said
    flags = (earlier for earlier in said.shadowed if _is_of_launcher(earlier.origin.block))
    flag = next(flags, None)
    return said if flag is None else Setting(flag.value, flag.origin, (said,), flag.level)


def _is_of_file(block: Block | None) -> bool:
    return block is not None and block.table is ACCELERATE


def _is_of_launcher(block: Block | None) -> bool:
    return block is not None and block.table.section == "launcher"
