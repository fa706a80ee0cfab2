"""What is said of a field: a value, where it came from, and how well it is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from oomlint.documents.base import UNKNOWN, Entry, RenamedEntry, Scalar
from oomlint.documents.text import Location, Span
from oomlint.plan.evidence import Level

if TYPE_CHECKING:
    from oomlint.dialects.block import Block
    from oomlint.dialects.table import Row


class Origin(Struct, frozen=True, eq=False):
    """Where a setting came from.

    ``explicit``: a key in a file, at ``entry`` of ``block``; ``default``: the framework's
    own value, from ``source``; ``derived``: computed from the fields ``inputs``;
    ``catalog``: a fact about the model or the hardware; ``assumed``: our stated guess;
    ``option``: from the command line or the settings of oomlint.
    """

    kind: Literal["explicit", "default", "derived", "catalog", "assumed", "option"]
    block: Block | None = None
    row: Row | None = None
    entry: Entry | None = None
    source: str = ""
    inputs: tuple[Any, ...] = ()

    @property
    def location(self) -> Location | None:
        if self.entry is None or self.block is None:
            return None
        return self.block.referred or Location(self.block.path, self.entry.span)

    @property
    def value_location(self) -> Location | None:
        if self.entry is None or self.block is None:
            return None
        return self.block.referred or Location(self.block.path, self.entry.value.span)

    @property
    def key(self) -> str | None:
        """The key as the file writes it."""
        if isinstance(self.entry, RenamedEntry):
            return self.entry.written
        return self.entry.key if self.entry else (self.row.key if self.row else None)


def unread_at(block: Block, name: str, why: str, at: Span | None = None) -> Origin:
    """Of what something at a place of a file decides that was not read (the block's anchor by default): ``name`` is what
    the file calls it, ``why`` says in words why nobody knows."""
    at = at or block.anchor
    return Origin("explicit", block, None, Entry(name, at, Scalar(at, UNKNOWN), at), source=why)


class Setting(Struct, frozen=True, eq=False):
    """A value with its origin, and how well it is known; ``shadowed`` are those it overrides."""

    value: Any
    origin: Origin
    shadowed: tuple[Setting, ...] = ()
    level: Level = Level.STATED
