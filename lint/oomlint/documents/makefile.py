"""Makefiles: the commands of their recipes, with make's variables as variables of the shell.

Meanings from the GNU make manual 4.4: "Recipe Syntax", "Using Variables". Variables have the
value of their last plain definition above the recipe; functions and automatic variables are
known to nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct, field

from oomlint.documents.excerpt import (
    MOST_CHARACTERS,
    Builder,
    Excerpt,
    ExcerptShell,
    lines_of,
    shell_in,
)
from oomlint.documents.text import Edit, Source, Span
from oomlint.errors import CannotEdit, ParseError

_DEFINITION = re.compile(
    r"(?:(?:override|private|unexport)[ ]+)*(?P<export>export[ ]+)?"
    r"(?P<name>[\w.\-]+)[ \t]*(?P<how>[:?+!]|::?:?)?=[ \t]*"
)
_OF_TARGET = re.compile(r"[^\s:#=][^:#=\t]*:[ \t]*(?=(?:export[ ]+)?[\w.\-]+[ \t]*[:?+]?=)")
_EXPORT = re.compile(r"export[ \t]+([\w \t]+)$")
_RULE = re.compile(r"[^\s:#=][^:=]*:{1,2}(?!=)")
_PREFIX = re.compile(r"[ \t]*[@\-+][@\-+ \t]*")
_REFERENCE = re.compile(
    r"\$(?:\$|\((?P<round>\w+)\)|\{(?P<curly>\w+)\}|(?P<one>\w)|[@<^+*?%|]|(?=[({]))"
)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_QUOTED = re.compile(r"\"[^\"$`\\]*\"|'[^']*'")
_TRAILING = re.compile(r"[ \t]*(?:(?<!\\)#[^\r\n]*)?$")
# The name of no variable of make: what it stands for is known to nobody.
_UNKNOWN = "${_make}"


def parse_makefile(source: Source) -> ExcerptShell | None:
    """Read a Makefile; ``None`` where it has no recipes.

    Raises:
        ParseError: it is too large, or a recipe is nested too deeply to be read.
    """
    if len(source.text) > MOST_CHARACTERS:
        raise ParseError(source.path, "too large for a script (over a million characters)")
    reader = _Reader(source, Builder(source))
    reader.read()
    return shell_in(reader.builder.finish()) if reader.recipes else None


class _Reader(Struct):
    source: Source
    builder: Builder
    recipes: int = 0
    quoted: set[str] = field(default_factory=set)
    """Variables whose value is one word in quotes: make puts the quotes in too."""

    def read(self) -> None:
        text, in_rule, nested = self.source.text, False, 0
        for span in _logical_lines(text):
            line = text[span.start : span.end]
            if line.startswith("define ") or nested:
                nested += line.startswith("define ") - line.startswith("endef")
            elif line.startswith("\t") and in_rule:
                self._recipe(Span(span.start + 1, span.end))
            elif definition := _DEFINITION.match(line.lstrip(" ")):
                lead = len(line) - len(line.lstrip(" "))
                self._definition(definition, span.start + lead, span.end)
            elif exported := _EXPORT.match(line.rstrip()):
                self.builder.add(f"export {exported[1]}\n", span.start)
            elif of_target := _OF_TARGET.match(line):
                self._of_target(span, of_target.end())
            elif _RULE.match(line):
                in_rule = True
                self._inline(span)

    def _of_target(self, span: Span, lead: int) -> None:
        """``train: NPROC = 4`` holds for one target; its recipe is likely the next."""
        definition = _DEFINITION.match(self.source.text[span.start + lead : span.end])
        if definition is not None:
            self._definition(definition, span.start + lead, span.end)

    def _inline(self, span: Span) -> None:
        """``target: prerequisites ; recipe``"""
        at = self.source.text.find(";", span.start, span.end)
        if at >= 0:
            self._recipe(Span(at + 1, span.end))

    def _recipe(self, span: Span) -> None:
        prefix = _PREFIX.match(self.source.text, span.start, span.end)
        start = prefix.end() if prefix else span.start
        # One line break only: behind a backslash an empty line ends the command.
        end = start + len(self.source.text[start : span.end].removesuffix("\n").removesuffix("\r"))
        before = self.builder.length
        self._expanded(Span(start, end))
        self.builder.part(before, _write)
        self.builder.add("\n", end)
        self.recipes += 1

    def _definition(self, match: re.Match[str], at: int, end: int) -> None:
        text, name = self.source.text, match["name"]
        start = at + match.end()
        if not _NAME.fullmatch(name) or match["how"] == "!":
            return
        stop = start + len(text[start:end].rstrip("\r\n"))
        stop = start + _TRAILING.search(text[start:stop]).start()  # type: ignore[union-attr]
        value = text[start:stop]
        self.quoted.discard(name)
        lead = "export " if match["export"] else ""
        more = f"${{{name}}} " if match["how"] == "+" else ""
        self.builder.add(f"{lead}{name}=", start)
        if _QUOTED.fullmatch(value) and not more:
            before = self.builder.length
            self.builder.copy(start, stop)
            self.builder.part(before, _write_value)
            self.quoted.add(name)
        elif set(value) & set("\"'`"):
            self.builder.spell(_UNKNOWN, start, stop)
        else:
            self.builder.add(f'"{more}', start)
            before = self.builder.length
            self._expanded(Span(start, stop))
            self.builder.part(before, _write_value)
            self.builder.add('"', stop)
        self.builder.add("\n", stop)

    def _expanded(self, span: Span) -> None:
        """Text with make's references as the shell's."""
        text, cursor, builder = self.source.text, span.start, self.builder
        while reference := _REFERENCE.search(text, cursor, span.end):
            builder.copy(cursor, reference.start())
            cursor = reference.end()
            name = reference["round"] or reference["curly"] or reference["one"]
            if reference.group() == "$$":
                builder.spell("$", reference.start(), cursor)
            elif name is not None:
                apart = (
                    text[reference.start() - 1] in " \t=" and text[cursor : cursor + 1] in " \t\r\n"
                )
                quote = '"' if name in self.quoted and apart else ""
                builder.spell(f"{quote}${{{name}}}{quote}", reference.start(), cursor)
            else:
                cursor = _closing(text, cursor, span.end)
                builder.spell(_UNKNOWN, reference.start(), cursor)
        builder.copy(cursor, span.end)


def _logical_lines(text: str) -> Iterator[Span]:
    """Lines, joined where a backslash says so."""
    start: int | None = None
    for line in lines_of(text, 0, len(text)):
        start = line.start if start is None else start
        content = text[line.start : line.end].rstrip("\r\n")
        if (len(content) - len(content.rstrip("\\"))) % 2 == 0 or line.end == len(text):
            yield Span(start, line.end)
            start = None


def _closing(text: str, at: int, end: int) -> int:
    """Behind a function call or a reference with a pattern, whose bracket is at ``at``."""
    opening = text[at : at + 1]
    if opening not in ("(", "{"):
        return at
    closing, depth = {"(": ")", "{": "}"}[opening], 0
    for place in range(at, end):
        depth += (text[place] == opening) - (text[place] == closing)
        if depth == 0:
            return place + 1
    return end


def _write(excerpt: Excerpt, span: Span, replacement: str) -> list[Edit]:
    """A change in a recipe: a line of it ends in a backslash, a dollar is doubled."""
    if re.search(r"(?<!\\)\r?\n", replacement):
        raise CannotEdit("each line of a recipe is a command of its own")
    return [excerpt.splice(span, replacement.replace("$", "$$"))]


def _write_value(excerpt: Excerpt, span: Span, replacement: str) -> list[Edit]:
    """A change in a variable's value, which ends at a comment and holds no quotes of ours."""
    quotes = replacement[:1] + replacement[-1:] if _QUOTED.fullmatch(replacement) else ""
    if set(replacement.strip(quotes)) & set("#\"'\\\n\r"):
        raise CannotEdit("the value cannot be written in a variable of make")
    return _write(excerpt, span, replacement)
