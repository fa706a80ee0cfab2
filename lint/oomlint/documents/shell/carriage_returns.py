"""Scripts whose lines end in a carriage return and a line feed, as editors for Windows leave them.

A shell knows no carriage return: a backslash before one quotes it and continues no line, and one at the end of a line is part
of the last word (POSIX.1-2017, Shell Command Language, 2.2.1 Escape Character, 2.3 Token Recognition). What the script's author
meant is read all the same: what ends it is one thing, to be mended in one go.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from oomlint.documents.base import Command, Fact
from oomlint.documents.shell.names import is_launch
from oomlint.documents.suffixes import SHELL_SUFFIXES, kind_of
from oomlint.documents.text import Edit, Location, Source, Span

_MANAGERS = frozenset({"conda", "mamba", "micromamba", "uv", "poetry", "pipenv"})
_CONTINUES_NOTHING = re.compile(r"\\\r\n")
_AT_END = re.compile(r"\r\n")


def carriage_returns(source: Source, commands: Sequence[Command]) -> Iterator[Fact]:
    """The first command of a script that a carriage return cuts, as a ``broken-continuation`` (by which all that stand on several
    lines are broken); where none is cut, the first that
    has one at its end, as a ``return-at-end``.

    Of files for a shell alone: what YAML hands to one has no carriage return left (YAML 1.2.2, 5.4), and make takes it from its
    lines (GNU make 4.4 src/read.c readline). On Windows nothing is said: Git writes them into a checkout there
    (``core.autocrlf``), whatever the repository has.
    """
    if (
        os.linesep == "\r\n"
        or "\r\n" not in source.text
        or kind_of(source.path) not in SHELL_SUFFIXES
    ):
        return
    starts = [each for each in commands if _is_launch(each)]
    for command in starts:
        cut = _CONTINUES_NOTHING.search(source.text, command.span.start, command.span.end)
        if cut is not None:
            at = Span(cut.start(), cut.start() + 1)
            yield _fact(source, "broken-continuation", at, _without_any(source))
            return
    for command in starts:
        if source.text.startswith("\r\n", command.span.end):
            yield _fact(source, "return-at-end", command.span)
            return


def _without_any(source: Source) -> tuple[Edit, ...]:
    """What makes each line end in a line feed alone."""
    return tuple(
        Edit(source.path, found.start(), found.start() + 1, "")
        for found in _AT_END.finditer(source.text)
    )


def _fact(source: Source, kind: str, span: Span, mend: tuple[Edit, ...] = ()) -> Fact:
    first = source.text.partition("\n")[0]
    detail = {
        "reason": "carriage-return",
        "file": source.path.rpartition("/")[2],
        "names_interpreter": first.startswith("#!") and first.endswith("\r"),
    }
    return Fact(kind, Location(source.path, span), detail, mend)


def _is_launch(command: Command) -> bool:
    """Whether it starts Python or a trainer, and no manager of packages sets something up (``conda create``)."""
    words = [word.value for word in command.words if isinstance(word.value, str)]
    return any(is_launch(word) and (word not in _MANAGERS or "run" in words) for word in words)
