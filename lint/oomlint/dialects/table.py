"""The table of a dialect: which key of a file stands for which canonical field, both ways.

A :class:`Row` is used for reading a config and for writing a fix. A :class:`Table` is a
list of rows plus the keys that are known and do not matter for memory. A :class:`Block`
is a mapping in a document, read with a table; it is the unit that fixes write to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping as MappingABC
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

from oomlint.dialects.kinds import AUTO, TEXT, BadValue, Kind, OutOfRange, Undecided
from oomlint.documents.base import (
    UNKNOWN,
    Document,
    Entry,
    Mapping,
    Name,
    Node,
    RenamedEntry,
    Scalar,
    Sequence,
)
from oomlint.documents.python.nodes import PythonMapping, is_if_known
from oomlint.documents.text import Edit, Location, Span
from oomlint.errors import CannotEdit
from oomlint.plan.evidence import Level
from oomlint.plan.library_changes import LibraryChange, Release, release_of
from oomlint.wording.spelling import is_misspelling

Loader = Literal["pyyaml", "yaml12", "omegaconf"]

# What is meant by strange keys is worked out one by one. The largest framework has some 1,400 keys;
# more in one mapping are no slips of the pen.
_MOST_KEYS = 2000


class Row(Struct, frozen=True):
    """One key of a framework.

    ``key`` is a dotted path as the file spells it. ``field`` is a leaf of the canonical plan
    (``f.batch.micro``), or a private one of the dialect, which its derivations turn into those
    of the plan. ``default`` is the canonical value when the key is
    absent, ``None`` where there is none; ``changes`` are those that brought it about.
    ``source`` says where the meaning and the default were read. ``table`` reads a mapping under
    this key with a table of its own. ``near`` are keys, of the table or not, that it stands behind where a file has
    them, rather than behind the row before.
    """

    key: str
    field: Any
    kind: Kind = TEXT
    default: Any = None
    aliases: tuple[str, ...] = ()
    source: str = ""
    table: Table | None = None
    changes: tuple[LibraryChange, ...] = ()
    near: tuple[str, ...] = ()


class Renaming(Struct, frozen=True):
    """What newer versions of a framework made of a key.

    ``new`` is its new spelling, ``None`` where renaming alone does not do. ``since`` names the
    first version without the old one. ``effect`` is what that version does with it. ``advice``
    completes "…; <advice>" where there is no new spelling or more to say.
    """

    old: str
    new: str | None
    since: str
    effect: Literal["refused", "ignored"] = "refused"
    advice: str = ""
    source: str = ""


class Past(Struct, frozen=True):
    """Keys that earlier releases of a framework had, each with the first release without it."""

    package: str
    keys: MappingABC[str, str]


class Refusal(Struct, frozen=True):
    """Where a framework's package refuses unknown keys: a project's copy of it may be of a release, or changed to one,
    that drops them without a word."""

    paths: tuple[str, ...]
    """The files that may do so, by release."""
    by: bytes
    """What stands in one that does, a regular expression."""


class Spans(Struct, frozen=True):
    """Keys that a table has and some releases of its framework have not: the first release with each, and the first
    without it again, ``""`` where there is none; a key below one that is listed came and went with that. ``by_objective``:
    each objective has a class of its own there, and keys are called ``sft.packing``. ``only_told``: a key that came late
    is added only where something tells that the release which runs has it."""

    package: str
    keys: MappingABC[str, tuple[str, str]]
    by_objective: bool = False
    only_told: bool = False

    def why_not(
        self, key: str, pinned: Release | None, beside: Iterable[str], objective: str = ""
    ) -> str | None:
        """Why a key may not be added: the release that a project pins has it not yet, or, where none is pinned, a
        key of the same file went before it came. ``None`` where nothing tells."""
        of = f"{objective}." if self.by_objective else ""
        came, said = self._came(key, of)
        if came is None:
            return None
        if pinned is not None:
            is_older = pinned < came
            return (
                f"{said}, and the project pins {'.'.join(map(str, pinned))}" if is_older else None
            )
        for other in beside:
            gone = self.keys.get(of + other, ("", ""))[1]
            went = _beginning(gone)
            if went is not None and went <= came:
                return f"{said}, and the file has {other}, which went with {gone}"
        return None

    def why_untold(self, key: str, oldest: Release, beside: Iterable[str]) -> str | None:
        """Why a key may not be added that all releases from ``oldest`` on ought to have: some have it not yet, and no
        key ``beside`` it came as late. ``None`` where that is told, or need not be."""
        came, said = self._came(key)
        if not self.only_told or came is None or oldest >= came:
            return None
        firsts = (_beginning(self.keys.get(other, ("", ""))[0]) for other in beside)
        if any(first is not None and first >= came for first in firsts):
            return None
        return f"{said}, and nothing tells that the one which runs is as late"

    def _came(self, key: str, of: str = "") -> tuple[Release | None, str]:
        """With which release a key came, if with none that was read first, and the same in words."""
        key = next((each for each in _upwards(key) if of + each in self.keys), "")
        first = self.keys.get(of + key, ("", ""))[0]
        return _beginning(first), f"{self.package} has {key} from {first} on"


def _upwards(key: str) -> Iterator[str]:
    """A dotted key and those above it, the nearest first."""
    while key:
        yield key
        key = key.rpartition(".")[0]


def _beginning(version: str) -> Release | None:
    """The numbers of a version up to its last that is not zero: a project may pin 4.45 for 4.45.0."""
    release = release_of(version)
    while release and not release[-1]:
        release = release[:-1]
    return release


class Table(Struct, frozen=True, dict=True):
    """The keys of one kind of file or call.

    ``known`` are keys that are legal and without effect on memory. ``ignores_unknown`` says
    that the framework drops unknown keys in silence (a trap worth a finding); where it is
    false the framework itself refuses them, and where it is ``None`` unknown keys are none
    of our business (plug-ins may own them). ``strip_prefix`` is an optional prefix of keys.
    """

    name: str
    rows: tuple[Row, ...]
    known: frozenset[str] = frozenset()
    known_prefixes: tuple[str, ...] = ()
    ignores_unknown: bool | None = None
    loader: Loader = "pyyaml"
    strip_prefix: str = ""
    strict_under: tuple[str, ...] = ()
    """Prefixes below which unknown keys are refused even where they are ignored elsewhere."""
    section: str = ""
    """Which plan fields rows of this table may write when several blocks could."""
    renamed: tuple[Renaming, ...] = ()
    """Spellings of older versions; they are no strangers, whatever the rows make of them."""
    refusal: Refusal | None = None
    past: Past | None = None
    """What the newest release does not know any more; no file is offered it."""
    spans: Spans | None = None
    """Which releases have which of the keys; no file is given one that its release lacks."""
    tuning: str = ""
    """A pattern of the keys that files which do the same job may have differently: sizes of buffers, logging."""

    @cached_property
    def by_field(self) -> MappingABC[str, Row]:
        rows: dict[str, Row] = {}
        for row in self.rows:
            rows.setdefault(row.field, row)
        return rows

    @cached_property
    def names(self) -> MappingABC[str, Row]:
        """Every spelling (key or alias) and its row."""
        return {name: row for row in self.rows for name in (row.key, *row.aliases)}

    @cached_property
    def by_head(self) -> MappingABC[str, tuple[int, ...]]:
        """Numbers of the rows with a spelling that begins so, up to its first dot."""
        heads: dict[str, dict[int, None]] = {}
        for number, row in enumerate(self.rows):
            for name in (row.key, *row.aliases):
                heads.setdefault(name.partition(".")[0], {})[number] = None
        return {head: tuple(numbers) for head, numbers in heads.items()}

    def rows_in(self, mapping: Mapping, more: Iterable[str] = ()) -> list[Row]:
        """The rows of which a mapping may hold a spelling, in the order of the table; ``more`` are
        keys that it holds in other letters."""
        heads = {key.partition(".")[0] for key in (*mapping.entries, *more)}
        if self.strip_prefix:
            heads |= {
                key.removeprefix(self.strip_prefix).partition(".")[0] for key in mapping.entries
            }
        found = {number for head in heads for number in self.by_head.get(head, ())}
        return [self.rows[number] for number in sorted(found)]

    @cached_property
    def _near(self) -> dict[str, tuple[str, ...]]:
        """Names near to keys that files hold and that the table lacks: the runs of a project share them."""
        return {}

    def nearest(self, path: str) -> tuple[str, ...]:
        """The names of the table that a key that it lacks may be a slip for, the nearest first."""
        if path not in self._near:
            self._near[path] = self._names_near(path)
        return self._near[path]

    def _names_near(self, path: str) -> tuple[str, ...]:
        from difflib import get_close_matches

        level, _, key = path.rpartition(".")
        names = {
            name.rpartition(".")[2]: name
            for name in (*self.names, *self.known, *self.parents)
            if name.rpartition(".")[0] == level
        }
        # num_epochs is nearer to num_ppo_epochs than to num_train_epochs, by its letters.
        words = key.split("_")
        trained = ["_".join((*words[:n], "train", *words[n:])) for n in range(len(words))]
        close = [*trained, *get_close_matches(key, names, n=3, cutoff=0.8)]
        return tuple(names[near] for near in dict.fromkeys(close) if near in names)

    @cached_property
    def parents(self) -> frozenset[str]:
        """Keys that hold other keys of this table: ``zero_optimization``."""
        dotted = [key for key in (*self.known, *self.names) if "." in key]
        parts = (key.split(".") for key in dotted)
        return frozenset(".".join(p[:depth]) for p in parts for depth in range(1, len(p)))

    def refuses(self, path: str) -> bool:
        """Whether the framework stops at an unknown key of this path."""
        if self.ignores_unknown is None:
            return False
        return not self.ignores_unknown or path.startswith(self.strict_under or "\0")

    @cached_property
    def legal_keys(self) -> frozenset[str]:
        """Every key that this table knows, keys that hold others included."""
        old = frozenset(renaming.old for renaming in self.renamed)
        return self.known | self.parents | frozenset(self.names) | old


def known_keys(framework: str) -> frozenset[str]:
    """The keys listed in ``keys/<framework>.txt``: legal, and without effect on memory."""
    text = (Path(__file__).parent / "keys" / f"{framework}.txt").read_text("utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


def past_keys(package: str, framework: str) -> Past:
    """The keys listed in ``keys/past/<framework>.txt``, of a package by the name under which projects pin it."""
    text = (Path(__file__).parent / "keys" / "past" / f"{framework}.txt").read_text("utf-8")
    lines = (line.partition(" ") for line in text.splitlines() if not line.startswith("#"))
    return Past(package, {key: release for key, _, release in lines})


def key_spans(
    package: str, framework: str, *, by_objective: bool = False, only_told: bool = False
) -> Spans:
    """The keys listed in ``keys/spans/<framework>.txt``, of a package by the name under which projects pin it."""
    text = (Path(__file__).parent / "keys" / "spans" / f"{framework}.txt").read_text("utf-8")
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            key, first, *gone = line.split()
            found[key] = (first.strip("-"), gone[0] if gone else "")
    return Spans(package, found, by_objective, only_told)


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
        entry = _find(self.mapping, key, self.table.strip_prefix)
        if entry is None and self.dashes:
            entry = _find(self.mapping, self._as_written(key), "")
        return entry

    @cached_property
    def _dashed(self) -> MappingABC[str, str]:
        """Keys with underscores, and how the file writes them."""
        return {key.replace("-", "_"): key for key in self.mapping.entries} if self.dashes else {}

    def _as_written(self, key: str) -> str:
        head, dot, rest = key.partition(".")
        return self._dashed.get(head, head) + dot + rest

    def value_at(self, location: Location) -> Node | None:
        """The value of this block that stands at a location."""
        return _value_at(self.mapping, location.span) if location.path == self.path else None

    def value(self, node: Node) -> Any:
        """The plain value of a node under this table's loader."""
        return plain_value(node, self.table.loader)

    @cached_property
    def reading(self) -> Reading:
        """What it says, read once for all runs and lints of the document."""
        return self.read()

    def read(self) -> Reading:
        found = _Found()
        for row in self.table.rows_in(self.mapping, self._dashed):
            for name in (row.key, *row.aliases):
                entry = self.find(name)
                if entry is None:
                    continue
                if row.table is not None and isinstance(entry.value, Mapping):
                    found.nested.append(self._inner(entry, entry.value, row.table))
                    break
                raw = self.value(entry.value)
                if raw is not None:
                    self._note(found, row, entry, raw)
                    break
        return Reading(
            found.settings,
            tuple(self._stray_keys(self.mapping, "")),
            tuple(found.wrong),
            found.unknown,
            tuple(found.nested),
            found.auto,
        )

    def _inner(self, entry: Entry, mapping: Mapping, table: Table) -> Block:
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

    def _note(self, found: _Found, row: Row, entry: Entry, raw: Any) -> None:
        """What a row's entry says, among what was found."""
        origin = Origin("explicit", self, row, entry)
        if _is_unknown(raw) or (isinstance(raw, Name) and not row.kind.names):
            found.unknown[row.field] = origin
            return
        try:
            value = row.kind.read(raw)
        except BadValue as error:
            # What a name of code stands for, or what a call returns, only the program knows.
            is_settled = not isinstance(raw, Name) and not _is_returned(entry.value)
            if is_settled and not isinstance(error, Undecided):
                is_late = isinstance(error, OutOfRange)
                found.wrong.append(WrongValue(self, entry, str(error), row.field, is_late))
            found.unknown[row.field] = origin
            return
        if value is AUTO:
            found.auto[row.field] = origin
        elif value is not None:
            level = Level.ASSUMED if _may_differ(entry.value) else self.level
            found.settings.setdefault(row.field, Setting(value, origin, (), level))

    def renamed(self) -> Iterator[tuple[StrayKey, Renaming]]:
        """Keys of this block that newer versions of the framework call otherwise."""
        for renaming in self.table.renamed:
            entry = self.find(renaming.old)
            raw = None if entry is None else self.value(entry.value)
            if entry is None or is_if_known(entry):
                continue
            if not _is_unknown(raw) and raw not in (None, False):
                holder = self.holder(entry)
                yield StrayKey(self, holder, entry, renaming.old), renaming

    def holder(self, entry: Entry) -> Mapping:
        """The mapping, this block's or one inside it, in which an entry stands."""
        return _holder(self.mapping, entry)

    def _stray_keys(self, mapping: Mapping, prefix: str) -> Iterator[StrayKey]:
        table = self.table
        for entry in mapping.entries.values():
            path = prefix + entry.key
            if self.dashes and not prefix:
                path = path.replace("-", "_")
            bare = path.removeprefix(table.strip_prefix) if table.strip_prefix else path
            if path.startswith(table.known_prefixes or ("\0",)) or is_if_known(entry):
                continue
            if bare in table.parents and isinstance(entry.value, Mapping):
                yield from self._stray_keys(entry.value, bare + ".")
            elif not {bare, path} & table.legal_keys:
                is_data = len(mapping.entries) > _MOST_KEYS
                nearest = () if is_data else self._could_be(bare, entry)
                until = "" if table.past is None else table.past.keys.get(bare, "")
                yield StrayKey(self, mapping, entry, path, nearest, until=until)

    def _could_be(self, path: str, entry: Entry) -> tuple[str, ...]:
        """The names near to a key that could have the value which stands there: a word is none for a section (``checkpointer``,
        which holds other keys), unless the name is that of one but for its spelling."""
        names = self.table.nearest(path)
        if not isinstance(entry.value, Scalar) or entry.value.value is None:
            return names
        parents = self.table.parents
        return tuple(each for each in names if each not in parents or is_misspelling(path, each))

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
        edits: list[Edit] = []
        additions: dict[tuple[int, str], _Addition] = {}
        for name, value in values.items():
            row = self.table.by_field[name]
            literal = row.kind.write(value)
            entry = self._entry_of(row)
            if entry is not None:
                edits += self._rewrite(entry.value, literal)
            else:
                self._plan_addition(row, literal, additions)
        for addition in additions.values():
            edits += self.document.add_entry(
                addition.parent, addition.key, addition.literal, after=addition.after
            )
        return edits

    def _rewrite(self, node: Node, literal: Any) -> list[Edit]:
        """A list that only grows keeps its items, comments and layout, one of words, too."""
        if isinstance(node, Sequence) and isinstance(literal, (list, str)):
            literal = literal.split() if isinstance(literal, str) else literal
            present = self.value(node)
            if literal[: len(present)] == present:
                new = literal[len(present) :]
                return [e for item in new for e in self.document.append_item(node, item)]
        return self.document.set_value(node, literal)

    def _entry_of(self, row: Row) -> Entry | None:
        found = (self.find(name) for name in (row.key, *row.aliases))
        return next((entry for entry in found if entry is not None), None)

    def _plan_addition(
        self, row: Row, literal: Any, additions: dict[tuple[int, str], _Addition]
    ) -> None:
        """Keys that need the same new parent are added together, as one mapping."""
        parent, key = self.mapping, row.key
        while "." in key:
            head, _, tail = key.partition(".")
            written = self._as_written(head) if parent is self.mapping else head
            entry = parent.entries.get(written)
            if entry is None or not isinstance(entry.value, Mapping):
                break
            parent, key = entry.value, tail
        path = [key] if self._is_flat else key.split(".")
        key, *inner = path
        if self.table.strip_prefix and self._uses_prefix(parent):
            key = self.table.strip_prefix + key
        slot = (id(parent), key)
        if not inner:
            additions[slot] = _Addition(parent, key, literal, self._sibling(row, parent))
            return
        addition = additions.setdefault(
            slot, _Addition(parent, key, {}, self._sibling(row, parent))
        )
        target = addition.literal
        for part in inner[:-1]:
            target = target.setdefault(part, {})
        target[inner[-1]] = literal

    @property
    def _is_flat(self) -> bool:
        """Whether dotted keys are written as they are (command lines)."""
        return self.document.dotted_keys

    def _uses_prefix(self, mapping: Mapping) -> bool:
        return any(key.startswith(self.table.strip_prefix) for key in mapping.entries)

    def _sibling(self, row: Row, parent: Mapping) -> str | None:
        """The nearest earlier row of the table that stands in ``parent``: a key goes beside its kin, and what is
        about training not among what is about evaluation."""
        for key in row.near:
            if key in parent.entries:
                return key
        index = self.table.rows.index(row)
        is_eval = any(word in row.key for word in ("eval", "predict", "metric"))
        for other in reversed(self.table.rows[:index]):
            if "eval" in other.key and not is_eval:
                continue
            for name in (other.key, *other.aliases):
                entry = self.find(name)
                if entry is not None and parent.entries.get(entry.key) is entry:
                    return entry.key
        return None


class RemovingBlock(Block, frozen=True, eq=False):
    """A block from which a key goes where ``None`` is written to its field."""

    def write(self, values: MappingABC[str, Any]) -> list[Edit]:
        kept = {name: value for name, value in values.items() if value is not None}
        edits = super().write(kept) if kept or self.locked else []
        for name in values.keys() - kept.keys():
            entry = self._entry_of(self.table.by_field[name])
            if entry is not None:
                edits += self.document.remove_entry(self.holder(entry), entry.key)
        return edits


class OverrideBlock(Block, frozen=True, eq=False):
    """Overrides of a file on a command line: they are changed where they stand, while a key
    that is new goes into the file."""

    def can_write(self, field: str) -> bool:
        row = self.table.by_field.get(field)
        return row is not None and self._entry_of(row) is not None


class _Addition(Struct, frozen=True):
    parent: Mapping
    key: str
    literal: Any
    after: str | None


def _holder(mapping: Mapping, entry: Entry) -> Mapping:
    if mapping.entries.get(entry.key) is entry:
        return mapping
    for inner in mapping.entries.values():
        if isinstance(inner.value, Mapping) and _within(inner.value.span, entry.span):
            return _holder(inner.value, entry)
    return mapping


def _value_at(mapping: Mapping, span: Span) -> Node | None:
    for entry in mapping.entries.values():
        if span == entry.value.span or (
            isinstance(entry.value, Scalar) and span == entry.value.via
        ):
            return entry.value
        if isinstance(entry.value, Mapping):
            found = _value_at(entry.value, span)
            if found is not None:
                return found
    return None


def _within(outer: Span, inner: Span) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end


def _find(mapping: Mapping, key: str, prefix: str) -> Entry | None:
    entry = mapping.entries.get(key)
    if entry is None and prefix:
        entry = mapping.entries.get(prefix + key)
    if entry is not None:
        return entry
    head, dot, tail = key.partition(".")
    while dot:
        outer = mapping.entries.get(head)
        if outer is not None and isinstance(outer.value, Mapping):
            found = _find(outer.value, tail, "")
            if found is not None:
                return found
        more, dot, tail = tail.partition(".")
        head = f"{head}.{more}"
    return None


def _is_unknown(raw: Any) -> bool:
    return raw is UNKNOWN or (isinstance(raw, list) and any(item is UNKNOWN for item in raw))


def _is_returned(node: Node) -> bool:
    """Whether a value is what a call in Python code returns, or a list of such values: its arguments do not say it."""
    if isinstance(node, Sequence):
        return any(map(_is_returned, node.items))
    return isinstance(node, PythonMapping) and node.kind == "call"


def _may_differ(node: Node) -> bool:
    return isinstance(node, Scalar) and node.may_differ


def plain_value(node: Node, loader: Loader) -> Any:
    """The plain Python value of a node as ``loader`` would yield it; ``UNKNOWN`` in parts or whole."""
    if isinstance(node, Scalar):
        if not node.plain:
            return node.value
        if "${" in node.value or "{{" in node.value:
            return UNKNOWN
        from oomlint.documents.scalars import resolve

        return resolve(node.value, loader)
    if isinstance(node, Sequence):
        return [plain_value(item, loader) for item in node.items]
    return {key: plain_value(entry.value, loader) for key, entry in node.entries.items()}
