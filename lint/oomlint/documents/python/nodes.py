"""Nodes of what a Python script says: values with the options and files that they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from oomlint.documents.base import UNKNOWN, Document, Entry, Mapping, Node, Scalar, Sequence
from oomlint.documents.scalars import Profile, resolve
from oomlint.documents.text import Span

if TYPE_CHECKING:
    import ast


# omegaconf 2.3 (_utils.py, get_value_kind): a value that is mandatory, and not there yet.
_MISSING: Final = "???"


class ConfigFile(Struct, frozen=True, eq=False):
    """A file that the script loads."""

    document: Document
    root: Node
    profile: Profile
    is_command: bool = False
    """Whether it is no file but what the command says that starts the script, or what nobody knows."""

    @property
    def path(self) -> str:
        return self.document.source.path


class Filed(Struct, frozen=True, eq=False):
    """A value of a config file, and where it stands there; ``under`` is the value at the same place of
    a file that this one is laid over. ``copied`` tells a copy of a section, whose own items are no longer those of the
    section, though what they hold is."""

    file: ConfigFile
    node: Node
    path: tuple[str, ...] = ()
    entry: Entry | None = None
    under: Filed | None = None
    copied: str = ""

    @property
    def object(self) -> str:
        """What changes of its items are noted for."""
        return self.file.path + self.copied

    @property
    def plain(self) -> Any:
        """The value as its loader makes it; ``UNKNOWN`` of what only running tells."""
        return loaded_value(self.node, self.file.profile)


def loaded_value(node: Node, profile: Profile) -> Any:
    """What a loader makes of a node; ``UNKNOWN`` of what only running tells."""
    if isinstance(node, Scalar):
        if isinstance(node.value, str) and ("${" in node.value or "{{" in node.value):
            return UNKNOWN
        if node.value == _MISSING and profile == "omegaconf":
            return UNKNOWN
        return resolve(node.value, profile) if node.plain else node.value
    if isinstance(node, Sequence):
        items = [loaded_value(item, profile) for item in node.items]
        return UNKNOWN if any(item is UNKNOWN for item in items) else items
    return UNKNOWN


class UnwrittenEntry(Entry, frozen=True, eq=False):
    """An entry that stands in no file: a key above all that a file says, or a word of the command."""


class PythonScalar(Scalar, frozen=True, eq=False):
    """A value that is the default of a command-line option, which a launch line may override; or
    one of two, between which the option decides, or :data:`.base.RANKS`."""

    option: str = ""
    either: tuple[Node, Node] | None = None
    """What it is where the option is on, and where it is off."""
    compared: tuple[str, Any] | None = None
    """How the option decides where it is no switch: an operator, and what it is compared with."""
    unset: Any = UNKNOWN
    """Of an option that decides: what it is where the command line does not say."""
    computed: tuple[type[ast.operator], Node, Node] | None = None
    """Of arithmetic on options: what is done to what. ``value`` is what comes of their defaults."""


class FiledScalar(PythonScalar, frozen=True, eq=False):
    """A value that the script takes from a config file; ``span`` is where it takes it."""

    filed: Filed | None = None


class FiledSequence(Sequence, frozen=True, eq=False):
    """A list that the script takes from a config file."""

    filed: Filed | None = None


Guard: TypeAlias = tuple[str, bool]
"""A switch of the command line, and whether it must be on."""
Arm: TypeAlias = tuple[int, bool]
"""The line of an ``if``, and whether its test must hold."""


class PythonMapping(Mapping, frozen=True, eq=False):
    """Arguments of a call, or the entries of a dict; ``span`` is the whole expression."""

    kind: str = "call"
    guards: tuple[Guard, ...] = ()
    """Of a call: the switches that decide whether it is reached."""
    arms: tuple[Arm, ...] = ()
    """Of a call: the branches that it stands in, the outermost first."""
    filed: Filed | None = None
    """The section of a config file that this is, whole and unchanged."""
    sections: tuple[Filed, ...] = ()
    """Of a call: the sections of config files that it unpacks (``**cfg["training"]``)."""


class PythonEntry(Entry, frozen=True, eq=False):
    """``owner`` is the call or dict in which the entry is written."""

    owner: Span | None = None
    owner_kind: str = "call"
    locked: str | None = None
    if_known: bool = False
    """Whether it is given only to a callee that knows the name."""


# What a node says that may be of another language, or of none of these kinds.


def option_of(node: Node | None) -> str:
    """The option that a value is the default of, or that decides on it; nothing of any other."""
    return node.option if isinstance(node, PythonScalar) else ""


def is_of_options(node: Node) -> bool:
    """Whether a value is an option's, or comes of arithmetic on options."""
    return isinstance(node, PythonScalar) and (bool(node.option) or node.computed is not None)


def is_if_known(entry: Entry) -> bool:
    """Whether an argument is left out where the callee does not know it."""
    return isinstance(entry, PythonEntry) and entry.if_known


def filed_of(node: Node) -> Filed | None:
    """The value of a config file that a node is."""
    return node.filed if isinstance(node, (FiledScalar, FiledSequence, PythonMapping)) else None


def guards_of(mapping: Mapping) -> tuple[Guard, ...]:
    """The switches that decide whether a call with these arguments is reached."""
    return mapping.guards if isinstance(mapping, PythonMapping) else ()


def arms_of(mapping: Mapping) -> tuple[Arm, ...]:
    """The branches that a call with these arguments stands in, the outermost first."""
    return mapping.arms if isinstance(mapping, PythonMapping) else ()
