"""Text within the width of a terminal."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

# What nobody reads comfortably beyond, and what a page or a log takes where there is no terminal.
_WIDEST, _USUAL, _LEAST = 120, 100, 40
_ESCAPE = re.compile(r"\x1b\[[\d;]*m")
_BREAK = re.compile(r" (?!(?:%|[KMGT]iB)(?!\w))")


def terminal_width() -> int:
    """Columns to write within: those of the terminal, or as many as a log takes."""
    said = os.environ.get("COLUMNS", "")
    columns = int(said) if said.isdecimal() else 0
    return max(_LEAST, min(_WIDEST, columns or _columns_of_terminal() or _USUAL))


def _columns_of_terminal() -> int:
    """What ``shutil`` would say, which imports three compressors first; 0 where nothing tells."""
    try:
        return os.get_terminal_size(1).columns
    except OSError:  # no terminal
        return 0


def wrapped(
    text: str,
    width: int,
    first: str,
    others: str,
    *,
    paint: Callable[[str], str] = lambda text: text,
) -> Iterator[str]:
    """The lines of a text, broken between words; a word that is longer than a line stays whole, and so
    does a number with its unit."""
    line, room = "", width - len(first)
    start = first
    for word in _BREAK.split(text):
        longer = f"{line} {word}" if line else word
        if line and _columns(longer) > room:
            yield start + paint(line)
            start, room, line = others, width - len(others), word
        else:
            line = longer
    yield start + paint(line)


def _columns(text: str) -> int:
    return len(_ESCAPE.sub("", text))
