"""Colour on terminals: a handful of SGR codes, or none."""

from __future__ import annotations

import os
import re
from typing import IO, Any, Literal
from unicodedata import category

from msgspec import Struct

ColorChoice = Literal["auto", "always", "never"]

# ECMA-48 SGR parameters: the eight basic colours follow the user's own palette.
_CODES = {
    "bold": "1",
    "dim": "2",
    "error": "1;31",
    "warning": "1;33",
    "info": "1;36",
    "path": "1",
    "good": "32",
    "tight": "33",
    "bad": "31",
    "fix": "32",
    "removed": "31",
    "hunk": "36",
}
OUTCOME_STYLES = {
    "fits": "good",
    "tight": "tight",
    "does_not_fit": "bad",
    "unknown": "dim",
    "ends": "bad",
}


class Paint(Struct, frozen=True):
    """``paint("text", "error")``; the text itself where colour is off."""

    enabled: bool = False

    def __call__(self, text: str, style: str) -> str:
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self.enabled and text else text


# Characters that turn the direction of text, or take no room in it (Unicode 16, UAX #9 and general
# category Cf): what they hide or reorder, nobody sees.
UNSEEN = "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb"
_UNSEEN = f"[{UNSEEN}]"


def visible(text: str) -> str:
    """Text of a user's file as one line that a terminal may get, with a mark in place of what controls
    the terminal or cannot be seen."""
    if text.isprintable():
        return text
    seen = re.sub(_UNSEEN, "\N{REPLACEMENT CHARACTER}", text)
    return "".join("\N{REPLACEMENT CHARACTER}" if category(c) in ("Cc", "Cs") else c for c in seen)


def wants_color(choice: ColorChoice, stream: IO[Any]) -> bool:
    """Whether to colour what goes to ``stream``.

    An explicit choice wins; then FORCE_COLOR (https://force-color.org) and NO_COLOR
    (https://no-color.org), which count where they are not empty; then whether it is a
    terminal that can.
    """
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return bool(stream.isatty()) and os.environ.get("TERM") != "dumb"
