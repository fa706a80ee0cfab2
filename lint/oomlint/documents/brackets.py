"""Adding to and deleting from comma-separated lists in brackets (flow YAML, JSON) as splices.

Works on the text alone: a list is the offsets of its brackets and the spans of its parts.
Layout is kept: parts that stand on lines of their own get and give up whole lines, others
share their line; a trailing comma stays or stays away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

from oomlint.documents.text import Source, Span
from oomlint.errors import CannotEdit

Splice: TypeAlias = tuple[int, int, str]
"""Start, end and replacement."""


class Brackets(Struct, frozen=True):
    """``opening`` and ``closing`` are the offsets of the brackets themselves.

    ``skip`` maps an offset to that of the next token: past blanks, line breaks, comments.
    """

    source: Source
    opening: int
    closing: int
    parts: Sequence[Span]
    skip: Callable[[int], int]

    def insert(self, piece: str, after: int) -> list[Splice]:
        """Add ``piece`` behind part number ``after``; the list must not be empty."""
        part = self.parts[after]
        comma = self._comma_after(part.end)
        if comma is None and self.skip(part.end) != self.closing:
            raise CannotEdit("the entries here are not separated by commas")
        separator = " ," if self.source.text[part.end - 1] == ":" else ","
        if not self._alone_before(part.start):
            return [(part.end, part.end, f"{separator} {piece}")]
        line = self.source.newline + self.source.indent(part.start)
        if comma is not None:
            end = self.source.line_end(comma)
            if self.skip(comma + 1) < end:
                return [(comma + 1, comma + 1, f" {piece},")]
            # Before the comma, which goes if what follows is deleted at the same time.
            if not self.source.text[comma + 1 : end].strip() and comma <= self.source.line_end(
                part.end
            ):
                return [(comma, comma, f",{line}{piece}")]
            return [(end, end, f"{line}{piece},")]
        end = self.source.line_end(part.end)
        if self.closing < end:
            return [(part.end, part.end, f"{separator}{line}{piece}")]
        return [(part.end, end, separator + self.source.text[part.end : end] + line + piece)]

    def fill(self, inner: str) -> list[Splice]:
        """Replace the blank inside of an empty list."""
        between = self.source.text[self.opening + 1 : self.closing]
        if between.strip():
            raise CannotEdit("there is a comment between the brackets")
        return [(self.opening + 1, self.closing, inner)]

    def delete(self, index: int) -> list[Splice]:
        """Drop a part and its comma; the brackets stay, empty after the last part."""
        if len(self.parts) == 1:
            return [(self.opening + 1, self.closing, "")]
        text, part = self.source.text, self.parts[index]
        comma = self._comma_after(part.end)
        before = self._comma_after(self.parts[index - 1].end) if index else None
        if comma is None and (self.skip(part.end) != self.closing or before is None):
            raise CannotEdit("the entries here are not separated by commas")
        last = part.end if comma is None else comma + 1
        end = self.source.line_end(last)
        alone_after = self.skip(last) >= end
        if self._alone_before(part.start) and alone_after:
            following = self.source.next_line(end)
            splices = [(self.source.line_start(part.start), following, "")]
            if comma is None and before is not None:
                splices.insert(0, (before, before + 1, ""))
            return splices
        if comma is not None:
            start = part.start
            if alone_after or self.skip(last) == self.closing:
                start = len(text[:start].rstrip(" \t"))
            else:
                while text[last] in " \t":
                    last += 1
            return [(start, last, "")]
        assert before is not None
        if not text[before + 1 : part.start].strip():
            return [(before, part.end, "")]
        return [(before, before + 1, ""), (part.start, part.end, "")]

    def _comma_after(self, offset: int) -> int | None:
        following = self.skip(offset)
        return following if self.source.text[following : following + 1] == "," else None

    def _alone_before(self, offset: int) -> bool:
        return not self.source.text[self.source.line_start(offset) : offset].strip(" \t")
