"""A mapping of a document, read with a table: the unit that fixes write to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping as MappingABC
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from oomlint.dialects.entries import find_entry, holder_of, plain_value, value_at
from oomlint.dialects.reading import Reading, StrayKey, read, renamed_keys, stray_keys
from oomlint.dialects.setting import Origin, Setting
from oomlint.dialects.table import Renaming, Row, Table
from oomlint.documents.base import Document, Entry, Mapping, Node, PythonDocument
from oomlint.documents.text import Edit, Location, Span
from oomlint.errors import CannotEdit
from oomlint.plan.evidence import Level

if TYPE_CHECKING:
    from oomlint.dialects.additions import Additions


class Copy(Struct, frozen=True):
    """Where a file that others use too goes before it is changed for one run.

    ``named``: where the file is named now, and ``written`` how; ``path``: of the copy, a display
    path; ``reference``: how it will be named. ``others``: the names of the files beside a shipped
    one, ``None`` where it is not at hand or not shipped.
    """

    named: Location
    written: str
    path: str
    reference: str
    others: frozenset[str] | None = None


class Block(Struct, frozen=True, eq=False, dict=True):
    """A mapping of a document, read with a table."""

    document: Document
    mapping: Mapping
    table: Table
    anchor: Span
    """Where to point when the block lacks a key: its most telling line."""
    prefix: str = ""
    """Dotted path of this block within its file's root block, for messages."""
    locked: str | None = None
    """Why nothing may be written here (a file that the framework ships), or ``None``."""
    referred: Location | None = None
    """Where a file that is not at hand is named: what is said of it is said there."""
    copy: Copy | None = None
    """Where the file is copied to before it is changed, since a framework ships it."""
    level: Level = Level.STATED
    """How well it is known that what stands here holds for the run."""
    doubt: str = ""
    """Why it is not known at all, in words, of a block that is not read."""
    unsaid: str = ""
    """Why what no key here says need not be at its default, in words: a file below it is not here."""
    dashes: bool = False
    """Whether keys of the uppermost mapping may have dashes for underscores."""
    heir: Block | None = None
    """Of a locked block the one that says otherwise: the end of a chain of configs."""

    @property
    def path(self) -> str:
        return self.document.source.path

    @property
    def is_code(self) -> bool:
        """Whether it is of a program, a notebook's included, and of no config or command."""
        return isinstance(self.document, PythonDocument)

    @property
    def location(self) -> Location:
        return self.referred or Location(self.path, self.anchor)

    @cached_property
    def defaults(self) -> tuple[tuple[Row, Setting], ...]:
        """What the table's keys mean where they are absent."""
        level = Level.UNREAD if self.unsaid else Level.STATED
        return tuple(
            (
                row,
                Setting(
                    row.default,
                    Origin("default", self, row, source=self.unsaid or row.source),
                    level=level,
                ),
            )
            for row in self.table.rows
            if row.default is not None
        )

    def find(self, key: str) -> Entry | None:
        """The entry at a dotted key, written nested or flat, with or without its prefix."""
        entry = find_entry(self.mapping, key, self.table.strip_prefix)
        if entry is None and self.dashes:
            entry = find_entry(self.mapping, self.as_written(key), "")
        return entry

    @cached_property
    def dashed(self) -> MappingABC[str, str]:
        """Keys with underscores, and how the file writes them."""
        return {key.replace("-", "_"): key for key in self.mapping.entries} if self.dashes else {}

    def as_written(self, key: str) -> str:
        """A dotted key as the file would write it."""
        head, dot, rest = key.partition(".")
        return self.dashed.get(head, head) + dot + rest

    def value_at(self, location: Location) -> Node | None:
        """The value of this block that stands at a location."""
        return value_at(self.mapping, location.span) if location.path == self.path else None

    def value(self, node: Node) -> Any:
        """The plain value of a node under this table's loader."""
        return plain_value(node, self.table.loader)

    @cached_property
    def reading(self) -> Reading:
        """What it says, read once for all runs and lints of the document."""
        return self.read()

    def read(self) -> Reading:
        return read(self)

    def stray_keys(self, mapping: Mapping, prefix: str) -> Iterator[StrayKey]:
        """Keys of a mapping of this block, under a dotted path, that the framework does not know."""
        return stray_keys(self, mapping, prefix)

    def renamed(self) -> Iterator[tuple[StrayKey, Renaming]]:
        """Keys of this block that newer versions of the framework call otherwise."""
        return renamed_keys(self)

    def inner(self, entry: Entry, mapping: Mapping, table: Table) -> Block:
        """The block that an entry holds."""
        return Block(
            self.document,
            mapping,
            table,
            entry.key_span,
            entry.key,
            self.locked,
            self.referred,
            self.copy,
            self.level,
        )

    def holder(self, entry: Entry) -> Mapping:
        """The mapping, this block's or one inside it, in which an entry stands."""
        return holder_of(self.mapping, entry)

    # -- writing ---------------------------------------------------------------------

    def can_write(self, field: str) -> bool:
        return field in self.table.by_field

    def refuses_new(self, field: str, blocks: Iterable[Block]) -> str | None:
        """Why a key that is legal by the table may not be added to this block of a run's; ``None`` where it
        may."""
        return None

    def following(self, fields: Collection[str]) -> frozenset[str]:
        """The fields whose values here stand for those of others, and so become what these do."""
        return frozenset()

    def write(self, values: MappingABC[str, Any]) -> list[Edit]:
        """Edits that make this block say every ``field: value``.

        Raises:
            CannotEdit: with the reason in words for the user.
        """
        if self.locked:
            raise CannotEdit(self.locked)
        from oomlint.dialects.additions import Additions, rewritten

        edits: list[Edit] = []
        additions = Additions(self)
        for name, value in values.items():
            row = self.table.by_field[name]
            literal = row.kind.write(value)
            entry = self.entry_of(row)
            if entry is not None:
                edits += rewritten(self, entry.value, literal)
            else:
                self.add(row, literal, additions)
        return [*edits, *additions.edits()]

    def entry_of(self, row: Row) -> Entry | None:
        """The entry that says what a row is about, under any of its spellings."""
        found = (self.find(name) for name in (row.key, *row.aliases))
        return next((entry for entry in found if entry is not None), None)

    def add(self, row: Row, literal: Any, additions: Additions) -> None:
        """Plan to add a row's key, which is not there."""
        additions.add(row, literal)


class RemovingBlock(Block, frozen=True, eq=False):
    """A block from which a key goes where ``None`` is written to its field."""

    def write(self, values: MappingABC[str, Any]) -> list[Edit]:
        kept = {name: value for name, value in values.items() if value is not None}
        edits = super().write(kept) if kept or self.locked else []
        for name in values.keys() - kept.keys():
            entry = self.entry_of(self.table.by_field[name])
            if entry is not None:
                edits += self.document.remove_entry(self.holder(entry), entry.key)
        return edits


class OverrideBlock(Block, frozen=True, eq=False):
    """Overrides of a file on a command line: they are changed where they stand, while a key
    that is new goes into the file."""

    def can_write(self, field: str) -> bool:
        row = self.table.by_field.get(field)
        return row is not None and self.entry_of(row) is not None
