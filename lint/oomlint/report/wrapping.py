"""Text within the width of a terminal."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from unicodedata import category, combining, east_asian_width

# What nobody reads comfortably beyond, and what a page or a log takes where there is no terminal.
_WIDEST, _USUAL, _LEAST = 120, 100, 40
# Written as a space between words that stay on one line.
GLUE = "\N{NO-BREAK SPACE}"
_ESCAPE = re.compile(r"\x1b\[[\d;]*m")
_BREAK = re.compile(r"(?<!\(risk) (?!(?:%|[KMGT]iB)(?!\w))")
_RESET = "\x1b[0m"


def terminal_width() -> int:
    """Columns to write within: those of the terminal, or as many as a log takes."""
    said = os.environ.get("COLUMNS", "")
    asked = int(said) if said.isdecimal() else 0
    return max(_LEAST, min(_WIDEST, asked or _columns_of_terminal() or _USUAL))


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
    does a number with its unit. A colour that goes on is set anew on each line."""
    line, room = "", width - len(first)
    start = first
    for word in _BREAK.split(text):
        longer = f"{line} {word}" if line else word
        if line and columns(longer) > room:
            colour = (_ESCAPE.findall(line) or [_RESET])[-1]
            goes_on = colour != _RESET
            yield start + paint(line.replace(GLUE, " ")) + (_RESET if goes_on else "")
            start, room = others, width - len(others)
            line = f"{colour}{word}" if goes_on else word
        else:
            line = longer
    yield start + paint(line.replace(GLUE, " "))


def glued(text: str) -> str:
    """A text that stays on one line."""
    return text.replace(" ", GLUE)


def columns(text: str) -> int:
    """What a text takes in a terminal: wide East Asian characters two columns, combining ones and colours
    none."""
    text = _ESCAPE.sub("", text)
    if text.isascii():
        return len(text)
    return sum(
        0 if combining(c) or category(c) == "Cf" else 2 if east_asian_width(c) in "WF" else 1
        for c in text
    )
