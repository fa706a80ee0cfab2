"""What an Accelerate config says in DeepSpeed's own words, which Accelerate passes by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from oomlint.dialects.accelerate.keys import ACCELERATE
from oomlint.dialects.block import Block
from oomlint.dialects.deepspeed.keys import DEEPSPEED
from oomlint.dialects.table import Row
from oomlint.documents.base import Entry, Mapping
from oomlint.documents.text import Location

_ZERO = "zero_optimization"


class Lost(Struct, frozen=True, eq=False):
    """One thing that is said in vain, and that Accelerate has a key for."""

    field: Any
    value: Any
    instead: str
    """How Accelerate's own key says it, as the file would."""


class PassedBy(Struct, frozen=True, eq=False):
    """DeepSpeed's ``zero_optimization``, nested, beside Accelerate's keys for ZeRO, which are flat."""

    block: Block
    entry: Entry

    @property
    def location(self) -> Location:
        return Location(self.block.path, self.entry.key_span)

    def losses(self) -> Iterator[Lost]:
        """What it says that Accelerate has keys for: those by which both tables write one field."""
        document = self.block.document
        alone = Mapping(self.entry.value.span, {_ZERO: self.entry})
        settings = Block(document, alone, DEEPSPEED, self.entry.key_span).read().settings
        for field, setting in settings.items():
            row, entry = ACCELERATE.by_field.get(field), setting.origin.entry
            if row is not None and entry is not None:
                span = entry.value.span
                written = document.source.text[span.start : span.end]
                yield Lost(field, setting.value, f"{_own_name(row)}: {written}")


def _own_name(row: Row) -> str:
    """The key as it stands in ``deepspeed_config``."""
    return row.key.rpartition(".")[2]


def passed_by(blocks: Iterable[Block]) -> PassedBy | None:
    """The first block that Accelerate passes by: ACC/commands/launch.py _validate_launch_command sets it as an option of
    the launcher that nobody asks for."""
    own_blocks = (block for block in blocks if block.table is ACCELERATE)
    found = ((block, block.find(f"deepspeed_config.{_ZERO}")) for block in own_blocks)
    return next((PassedBy(block, entry) for block, entry in found if entry is not None), None)
