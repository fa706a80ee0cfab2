"""Nodes of what a shell is told: values and options, with what is needed to write others in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.documents import base
from oomlint.documents.base import Entry, Mapping, Node, Scalar

if TYPE_CHECKING:
    from oomlint.documents.shell.words import Container


class ShellScalar(Scalar, frozen=True, eq=False):
    """A value in a script, with what is needed to write another one in its place."""

    quote: str = ""
    """Quotes around ``span`` that are not part of it."""
    splits: bool = False
    """A blank in the value would make two words of it."""
    forbidden: str = ""
    style: str = "flag"
    order: int = -1
    """Rank among the words of the command, where it is one."""
    asks: str = ""
    """Of an unknown value: the question about the machine that it answers (``documents.shell.machine``)."""
    base: str = ""
    """Of a word that is a path: its last part, which is known where the folder may not be (``$VENV/bin/python``)."""
    tail: str = ""
    """Of a word that is a path whose first folders are not known, the rest: ``src/train.py`` of ``$HOME/src/train.py``."""


class ShellSequence(base.Sequence, frozen=True, eq=False):
    container: Container | None = None


class ShellEntry(Entry, frozen=True, eq=False):
    """``span`` covers the whole words that the entry is made of."""

    container: Container | None = None
    stuck: str | None = None
    """Why the words cannot be removed or followed by others, or ``None``."""
    order: int = -1
    """Rank of its first word among those of the command."""
    file: str = ""
    """The other script whose array it comes from, where this one sources that."""
    lead: str = ""
    """What stands ahead of the key in its word: ``+`` or ``++``, Hydra's mark of one that is added."""


class ShellMapping(Mapping, frozen=True, eq=False):
    """``style`` says how entries are written; the offsets say where new ones go."""

    style: str = "flag"
    container: Container | None = None
    words_end: int = 0
    """End of the last word of the command in its own text."""
    prefix_at: int = 0
    """Where an environment assignment goes."""
    prefix_gap: str = " "


def order_of(word: Node | Entry) -> int:
    """The rank of a word, or of an option's first, among those of its command; -1 of what is none."""
    return word.order if isinstance(word, (ShellScalar, ShellEntry)) else -1
