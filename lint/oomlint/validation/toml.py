"""TOML as plain values: the standard library's parser, kept from texts that it never ends on."""

from __future__ import annotations

import re
import sys
from typing import Any

# For every part of a dotted key tomllib copies all parts before it: at 2,000 in a row that takes
# a tenth of a second, at half a million, which one megabyte holds, hours (CPython 3.11 and 3.13).
_MOST_DOTS_SQUARED = 2_000**2
_FLOAT = r"(?<![\w.\"'-])[+-]?\d+\.\d+(?=[\s,\]}eE]|$)"


def loads(text: str) -> dict[str, Any]:
    """The values of a TOML 1.0 text.

    Raises:
        ValueError: it is not valid TOML, nested too deeply, or full of dots.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    if text.count(".") > 2_000:
        keys = re.sub(_FLOAT, "", text)
        dots = sum(line.count(".") ** 2 for line in keys.split("\n"))
        if dots > _MOST_DOTS_SQUARED:
            raise ValueError("too many dots in one line")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
