"""Where it begins that a field is known no better."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from oomlint.dialects.cells import Cells


def roots_of(run: Cells, field: Any, but: Collection[Any] = ()) -> tuple[Any, ...]:
    """The fields where the weakness of one begins: no field that they read is as weak.

    Fields in ``but`` are no roots, nor are those that are as weak for nothing else; what is assumed itself is."""
    level = run.level(field)
    found: dict[Any, None] = {}
    seen: set[Any] = set()
    todo = [field]
    while todo:
        each = todo.pop()
        if each in seen:
            continue
        seen.add(each)
        weak = [read for read in run.reads(each) if run.level(read) >= level]
        others = [read for read in weak if read not in but]
        todo += others
        if not weak or (not others and _is_assumed(run, each)):
            found[each] = None
    return tuple(found)


def _is_assumed(run: Cells, field: Any) -> bool:
    """Whether a field's own value is an assumption, whatever it was computed from."""
    setting = run.setting(field)
    return setting is not None and setting.origin.kind == "assumed"
