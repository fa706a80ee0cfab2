"""What every document offers, whatever its language: nodes with spans, and edits.

A document is a tree of mappings, sequences and scalars. YAML, JSON and TOML have one
tree a document; a Python file has one mapping per call of interest (its keyword
arguments), a shell script one mapping per command (its flags). Dialects read nodes and
ask the document for edits; they never see syntax.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping as MappingABC
from typing import Any, Final, Protocol, TypeAlias

from msgspec import Struct, field

from oomlint.documents.text import Edit, Location, Source, Span


class _Unknown:
    """The value of an expression that cannot be known without running user code."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        raise TypeError("UNKNOWN is neither true nor false; test with `is UNKNOWN`")


UNKNOWN: Final = _Unknown()


RANKS: Final = "$WORLD_SIZE"
"""In place of an option that decides: whether the program is started as several processes."""


class Name(Struct, frozen=True):
    """A dotted name standing for itself in Python code, such as ``torch.bfloat16``."""

    dotted: str

    def __str__(self) -> str:
        return self.dotted


Literal: TypeAlias = Any
"""A plain Python value that every document knows how to write: None, bool, int, float, str,
and lists and dicts of these."""


class Scalar(Struct, frozen=True, eq=False):
    """One value as written.

    ``value`` is what the text says to the *document's* language; for plain YAML scalars,
    whose meaning depends on who loads the file, it is the text itself and ``plain`` is
    true: dialects resolve it with their loader's rules. ``span`` is where the value
    stands, even if it was reached through a variable; ``via`` is then the place that
    refers to it. ``locked`` says why the value must not be edited in place (reached by
    alias, templated, shared), or is ``None``.
    """

    span: Span
    value: Any
    plain: bool = False
    via: Span | None = None
    locked: str | None = None


class Sequence(Struct, frozen=True, eq=False):
    span: Span
    items: tuple[Node, ...]
    locked: str | None = None


class Entry(Struct, frozen=True, eq=False):
    """One ``key: value`` (or ``key=value``, or ``--key value``) of a mapping."""

    key: str
    key_span: Span
    value: Node
    span: Span


class RenamedEntry(Entry, frozen=True, eq=False):
    """An entry that stands for another key than the file has: ``model.name`` for the argument of a call."""

    written: str = ""


class Mapping(Struct, frozen=True, eq=False):
    """Entries in file order; of duplicate keys ``entries`` holds the one that wins."""

    span: Span
    entries: MappingABC[str, Entry]
    duplicates: tuple[Entry, ...] = ()
    locked: str | None = None
    open_ended: bool = False
    """More entries exist than can be seen (``**kwargs``, ``"$@"``): absence proves nothing."""

    def section(self, *path: str) -> Mapping | None:
        """The mapping below these keys, one within the other; ``None`` where there is none."""
        found: Mapping = self
        for key in path:
            entry = found.entries.get(key)
            if entry is None or not isinstance(entry.value, Mapping):
                return None
            found = entry.value
        return found

    def said(self, *path: str) -> Any:
        """The value below these keys, as the document's language has it; ``None`` where there is no scalar."""
        section = self.section(*path[:-1])
        entry = None if section is None else section.entries.get(path[-1])
        return entry.value.value if entry is not None and isinstance(entry.value, Scalar) else None


Node: TypeAlias = Scalar | Sequence | Mapping


class Document(Protocol):
    """A parsed file. Edit builders raise :class:`oomlint.errors.CannotEdit` with a reason."""

    @property
    def source(self) -> Source: ...

    def set_value(self, node: Node, value: Literal) -> list[Edit]:
        """Replace a value, keeping quotes, anchors, comments and layout."""

    def add_entry(
        self, mapping: Mapping, key: str, value: Literal, *, after: str | None = None
    ) -> list[Edit]:
        """Insert ``key`` beside its siblings: after the entry ``after``, else at the end."""

    def remove_entry(self, mapping: Mapping, key: str) -> list[Edit]:
        """Delete an entry with the line(s) that it alone occupies."""

    def rename_entry(self, mapping: Mapping, key: str, new_key: str) -> list[Edit]:
        """Change the key of an entry and nothing else."""

    def append_item(self, sequence: Sequence, value: Literal) -> list[Edit]:
        """Add a value at the end of a sequence."""


def roots(document: Document) -> Iterator[Mapping]:
    """The mappings that a file of data is made of: one each document of a YAML stream; none of code."""
    nodes: tuple[Node, ...] = getattr(document, "roots", ())
    return (node for node in nodes if isinstance(node, Mapping))


class Fact(Struct, frozen=True, eq=False):
    """Something that a reader saw in a script and that is no key: for rules on habits.

    ``kind`` is a kebab-case name from a reader's list; ``mend`` are ready edits where the
    document itself knows the cure (exporting a variable, say).
    """

    kind: str
    location: Location
    detail: MappingABC[str, Any] = field(default_factory=dict)
    mend: tuple[Edit, ...] = ()


class Call(Struct, frozen=True, eq=False):
    """A Python call worth reading: ``callee`` as written (``TrainingArguments``,
    ``AutoModelForCausalLM.from_pretrained``), its arguments as a mapping. Positional
    arguments have the keys ``"0"``, ``"1"`` …
    """

    callee: str
    arguments: Mapping
    span: Span
    order: int
    """Rank in the order in which module-level code runs the calls, as far as that is plain."""


class Command(Struct, frozen=True, eq=False):
    """A shell command: environment, words and flags.

    ``words`` are program and positional arguments as far as they are plain; ``flags`` maps
    option names (without dashes, ``-`` folded to ``_``, dots kept) to their values, a bare
    flag to ``True``. ``assignments`` are ``key=value`` words after the program (Hydra,
    LLaMA-Factory, torchtune overrides).
    ``environment`` holds what the command really sees: its own prefix assignments and
    what was exported before. ``folder`` is where it runs, seen from where the script starts, as far
    as each ``cd`` before it tells.
    """

    span: Span
    words: tuple[Scalar, ...]
    flags: Mapping
    assignments: Mapping
    environment: Mapping
    folder: str = ""
