"""What a block says by its table: settings, keys that it should not have, values that the framework would refuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping as MappingABC
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from oomlint.dialects.entries import is_returned, is_unknown, may_differ
from oomlint.dialects.kinds import AUTO, BadValue, OutOfRange, Undecided
from oomlint.dialects.setting import Origin, Setting
from oomlint.documents.base import Entry, Mapping, Name, Scalar
from oomlint.documents.python.nodes import is_if_known
from oomlint.documents.text import Location
from oomlint.plan.evidence import Level
from oomlint.wording.spelling import is_misspelling

if TYPE_CHECKING:
    from oomlint.dialects.block import Block
    from oomlint.dialects.table import Renaming, Row, Table

# What is meant by strange keys is worked out one by one. The largest framework has some 1,400 keys;
# more in one mapping are no slips of the pen.
_MOST_KEYS = 2000


class StrayKey(Struct, frozen=True, eq=False):
    """A key that the table does not know, or knows only under another name."""

    block: Block
    mapping: Mapping
    entry: Entry
    path: str
    """Dotted path as written."""
    nearest: tuple[str, ...] = ()
    since: str = ""
    """Of a key that the framework has come to know: the first release with it, later than the one that runs."""
    until: str = ""
    """Of a key that earlier releases had: the first without it."""
    is_dropped: bool = False
    """Whether the project's own copy of the framework drops what it does not know, though later ones refuse it."""
    doubt: str = ""
    """What may give the framework the key after all, in words."""

    @property
    def location(self) -> Location:
        return Location(self.block.path, self.entry.key_span)

    @property
    def is_refused(self) -> bool:
        """Whether the framework stops at it."""
        return self.block.table.refuses(self.path) and not self.is_dropped

    @property
    def is_ignored(self) -> bool:
        """Whether the framework goes on without it, and without a word."""
        return bool(self.block.table.ignores_unknown) or self.is_dropped

    @property
    def meant(self) -> str | None:
        """The key that it is but for its spelling; one that is only near may be another."""
        nearest = next(iter(self.nearest), None)
        if nearest is None or self.until:
            return None
        key = nearest.rpartition(".")[2]
        return nearest if is_misspelling(self.path.rpartition(".")[2], key) else None


class WrongValue(Struct, frozen=True, eq=False):
    """A value that the framework would refuse; ``is_late``, where its parser takes the value's type, and what is made
    with it refuses the value of ``field``."""

    block: Block
    entry: Entry
    expected: str
    field: Any = None
    is_late: bool = False

    @property
    def location(self) -> Location:
        return Location(self.block.path, self.entry.value.span)


class Reading(Struct, frozen=True, eq=False):
    """What a block says: settings by field, keys it should not have, values out of range.

    ``unknown`` are fields whose key is there but whose value cannot be known without
    running user code: neither the default nor any guess applies to them.
    """

    settings: MappingABC[str, Setting]
    stray: tuple[StrayKey, ...] = ()
    wrong: tuple[WrongValue, ...] = ()
    unknown: MappingABC[str, Origin] = field(default_factory=dict)
    nested: tuple[Block, ...] = ()
    auto: MappingABC[str, Origin] = field(default_factory=dict)
    """Fields whose key says ``"auto"``: somebody else's value is taken."""


class _Found(Struct, eq=False):
    """What a block says, as far as it was read."""

    settings: dict[str, Setting] = field(default_factory=dict)
    unknown: dict[str, Origin] = field(default_factory=dict)
    wrong: list[WrongValue] = field(default_factory=list)
    nested: list[Block] = field(default_factory=list)
    auto: dict[str, Origin] = field(default_factory=dict)


def read(block: Block) -> Reading:
    """What a block says."""
    found = _Found()
    for row in block.table.rows_in(block.mapping, block.dashed):
        for name in (row.key, *row.aliases):
            entry = block.find(name)
            if entry is None:
                continue
            if row.table is not None and isinstance(entry.value, Mapping):
                found.nested.append(block.inner(entry, entry.value, row.table))
                break
            raw = block.value(entry.value)
            if raw is not None:
                _note(found, block, row, entry, raw)
                break
    return Reading(
        found.settings,
        tuple(block.stray_keys(block.mapping, "")),
        tuple(found.wrong),
        found.unknown,
        tuple(found.nested),
        found.auto,
    )


def _note(found: _Found, block: Block, row: Row, entry: Entry, raw: Any) -> None:
    """What a row's entry says, among what was found."""
    origin = Origin("explicit", block, row, entry)
    if is_unknown(raw) or (isinstance(raw, Name) and not row.kind.names):
        found.unknown[row.field] = origin
        return
    try:
        value = row.kind.read(raw)
    except BadValue as error:
        # What a name of code stands for, or what a call returns, only the program knows.
        is_settled = not isinstance(raw, Name) and not is_returned(entry.value)
        if is_settled and not isinstance(error, Undecided):
            is_late = isinstance(error, OutOfRange)
            found.wrong.append(WrongValue(block, entry, str(error), row.field, is_late))
        found.unknown[row.field] = origin
        return
    if value is AUTO:
        found.auto[row.field] = origin
    elif value is not None:
        level = Level.ASSUMED if may_differ(entry.value) else block.level
        found.settings.setdefault(row.field, Setting(value, origin, (), level))


def stray_keys(block: Block, mapping: Mapping, prefix: str) -> Iterator[StrayKey]:
    """Keys of a mapping of a block, under a dotted path, that its table does not know."""
    table = block.table
    for entry in mapping.entries.values():
        path = prefix + entry.key
        if block.dashes and not prefix:
            path = path.replace("-", "_")
        bare = path.removeprefix(table.strip_prefix) if table.strip_prefix else path
        if path.startswith(table.known_prefixes or ("\0",)) or is_if_known(entry):
            continue
        if bare in table.parents and isinstance(entry.value, Mapping):
            yield from block.stray_keys(entry.value, bare + ".")
        elif not {bare, path} & table.legal_keys:
            is_data = len(mapping.entries) > _MOST_KEYS
            nearest = () if is_data else _could_be(table, bare, entry)
            until = "" if table.past is None else table.past.keys.get(bare, "")
            yield StrayKey(block, mapping, entry, path, nearest, until=until)


def _could_be(table: Table, path: str, entry: Entry) -> tuple[str, ...]:
    """The names near to a key that could have the value which stands there: a word is none for a section (``checkpointer``,
    which holds other keys), unless the name is that of one but for its spelling."""
    names = table.nearest(path)
    if not isinstance(entry.value, Scalar) or entry.value.value is None:
        return names
    return tuple(each for each in names if each not in table.parents or is_misspelling(path, each))


def renamed_keys(block: Block) -> Iterator[tuple[StrayKey, Renaming]]:
    """Keys of a block that newer versions of the framework call otherwise."""
    for renaming in block.table.renamed:
        entry = block.find(renaming.old)
        raw = None if entry is None else block.value(entry.value)
        if entry is None or is_if_known(entry):
            continue
        if not is_unknown(raw) and raw not in (None, False):
            yield StrayKey(block, block.holder(entry), entry, renaming.old), renaming
