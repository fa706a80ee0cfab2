"""What comments and texts of a Python script show of how it is started."""

from __future__ import annotations

import re
from collections.abc import Iterator

from oomlint.documents.excerpt import ExcerptShell, commands_in, lines_of
from oomlint.documents.shell.names import is_launch
from oomlint.documents.text import Source, Span

_LOCKED = "it stands in a comment"
# Quotes or a comment's sign, a word such as "Usage:", a prompt; no line of Python begins with a program and its
# arguments.
_BEFORE = re.compile(r"[ \t]*(?:\"{3}|'{3}|#[# \t]*)?(?:\w+:[ \t]*)?(?:[$>%][ \t]+)?")
_CLOSING = ('"""', "'''")
_MORE = re.compile(r"[ \t]*(?:#[# \t]*)?")
_COMMAND = re.compile(r"(?:\w+=\S*[ \t]+)*(?P<program>[\w./-]+)[ \t]+(?![=.,(])\S")
_ESCAPED = "\\\\"
_LONGEST = 400_000


def starts_in_script(source: Source) -> ExcerptShell | None:
    """The commands in a script's comments and texts that start the script itself, each once; none of them can be
    edited. ``None`` where there are none."""
    name = source.path.rpartition("/")[2]
    module = rf"-m[ \t]+(?:\w+\.)*{re.escape(name.removesuffix('.py'))}"
    itself = re.compile(rf"(?<![\w.-])(?:{re.escape(name)}|{module})(?![\w.-])")
    if not itself.search(source.text, 0, _LONGEST):
        return None
    found: dict[str, list[Span]] = {}
    for lines in _commands(source.text[:_LONGEST]):
        said = "\n".join(source.text[line.start : line.end] for line in lines)
        if itself.search(said):
            found.setdefault(said, lines)
    return commands_in(source, found.values(), _LOCKED)


def _commands(text: str) -> Iterator[list[Span]]:
    """The lines that begin with a program that starts training, each with those that it is continued on."""
    lines: list[Span] = []
    for line in lines_of(text, 0, len(text)):
        before = (_MORE if lines else _BEFORE).match(text, line.start, line.end)
        said = Span(before.end() if before else line.start, line.end)
        written = text[said.start : said.end].rstrip()
        for quotes in _CLOSING:
            written = written.removesuffix(quotes)
        command = None if lines else _COMMAND.match(written)
        if lines or (command is not None and is_launch(command["program"])):
            # A text that is not raw spells a backslash as two (Python reference, "String and Bytes literals").
            shown = written[:-1] if written.endswith(_ESCAPED) else written
            lines.append(Span(said.start, said.start + len(shown)))
            if not shown.endswith("\\"):
                yield lines
                lines = []
