"""What a framework makes of its keys: derivations of fields, and beside each how a wish for it is
written back.

A module of a dialect makes one :class:`Meaning` and fills it by decorators::

    meaning = Meaning(TRAINER)                  # what it shares with others comes after its own

    @meaning.derive(f.checkpointing.mode, source="AX/core/builders/base.py:599")
    def checkpointing(run: Cells) -> Any:
        return "full" if run[f.parallel.fsdp.activation_checkpointing] else run[own.gc]

    @checkpointing.written
    def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
        return {own.gc: wanted}

Of several derivations of a field the first that answers (not ``None``) counts, those of the
including meaning before those of the included. A field takes its value from, in this order: the
user's options, the files, :meth:`~Meaning.derive`, the defaults of the tables' rows,
:meth:`~Meaning.fact`, :meth:`~Meaning.default`, :meth:`~Meaning.assume`; then
:meth:`~Meaning.override` says what the framework makes of it whatever it was.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from oomlint.dialects.block import Block
from oomlint.dialects.setting import Origin, Setting
from oomlint.errors import CannotEdit
from oomlint.plan.library_changes import LibraryChange, Release

if TYPE_CHECKING:
    from oomlint.dialects.cells import Cells

Wishes: TypeAlias = Mapping[Any, Any]
"""Fields and what a change would make them; ``None`` leaves one to others (``"auto"``)."""

Compute: TypeAlias = "Callable[[Cells], Any]"
Writer: TypeAlias = "Callable[[Any, Cells, Wishes], Mapping[Any, Any]]"


class Left(Struct, frozen=True, eq=False):
    """A field that its key leaves to somebody else: ``"auto"``."""

    origin: Origin


Said: TypeAlias = "Setting | Origin | Left | None"
"""What the files say of a field: a setting, the place of one that cannot be read, that it is left
to others, or nothing."""
Reader: TypeAlias = "Callable[[Cells, Any, Said], Said]"
Unsaid: TypeAlias = Callable[[list[Block]], Container[Any]]
"""Finds in the blocks of a run the fields of which a reader makes something although nothing is said of them."""
Bounds: TypeAlias = tuple[str, Release, Release]
"""A library, its oldest release possible, and the first one that is too new (``()``: open)."""

Rank = Literal["derive", "fact", "default", "assume", "override"]


class Sourced:
    """A derived value with a source of its own, where the derivation has several; ``is_assumed``
    of one that is a guess."""

    __slots__ = ("is_assumed", "source", "value")

    def __init__(self, value: Any, source: str, *, is_assumed: bool = False) -> None:
        self.value, self.source, self.is_assumed = value, source, is_assumed


class _Reading(Struct, frozen=True, eq=False):
    """A reader of statements, and about which fields it is asked: about all without any; ``unsaid`` as in :meth:`Meaning.said`."""

    fields: frozenset[Any] | None
    reader: Reader
    unsaid: Unsaid | None


def _no_fields(_blocks: list[Block]) -> Container[Any]:
    return ()


NOTHING: Any = object()
"""What an override returns to leave a field without a value."""


class Derivation:
    """One function of cells that gives one field, or several that follow from the same.

    A function of one field returns its value, one of several a mapping of those that it knows.
    """

    __slots__ = ("changes", "compute", "fields", "home", "rank", "source")

    def __init__(
        self,
        home: Meaning,
        fields: tuple[Any, ...],
        rank: Rank,
        source: str,
        compute: Compute,
        changes: tuple[LibraryChange, ...] = (),
    ) -> None:
        self.home, self.fields, self.rank = home, fields, rank
        self.source, self.compute, self.changes = source, compute, changes

    def __call__(self, run: Cells) -> Any:
        return self.compute(run)

    @property
    def name(self) -> str:
        return f"{self.compute.__module__}.{self.compute.__qualname__}"

    def written(self, writer: Writer) -> Writer:
        """Declare how a wish for the result is said in fields that the tables can write."""
        for field in self.fields:
            self.home.writers[field] = writer
        return writer


class Meaning:
    """The derivations, defaults and inverses of one module, on top of those it includes."""

    def __init__(self, *included: Meaning) -> None:
        self.included = included
        self.derivations: list[Derivation] = []
        self.readers: list[_Reading] = []
        self.bounds: list[Callable[[Cells], Iterable[Bounds]]] = []
        self.likely_bounds: list[Callable[[Cells], Iterable[Bounds]]] = []
        self.writers: dict[Any, Writer] = {}
        self._chains: dict[Any, tuple[Derivation, ...]] | None = None
        self._overrides: dict[Any, tuple[Derivation, ...]] = {}
        self._shared: dict[Any, tuple[Derivation, ...]] = {}
        self._read: dict[Any, tuple[tuple[Reader, ...], tuple[Unsaid, ...] | None]] = {}

    # -- declaring -------------------------------------------------------------------

    def _declare(
        self, fields: tuple[Any, ...], rank: Rank, source: str
    ) -> Callable[[Compute], Derivation]:
        _check(fields)

        def decorator(compute: Compute) -> Derivation:
            derivation = Derivation(self, fields, rank, source, compute)
            self.derivations.append(derivation)
            return derivation

        return decorator

    def derive(self, *fields: Any, source: str = "") -> Callable[[Compute], Derivation]:
        """What follows from other fields; never overrides what a file says."""
        return self._declare(fields, "derive", source)

    def override(self, *fields: Any, source: str = "") -> Callable[[Compute], Derivation]:
        """What the framework makes of fields whatever the file says; ``None`` lets them be.

        Inside, a field itself reads as it is before; ``run.base(field)`` reads so elsewhere.
        """
        return self._declare(fields, "override", source)

    def fact(self, *fields: Any, source: str = "") -> Callable[[Compute], Derivation]:
        """What is known of the model or the machine, where nothing else says it."""
        return self._declare(fields, "fact", source)

    def default(self, *fields: Any, source: str = "") -> Callable[[Compute], Derivation]:
        """The framework's own value, where it depends on others; see :meth:`constant`."""
        return self._declare(fields, "default", source)

    def assume(self, *fields: Any, why: str = "") -> Callable[[Compute], Derivation]:
        """A stated guess; it is listed with every prediction that rests on it."""
        return self._declare(fields, "assume", why)

    def constant(self, field: Any, value: Any, source: str, *changes: LibraryChange) -> None:
        """The framework's own value where nobody sets the field; ``changes`` are those of it."""
        _check((field,))
        rank: Rank = "default"
        self.derivations.append(
            Derivation(self, (field,), rank, source, lambda _run: value, changes)
        )

    def always(self, field: Any, value: Any, source: str) -> None:
        """What holds wherever the file cannot say otherwise, as a derivation of nothing."""
        _check((field,))
        self.derivations.append(Derivation(self, (field,), "derive", source, lambda _run: value))

    def takes(self, field: Any, other: Any, source: str = "") -> None:
        """A field that has the value of another, where the file does not say its own."""
        self.derive(field, source=source)(lambda run: run[other])

    def weakens(self, other: Any, *fields: Any) -> None:
        """Fields that are no better known than another, which never has a value: what an override reads and does not
        answer makes its field as weak."""
        self.override(*fields)(lambda run: run[other])

    def said(
        self, *fields: Any, if_any: bool = False, unsaid: Unsaid | None = None
    ) -> Callable[[Reader], Reader]:
        """Declare what the framework makes of the *statements* about fields (of all fields where
        none is named): which of them count, and what they stand for. The function gets the cells,
        the field and what the files say of it, and returns what counts as said. One that leaves it at
        that where nothing is said need not be asked then: ``if_any``, or not but of the fields that ``unsaid`` finds."""
        _check(fields)
        found = _no_fields if if_any else unsaid

        def decorator(reader: Reader) -> Reader:
            self.readers.append(_Reading(frozenset(fields) or None, reader, found))
            return reader

        return decorator

    def requires(self, bounds: Callable[[Cells], Iterable[Bounds]]) -> Callable[[Cells], Any]:
        """Declare between which releases libraries must be, by what a framework requires."""
        self.bounds.append(bounds)
        return bounds

    def brings(self, bounds: Callable[[Cells], Iterable[Bounds]]) -> Callable[[Cells], Any]:
        """Declare the same of what the newest release of a framework requires, which is taken where nobody pins the
        framework: likely, and never certain."""
        self.likely_bounds.append(bounds)
        return bounds

    # -- inverses --------------------------------------------------------------------

    def written(self, *fields: Any) -> Callable[[Writer], Writer]:
        """Declare how a wish for fields is said, where what is derived stands elsewhere."""
        _check(fields)

        def decorator(writer: Writer) -> Writer:
            for field in fields:
                self.writers[field] = writer
            return writer

        return decorator

    def cannot_say(self, reason: str, *fields: Any) -> None:
        """The framework has no way to say these."""
        _check(fields)

        def refuse(_wanted: Any, _run: Cells, _wishes: Wishes) -> Mapping[Any, Any]:
            raise CannotEdit(reason)

        for field in fields:
            self.writers[field] = refuse

    def follows(self, *fields: Any) -> None:
        """Fields that have no key of their own and follow from what else is wished for."""
        _check(fields)
        for field in fields:
            self.writers[field] = lambda _wanted, _run, _wishes: {}

    # -- asking ----------------------------------------------------------------------

    @cached_property
    def everything(self) -> tuple[Meaning, ...]:
        """This meaning and those it includes, each once, its own first."""
        below = (meaning for included in self.included for meaning in included.everything)
        return tuple(dict.fromkeys((self, *below)))

    def chain(self, field: Any) -> tuple[Derivation, ...]:
        """The derivations of a field in the order in which they are asked, overrides left out."""
        chains = self._chains
        return (self._compiled() if chains is None else chains).get(field, ())

    def overrides(self, field: Any) -> tuple[Derivation, ...]:
        """What the framework makes of a field whatever it was, each upon the one before."""
        if self._chains is None:
            self._compiled()
        return self._overrides.get(field, ())

    def shared(self, field: Any) -> tuple[Derivation, ...]:
        """The derivations that give a field and others."""
        if self._chains is None:
            self._compiled()
        return self._shared.get(field, ())

    def readers_of(self, field: Any) -> tuple[Reader, ...]:
        """What decides on the statements about a field; the included meanings' come first."""
        return self._about(field)[0]

    def unsaid_of(self, field: Any) -> tuple[Unsaid, ...] | None:
        """What finds whether anything makes something of it that nothing is said of a field; ``None`` where a reader has to
        be asked. What one of them makes of silence the others are asked about."""
        return self._about(field)[1]

    def _about(self, field: Any) -> tuple[tuple[Reader, ...], tuple[Unsaid, ...] | None]:
        """Readers, and what finds for them: the same of all fields that no reader names."""
        named = field if field in self._named else None
        found = self._read.get(named)
        if found is None:
            every = (each for meaning in reversed(self.everything) for each in meaning.readers)
            read = [each for each in every if each.fields is None or named in each.fields]
            finders = {each.unsaid for each in read} - {_no_fields}
            known = tuple(each for each in finders if each is not None)
            readers = tuple(each.reader for each in read)
            found = self._read[named] = (readers, known if len(known) == len(finders) else None)
        return found

    @cached_property
    def _named(self) -> frozenset[Any]:
        """The fields that a reader is about by their names."""
        read = (each.fields or () for meaning in self.everything for each in meaning.readers)
        return frozenset[Any]().union(*read)

    def writer(self, field: Any) -> Writer | None:
        """How a wish for a field is said, if not by a row."""
        return next((m.writers[field] for m in self.everything if field in m.writers), None)

    @cached_property
    def fields(self) -> frozenset[Any]:
        """Every field that is derived, or of which the statements are read otherwise than they stand."""
        self._compiled()
        assert self._chains is not None
        return self._named.union(self._chains, self._overrides)

    def _compiled(self) -> dict[Any, tuple[Derivation, ...]]:
        if self._chains is None:
            chains: dict[Any, list[Derivation]] = {}
            overrides: dict[Any, list[Derivation]] = {}
            everything = self.everything
            for meaning in everything:
                for derivation in meaning.derivations:
                    if derivation.rank != "override":
                        for field in derivation.fields:
                            chains.setdefault(field, []).append(derivation)
            for meaning in reversed(everything):
                for derivation in meaning.derivations:
                    if derivation.rank == "override":
                        for field in derivation.fields:
                            overrides.setdefault(field, []).append(derivation)
            self._chains = {
                field: tuple(sorted(found, key=lambda d: _ORDER[d.rank]))
                for field, found in chains.items()
            }
            self._overrides = {field: tuple(found) for field, found in overrides.items()}
            self._shared = {
                field: shared
                for field in chains.keys() | overrides.keys()
                if (
                    shared := tuple(
                        each
                        for each in (*chains.get(field, ()), *overrides.get(field, ()))
                        if len(each.fields) > 1
                    )
                )
            }
        return self._chains


_ORDER = {"derive": 0, "fact": 2, "default": 3, "assume": 4}
ROW_DEFAULTS = 1
"""Where the defaults of the tables' rows stand among the ranks."""


def rank_of(derivation: Derivation) -> int:
    """The place of a derivation in the order in which a field's are asked."""
    return _ORDER[derivation.rank]


def _check(fields: Iterable[Any]) -> None:
    from oomlint.plan.fields import Field

    for field in fields:
        if not isinstance(field, Field):
            raise TypeError(f"{field!r} is no field: see oomlint.plan.fields")


def expressed(wishes: Wishes, run: Cells) -> dict[Any, Any]:
    """Canonical wishes in a framework's own fields.

    Raises:
        CannotEdit: the framework has no way to say one, with the reason.
    """
    own = dict(wishes)
    for field, wanted in wishes.items():
        writer = run.meaning.writer(field)
        if writer is None:
            continue
        said = writer(wanted, run, wishes)
        if field not in said:
            own.pop(field, None)
        own.update(said)
    return own


def writable(own: dict[Any, Any], run: Cells, framework: str) -> dict[Any, Any]:
    """The fields as they are, if the tables of a run's files can write each.

    Raises:
        CannotEdit: no file has a key for one.
    """
    for field in own:
        if run.block_with(field) is None:
            raise CannotEdit(f"{framework} has no key for {field}")
    return own
