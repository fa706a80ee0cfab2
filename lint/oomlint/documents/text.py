"""Text of a file, where things stand in it, and edits as splices of that text.

Offsets everywhere in oomlint are code points into the text *without* its byte order
mark. Lines break at ``\\n``, ``\\r\\n`` and ``\\r`` only: ``str.splitlines`` also breaks at
form feeds and U+2028, which no editor does.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise

from msgspec import Struct

from oomlint.errors import CannotEdit, EncodingError

_BOM = b"\xef\xbb\xbf"
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_NO_BREAK = re.compile(r"[^\r\n]")


class Span(Struct, frozen=True, order=True):
    """Half-open range of code points ``[start, end)`` in a file's text."""

    start: int
    end: int

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.end


class Location(Struct, frozen=True):
    """A span in a named file."""

    path: str
    span: Span


class Edit(Struct, frozen=True, order=True):
    """Replace ``[start, end)`` of the file at ``path`` by ``replacement``.

    ``creates``: the file is not there yet, and ``replacement`` is all of its text.
    """

    path: str
    start: int
    end: int
    replacement: str
    creates: bool = False


class Source(Struct, frozen=True, dict=True):
    """One file as read: its bytes are never lost, its text never normalised."""

    path: str
    text: str
    has_bom: bool = False

    @classmethod
    def from_bytes(cls, path: str, data: bytes) -> Source:
        """Decode strictly as UTF-8.

        Raises:
            EncodingError: the bytes are not UTF-8; carries the line of the first bad byte.
        """
        has_bom = data.startswith(_BOM)
        body = data[len(_BOM) :] if has_bom else data
        try:
            return cls(path, body.decode("utf-8"), has_bom)
        except UnicodeDecodeError as error:
            line = body.count(b"\n", 0, error.start) + 1
            raise EncodingError(path, "not UTF-8 text; save the file as UTF-8", line=line) from None

    def to_bytes(self) -> bytes:
        return (_BOM if self.has_bom else b"") + self.text.encode("utf-8")

    @cached_property
    def line_starts(self) -> tuple[int, ...]:
        return (0, *(match.end() for match in _LINE_BREAK.finditer(self.text)))

    @cached_property
    def blank(self) -> str:
        """A text as long, with nothing in it but the line breaks."""
        return _NO_BREAK.sub(" ", self.text)

    @cached_property
    def newline(self) -> str:
        """The line ending that the file uses first; ``\\n`` where it has none."""
        match = _LINE_BREAK.search(self.text)
        return match.group() if match else "\n"

    def position(self, offset: int) -> tuple[int, int]:
        """1-based line and column (code points) of an offset."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line_span(self, line: int) -> Span:
        """The span of a 1-based line, without its line break."""
        start = self.line_starts[line - 1]
        end = self.line_starts[line] if line < len(self.line_starts) else len(self.text)
        return Span(start, start + len(self.text[start:end].rstrip("\r\n")))

    def line_start(self, offset: int) -> int:
        """Where the line begins in which an offset lies."""
        return self.line_starts[self.position(offset)[0] - 1]

    def line_end(self, offset: int) -> int:
        """Where it ends, before its line break."""
        return self.line_span(self.position(offset)[0]).end

    def next_line(self, offset: int) -> int:
        """Where the next one begins; the end of the text behind the last."""
        line = self.position(offset)[0]
        return self.line_starts[line] if line < len(self.line_starts) else len(self.text)

    def indent(self, offset: int) -> str:
        """What stands on the line before an offset."""
        return self.text[self.line_start(offset) : offset]

    def whole_lines(self, span: Span) -> Span | None:
        """The lines that a span takes up, breaks included; ``None`` if it shares one."""
        first, last = self.position(span.start)[0], self.position(span.end)[0]
        start = self.line_starts[first - 1]
        end = self.line_starts[last] if last < len(self.line_starts) else len(self.text)
        shared = self.text[start : span.start] + self.text[span.end : end]
        return None if shared.strip() else Span(start, end)

    def edited(self, edits: Iterable[Edit]) -> Source:
        """The source after ``edits``; they must not overlap (see :func:`overlapping`)."""
        return Source(self.path, apply_edits(self.text, edits), self.has_bom)


def overlapping(first: Edit, second: Edit) -> bool:
    """Whether two edits of one file cannot both be applied as they stand.

    Two insertions at one offset overlap too: their order would be arbitrary.
    """
    if first.path != second.path:
        return False
    if first.start == second.start:
        return True
    return first.start < second.end and second.start < first.end


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Splice non-overlapping edits of one file into its text."""
    pieces: list[str] = []
    cursor = 0
    for edit in sorted(edits):
        if edit.start < cursor:
            raise ValueError(f"overlapping edits at offset {edit.start}")
        pieces += (text[cursor : edit.start], edit.replacement)
        cursor = edit.end
    pieces.append(text[cursor:])
    return "".join(pieces)


def together(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """Edits in order, each once; insertions at one offset as one, in the order they were made.

    Raises:
        CannotEdit: two of them change the same text.
    """
    insertions: dict[tuple[str, int], str] = {}
    replacements: set[Edit] = set()
    for edit in edits:
        if edit.start == edit.end and not edit.creates:
            at = (edit.path, edit.start)
            insertions[at] = insertions.get(at, "") + edit.replacement
        else:
            replacements.add(edit)
    inserted = (Edit(path, offset, offset, text) for (path, offset), text in insertions.items())
    ordered = tuple(sorted((*replacements, *inserted)))
    for first, second in pairwise(ordered):
        if first.path == second.path and second.start < first.end:
            raise CannotEdit("its parts change the same text")
    return ordered


def by_path(edits: Sequence[Edit]) -> dict[str, list[Edit]]:
    """The edits grouped by the file that they change."""
    grouped: dict[str, list[Edit]] = {}
    for edit in edits:
        grouped.setdefault(edit.path, []).append(edit)
    return grouped
