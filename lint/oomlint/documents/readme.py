"""Fenced code of a README, where projects write how a run of their configs is started."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from oomlint.documents.excerpt import ExcerptShell, commands_in, lines_of
from oomlint.documents.shell.names import is_launch
from oomlint.documents.text import Source, Span

_LOCKED = "it stands in a README"
_FENCE = re.compile(r"[ \t]*(?:```+|~~~+)")
# A prompt, assignments, then the program.
_COMMAND = re.compile(
    r"[ \t]*(?:[$>%][ \t]+)?(?P<said>(?:\w+=\S*[ \t]+)*(?P<program>[\w./-]+)[ \t]+\S.*)"
)
_LONGEST = 400_000


def starts_in_readme(source: Source, names: Iterable[str]) -> ExcerptShell | None:
    """The launch lines in fenced code that name one of these files, each once; none of them can be
    edited. The names are the files' own, without their folders."""
    named = [name for name in names if name in source.text]
    if not named:
        return None
    found: list[list[Span]] = []
    seen: set[str] = set()
    for lines in _commands(source.text[:_LONGEST]):
        said = "\n".join(source.text[line.start : line.end] for line in lines)
        if said in seen or not any(name in said for name in named):
            continue
        seen.add(said)
        found.append(lines)
    return commands_in(source, found, _LOCKED)


def _commands(text: str) -> Iterator[list[Span]]:
    """Commands that start training, each with the lines that it is continued on."""
    inside = False
    lines: list[Span] = []
    for line in lines_of(text, 0, len(text)):
        if _FENCE.match(text, line.start, line.end):
            inside = not inside
            if lines:
                yield lines
            lines = []
        elif lines:
            lines.append(Span(line.start, line.start + len(_of(text, line))))
            if not _is_continued(text, line):
                yield lines
                lines = []
        elif inside:
            command = _COMMAND.match(text, line.start, line.end)
            if command is not None and is_launch(command["program"]):
                lines = [Span(*command.span("said"))]
                if not _is_continued(text, line):
                    yield lines
                    lines = []


def _is_continued(text: str, line: Span) -> bool:
    return _of(text, line).endswith("\\")


def _of(text: str, line: Span) -> str:
    return text[line.start : line.end].rstrip()
