"""Keys that a framework does not know, and what their authors mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from oomlint.dialects.kinds import AUTO, BadValue
from oomlint.dialects.reading import StrayKey
from oomlint.documents.base import UNKNOWN


class Misspelt(Struct, frozen=True, eq=False):
    """A key that its framework does not know, and what its author means: ``new_key`` would set ``field``
    to ``value``."""

    key: StrayKey
    new_key: str
    field: Any
    value: Any

    @property
    def reading(self) -> str:
        """``sequence_length read as sequence_len``"""
        return f"{self.key.path} read as {self.new_key}"


def misspelt_in(
    strays: Iterable[StrayKey], is_given: Callable[[Any], bool]
) -> tuple[Misspelt, ...]:
    """The keys that mean others of which nothing is said, at most one for each field."""
    found: dict[Any, Misspelt] = {}
    for stray in strays:
        meant = stray.meant
        row = None if meant is None else stray.block.table.names.get(meant)
        if meant is None or row is None or is_given(row.field):
            continue
        raw = stray.block.value(stray.entry.value)
        try:
            value = None if raw is UNKNOWN or raw is None else row.kind.read(raw)
        except BadValue:
            continue
        if value is not None and value is not AUTO:
            found[row.field] = Misspelt(stray, meant, row.field, value)
    return tuple(found.values())
