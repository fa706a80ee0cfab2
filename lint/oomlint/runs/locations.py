"""Where the files of a run say what decides a field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oomlint.dialects.setting import Origin
from oomlint.documents.text import Location
from oomlint.plan.fields import f


def explicit_location(
    origin_of: Callable[[Any], Origin | None], field: Any, depth: int
) -> Location | None:
    """Where a file says a field, or what it follows from. A computation asks first whether it
    applies, and last what decides on the value: the last reads are the most telling."""
    level: list[str] = [field]
    for _ in range(depth + 1):
        below: list[str] = []
        facts: list[str] = []
        for name in level:
            origin = origin_of(name)
            if origin is not None and origin.location is not None:
                return origin.location
            if origin is not None:
                # What is known of a model stands in no line of the file that names it.
                reads = [read for read in reversed(origin.inputs) if read != f.model.id]
                (facts if origin.kind == "catalog" else below).extend(reads)
        level = below + facts
    return None
