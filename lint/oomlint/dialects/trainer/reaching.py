"""Whether the switches of a script lead to a call, and whether another stands in its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping as MappingABC

from oomlint.dialects.entries import plain_value
from oomlint.dialects.kinds import BOOLEAN, BadValue
from oomlint.documents.base import (
    Call,
    Mapping,
    Node,
)
from oomlint.documents.python.nodes import arms_of, guards_of


def is_reached(arguments: Mapping, options: MappingABC[str, Node]) -> bool:
    """Whether the switches around a call let it run; one that nobody sets may be either."""
    return are_held(guards_of(arguments), options)


def are_held(guards: Iterable[tuple[str, bool]], options: MappingABC[str, Node]) -> bool:
    """Whether switches are as a place in the script asks; one that nobody sets may be either."""
    return all(name not in options or is_on(name, options) == held for name, held in guards)


def is_on(option: str, options: MappingABC[str, Node]) -> bool:
    """Whether a switch is on; those of the Trainer are off unless set."""
    given = options.get(option)
    if given is None:
        return False
    try:
        return bool(BOOLEAN.read(plain_value(given, "yaml12")))
    except BadValue:
        return plain_value(given, "yaml12") not in (None, "", 0)


def may_replace(call: Call, other: Call) -> bool:
    """Whether a call is another or stands in the other branch of an ``if`` around it."""
    arms = dict(arms_of(other.arguments))
    return call is other or any(
        arms.get(line, side) is not side for line, side in arms_of(call.arguments)
    )
