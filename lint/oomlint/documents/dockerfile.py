"""Dockerfiles: what an image starts, in which environment.

Meanings from the Dockerfile reference: ``CMD`` and ``ENTRYPOINT`` as a shell's line or as a JSON
list of words, ``ENV`` and ``ARG``. What ``RUN`` does happens while the image is built.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator

from msgspec import Struct

from oomlint.documents.excerpt import (
    MOST_CHARACTERS,
    Builder,
    Excerpt,
    ExcerptShell,
    lines_of,
    shell_in,
)
from oomlint.documents.shell.names import SHELLS
from oomlint.documents.text import Edit, Source, Span
from oomlint.errors import CannotEdit, ParseError

_INSTRUCTION = re.compile(r"[ \t]*(FROM|ENV|ARG|CMD|ENTRYPOINT)[ \t]+", re.IGNORECASE)
_COMMENT = re.compile(r"[ \t]*#")
_CONTINUED = re.compile(r"\\[ \t]*\r?\n?$")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PAIR = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_SAFE = re.compile(r"[\w@%+=:,./\-]+", re.ASCII)
_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\r\n\\]*")


class _Word(Struct, frozen=True):
    """A JSON string: its text, and ``span`` with its quotes."""

    text: str
    span: Span


def parse_dockerfile(source: Source) -> ExcerptShell | None:
    """Read a Dockerfile; ``None`` where its image starts nothing.

    Raises:
        ParseError: it is too large, or a script in it is nested too deeply to be read.
    """
    if len(source.text) > MOST_CHARACTERS:
        raise ParseError(source.path, "too large for a script (over a million characters)")
    reader = _Reader(source, Builder(source))
    for span in _instructions(source.text):
        reader.read(span)
    reader.start()
    return shell_in(reader.builder.finish()) if reader.commands else None


class _Reader(Struct):
    source: Source
    builder: Builder
    entrypoint: Span | None = None
    command: Span | None = None
    commands: int = 0

    def read(self, span: Span) -> None:
        """One instruction; the last ``ENTRYPOINT`` and ``CMD`` of a stage count."""
        match = _INSTRUCTION.match(self.source.text, span.start, span.end)
        if match is None:
            return
        rest = Span(match.end(), span.start + len(self.source.text[span.start : span.end].rstrip()))
        word = match[1].upper()
        if word == "FROM":
            self.start()
        elif word == "ENTRYPOINT":
            self.entrypoint = rest
        elif word == "CMD":
            self.command = rest
        elif rest.start < rest.end:
            self._variables(rest, "export " if word == "ENV" else "")

    def start(self) -> None:
        """What a stage starts, at its end: words of ``CMD`` follow those of ``ENTRYPOINT``."""
        spans = [s for s in (self.entrypoint, self.command) if s is not None]
        self.entrypoint = self.command = None
        lists = [_words(self.source.text, span) for span in spans]
        if not spans or (spans != sorted(spans, key=lambda s: s.start) and all(lists)):
            return
        self.commands += 1
        head = lists[0]
        if head is None:
            self._line(spans[0])
        else:
            more = lists[1] if len(lists) > 1 else None
            self._list([*head, *(more or [])])
        self.builder.add("\n", spans[-1].end if all(lists) else spans[0].end)

    def _line(self, span: Span) -> None:
        before = self.builder.length
        for line in lines_of(self.source.text, span.start, span.end):
            if not _COMMENT.match(self.source.text, line.start, line.end):
                self.builder.copy(line.start, line.end)
        self.builder.part(before, _write_line)

    def _list(self, words: list[_Word]) -> None:
        texts = [word.text for word in words]
        if len(texts) > 2 and texts[0].rpartition("/")[2] in SHELLS and texts[1].endswith("c"):
            before = self.builder.length
            self.builder.json_string(words[2].span.start + 1, words[2].span.end - 1)
            self.builder.part(before, _write_script)
            return
        before = self.builder.length
        for word in words:
            start, end = word.span.start + 1, word.span.end - 1
            if _SAFE.fullmatch(word.text):
                self.builder.json_string(start, end)
            elif "'" in word.text:
                self.builder.spell(shlex.quote(word.text), start, end)
            else:
                self.builder.add("'", start)
                self.builder.json_string(start, end)
                self.builder.add("'", end)
            self.builder.add(" ", end)
        self.builder.part(before, _write_words)

    def _variables(self, span: Span, lead: str) -> None:
        """``ENV A=1 B=2`` or ``ENV A 1``."""
        text = self.source.text
        before = self.builder.length
        if _PAIR.match(text, span.start, span.end):
            self.builder.add(lead, span.start)
            before = self.builder.length
            for line in lines_of(text, span.start, span.end):
                if not _COMMENT.match(text, line.start, line.end):
                    self.builder.copy(line.start, line.end)
            self.builder.part(before, _write_line)
        else:
            name = _NAME.match(text, span.start, span.end)
            if name is None or name.end() == span.end:
                return
            start = (
                name.end()
                + len(text[name.end() : span.end])
                - len(text[name.end() : span.end].lstrip())
            )
            quoted = text[start : span.end][:1] in ("'", '"')
            self.builder.add(f"{lead}{name.group()}=" + ("" if quoted else '"'), start)
            before = self.builder.length
            self.builder.copy(start, span.end)
            self.builder.part(before, _write_line)
            self.builder.add("" if quoted else '"', span.end)
        self.builder.add("\n", span.end)


def _instructions(text: str) -> Iterator[Span]:
    """Instructions with the lines that a backslash joins to them; comments between are skipped."""
    start: int | None = None
    for line in lines_of(text, 0, len(text)):
        if _COMMENT.match(text, line.start, line.end):
            continue
        start = line.start if start is None else start
        if not _CONTINUED.search(text[line.start : line.end]):
            yield Span(start, line.end)
            start = None
    if start is not None:
        yield Span(start, len(text))


def _words(text: str, span: Span) -> list[_Word] | None:
    """The words of a JSON list; ``None`` where the text is a shell's line."""
    if text[span.start : span.start + 1] != "[":
        return None
    words: list[_Word] = []
    at = _after_blank(text, span.start + 1)
    while at < span.end and text[at] == '"':
        try:
            word, end = _DECODER.raw_decode(text, at)
        except ValueError:
            return None
        words.append(_Word(word, Span(at, end)))
        at = _after_blank(text, end)
        if text[at : at + 1] == ",":
            at = _after_blank(text, at + 1)
    return words if words and text[at : at + 1] == "]" else None


def _after_blank(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _write_line(excerpt: Excerpt, span: Span, replacement: str) -> list[Edit]:
    if re.search(r"(?<!\\)\r?\n", replacement):
        raise CannotEdit("an instruction ends with its line")
    return [excerpt.splice(span, replacement)]


def _write_script(excerpt: Excerpt, span: Span, replacement: str) -> list[Edit]:
    if "\n" in replacement:
        raise CannotEdit("the script stands in a string on one line")
    return [excerpt.splice(span, json.dumps(replacement, ensure_ascii=False)[1:-1])]


def _write_words(excerpt: Excerpt, span: Span, replacement: str) -> list[Edit]:
    """A change of a list of words: of one word, or new words behind one."""
    text = excerpt.text
    if span.start == span.end and replacement.startswith(" "):
        words = replacement.split()
        if all(_SAFE.fullmatch(word) for word in words):
            place = excerpt.end(span.start)
            if excerpt.host.text[place : place + 1] == '"':
                added = "".join(f", {json.dumps(word)}" for word in words)
                return [Edit(excerpt.host.path, place + 1, place + 1, added)]
    elif _SAFE.fullmatch(replacement) and " " not in text[span.start : span.end]:
        return [excerpt.splice(span, replacement)]
    raise CannotEdit("the command is a list of words; change it by hand")
