"""Shell words after expansion, each character still tied to where it stands in the file.

A word of a command may come from its own text, from a variable's definition, from an
array's element or from a here-document. :class:`Chunk` remembers the whole way: one
:class:`Expansion` for each text that the characters passed through, the command first and the
place where they are really written last. Edits choose the step at which to splice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from oomlint.documents.text import Span


class Container(Struct, frozen=True, eq=False):
    """A stretch of text that holds shell words: a command, an array, a variable's value.

    ``forbidden`` are characters that cannot be written in it because of quotes around it.
    """

    kind: Literal["command", "array", "value", "heredoc"]
    span: Span
    shared: bool = False
    """Defines a variable that is read in more than one place, or that is exported."""
    forbidden: str = ""
    quoted: bool = False
    file: str = ""
    """The other script that an array comes from, where this one sources it."""
    sourced: bool = False
    """Stands for the place that takes in another script, whose value it is."""


class Expansion(Struct, frozen=True, eq=False):
    """``span`` is the characters' own place in ``container``, or that of the expansion that
    brings them; ``word`` is the word around it, ``quote`` the quotes around ``span``."""

    container: Container
    span: Span
    word: Span
    quote: str = ""


class Chunk(Struct, frozen=True, eq=False):
    """Characters with one origin. ``text`` is ``None`` where nobody can know it."""

    text: str | None
    path: tuple[Expansion, ...]
    splits: bool = False
    """On its way to the command the text passes an unquoted expansion: blanks would split it."""
    many: bool = False
    """Unknown, and it may stand for no word at all or for several."""
    absent: bool = False
    """An argument of the script, which is read as if it was started without any."""
    asks: str = ""
    """Unknown, but the answer to this question about the machine (``documents.shell.machine``)."""
    proposed: bool = False
    """No line of the script sets it: a comment says what to set it to."""

    def part(self, start: int, end: int) -> Chunk:
        """The characters ``[start, end)`` of a chunk that is written verbatim."""
        *outer, last = self.path
        assert self.text is not None
        if len(self.text) == last.span.end - last.span.start:
            span = Span(last.span.start + start, last.span.start + end)
        else:
            span = last.span
        return replace(self, text=self.text[start:end], path=(*outer, replace(last, span=span)))


Field = tuple[Chunk, ...]


def field_text(field: Iterable[Chunk]) -> str | None:
    """The word's text, or ``None`` if a part of it is unknown."""
    pieces: list[str] = []
    for chunk in field:
        if chunk.text is None:
            return None
        pieces.append(chunk.text)
    return "".join(pieces)


def field_question(field: Field) -> str:
    """The question about the machine that a word comes to; nothing for other words."""
    return field[0].asks if len(field) == 1 else ""


def file_of(field: Field) -> str:
    """The other script that a word comes from, through an array; nothing for words of this one."""
    steps = (step for chunk in field for step in chunk.path)
    return next((step.container.file for step in steps if step.container.file), "")


def from_character(field: Field, start: int) -> Field:
    """What is left of a word from character ``start`` on."""
    cursor = 0
    for index, chunk in enumerate(field):
        if cursor == start:
            return field[index:]
        length = len(chunk.text or "")
        if chunk.text is not None and start < cursor + length:
            return (chunk.part(start - cursor, length), *field[index + 1 :])
        cursor += length
    return ()


class Variable(Struct, frozen=True, eq=False):
    """What a variable holds: ``chunks`` of a plain one, ``fields`` of an array, ``items`` of an associative one, each a
    plain variable, or none of these."""

    name: str
    key_span: Span
    span: Span
    chunks: tuple[Chunk, ...] | None = None
    fields: tuple[Field, ...] | None = None
    items: Mapping[str, Variable] | None = None


def held_text(binding: Variable) -> str | None:
    """What a plain variable holds, nothing where it took a missing argument."""
    if binding.chunks is None:
        return None
    absent = bool(binding.chunks) and all(chunk.absent for chunk in binding.chunks)
    return "" if absent else field_text(binding.chunks)
