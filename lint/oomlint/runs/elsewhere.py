"""Runs that are linted apart from others and use some of the same files: what each side has to know of the other.

Who they are and what they ask for is known once all are linted. Until then a name stands in for theirs in what is said of
a shared file, and they are taken to want nothing that they are not known to want.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

_MARK = "\0"
_STAND_IN = f"{_MARK}([^{_MARK}]*){_MARK}"


class Elsewhere(Struct, frozen=True):
    """What is known of runs that are linted apart."""

    files: tuple[str, ...] = ()
    """Those that they use too, by display path."""
    wanted: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """The changes of these that each of them asks for, as :mod:`oomlint.fix.agreement` calls them: by what rules propose,
    and by plans."""
    told: tuple[str, ...] = ()
    """What was found in these files already, as :func:`oomlint.linting.engine.said_once` calls it."""


def stand_in(path: str) -> str:
    """The name of some run that uses a file."""
    return f"{_MARK}{path}{_MARK}"


def named(text: str, name_of: Callable[[str], str]) -> str:
    """A text with the names of runs for what stands in for them; ``name_of`` a file that they use."""
    return re.sub(_STAND_IN, lambda match: name_of(match[1]), text) if _MARK in text else text
