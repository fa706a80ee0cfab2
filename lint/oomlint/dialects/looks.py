"""What was looked at in the files of a run besides what they say of fields, and for which fields."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable
from functools import partial
from typing import Any, TypeVar

from oomlint.dialects.cell import Frame
from oomlint.dialects.given import Given
from oomlint.dialects.meaning import Unsaid

T = TypeVar("T")


class Looks:
    """What fields hang on, besides others: where it is not found as it was, these are computed anew."""

    __slots__ = ("_found", "_placed", "_whole")

    def __init__(self) -> None:
        self._found: dict[Hashable, tuple[Callable[[Given], Any], set[Any]]] = {}
        """What was looked for, how, and for which fields."""
        self._whole: set[Any] = set()
        """The fields for which all blocks were looked at."""
        self._placed: dict[Any, set[Any]] = {}
        """Fields of which not the value alone was read, and for which others."""

    def at_all(self, asking: Frame) -> None:
        """Note that a computation has looked at all blocks."""
        asking.count_among(self._whole)

    def at_place(self, field: Any, asking: Frame) -> None:
        """Note that a computation has asked where a field is said."""
        asking.count_among(self._placed.setdefault(field, set()))

    def at(self, what: Hashable, find: Callable[[Given], T], asking: Frame) -> None:
        """Note that a computation has looked for something, which is found so."""
        asking.count_among(self._found.setdefault(what, (find, set()))[1])

    def left_unsaid(self, find: Unsaid, field: Any, given: Given) -> Container[Any]:
        """The fields that a reader makes something of although nothing is said of them, for one of whom it is asked."""
        found = self._found.get(find)
        if found is None:
            found = self._found[find] = (partial(Given.once, function=find), set())
        look, asking = found
        asking.add(field)
        unsaid: Container[Any] = look(given)
        return unsaid

    def changed(self, given: Given, earlier: Given, moved: Container[Any]) -> set[Any]:
        """The fields for which something was looked at that is not as it was, or that asked for the places of fields
        that have ``moved``."""
        fields = set(self._whole) if self._whole and given.blocks != earlier.blocks else set()
        for find, asking in self._found.values():
            if find(given) != find(earlier):
                fields |= asking
        for field, asking in self._placed.items():
            if field in moved:
                fields |= asking
        return fields
