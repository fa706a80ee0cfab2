"""The comment at the head of a config, where many projects write how a run of it is started."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from oomlint.documents.text import Source, Span

if TYPE_CHECKING:
    from oomlint.documents.excerpt import ExcerptShell

_LOCKED = "it stands in a comment"
_COMMENT = re.compile(r"[ \t]*#[# \t]*(?:\$[ \t]+)?(?P<said>[^\r\n]*)")
# Assignments, then the program.
_COMMAND = re.compile(r"(?:\w+=\S*[ \t]+)*(?P<program>[\w./-]+)[ \t]+\S")
_LONGEST = 16_384


def start_in_header(source: Source) -> ExcerptShell | None:
    """The launch lines in the comments above the first key that name the file itself; none of
    them can be edited. ``None`` where there are none, or where two that say the same up to the
    name leave open which one is meant: of a line, and the same with more behind it for an example of
    what could be added, the shorter one is.
    """
    name = source.path.rpartition("/")[2].partition(".")[0]
    if not name or source.text.find(name, 0, _LONGEST) < 0:
        return None
    from oomlint.documents.excerpt import commands_in  # few heads name their file

    kept: dict[str, tuple[str, list[Span]]] = {}
    for lines in _commands(source.text):
        said = "\n".join(source.text[line.start : line.end] for line in lines).rstrip()
        before, found, _ = said.partition(name)
        if not found:
            continue
        first = kept.setdefault(before, (said, lines))[0]
        if not said.startswith(first):
            return None
    return commands_in(source, [lines for _, lines in kept.values()], _LOCKED)


def head_of(data: bytes) -> bytes:
    """A config up to the first character that is neither in a comment nor blank, which decides on what its comment
    starts."""
    end = re.match(rb"(?:[ \t\r\n-]|\xef\xbb\xbf|#[^\r\n]*)*.?", data[:_LONGEST], re.DOTALL)
    assert end is not None
    return end[0]


def _commands(text: str) -> Iterator[list[Span]]:
    """The lines that begin with a program that starts training, each with those that it is
    continued on: what else people write there is prose, no shell."""
    from oomlint.documents.excerpt import lines_of
    from oomlint.documents.shell.names import is_launch

    lines: list[Span] = []
    continued = False
    for line in lines_of(text, 0, min(len(text), _LONGEST)):
        comment = _COMMENT.match(text, line.start, line.end)
        if comment is None:
            if text[line.start : line.end].strip(" \t\r\n\ufeff-"):
                break
            continued = False
            continue
        said = comment["said"]
        command = None if continued else _COMMAND.match(said)
        if continued or (command is not None and is_launch(command["program"])):
            if not continued:
                yield from [lines] if lines else []
                lines = []
            lines.append(Span(*comment.span("said")))
            continued = said.rstrip().endswith("\\")
    if lines:
        yield lines
