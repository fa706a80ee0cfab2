"""The keys of a run that stand in a document: where, read by which row, in force or not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from oomlint.dialects.block import Block
from oomlint.dialects.setting import Origin
from oomlint.dialects.table import Row
from oomlint.documents.base import Entry
from oomlint.lsp.project import Analysis
from oomlint.plan.fields import f
from oomlint.runs.run import Run

# The fields whose keys decide most about memory, and that people turn first.
_KNOBS = (
    f.batch.micro,
    f.seq.max_len,
    f.parallel.zero.stage,
)


class Key(Struct, frozen=True, eq=False):
    """An entry of a run's file that a row of a table reads."""

    run: Run
    block: Block
    row: Row
    entry: Entry


def keys_at(analysis: Analysis, offset: int) -> list[Key]:
    """The keys around an offset of the document, of the innermost entry, one a run."""
    found = [
        key
        for run in analysis.runs
        for key in keys_of(run, analysis.name)
        if key.entry.span.start <= offset <= key.entry.span.end
    ]
    if not found:
        return []
    size = min(_size(key.entry) for key in found)
    nearest: dict[tuple[int, str], Key] = {}
    for key in found:
        if _size(key.entry) == size:
            nearest.setdefault((id(key.run), key.row.field), key)
    return list(nearest.values())


def keys_of(run: Run, path: str) -> Iterator[Key]:
    """Every key of a run that stands in a file."""
    for block, reading in run.parts.blocks:
        if block.path != path or block.locked:
            continue
        settings = (setting.origin for setting in reading.settings.values())
        for origin in (*settings, *reading.unknown.values(), *reading.auto.values()):
            if origin.block is not None and origin.row is not None and origin.entry is not None:
                yield Key(run, origin.block, origin.row, origin.entry)


def knobs(analysis: Analysis) -> Iterator[tuple[Run, Entry]]:
    """The entries of the document that set micro batch, sequence length and sharding."""
    for run in analysis.runs:
        seen: set[int] = set()
        for field in _KNOBS:
            origin = _stated(run, field, depth=3)
            if origin is None or origin.entry is None or origin.block is None:
                continue
            here = origin.block.path == analysis.name and not origin.block.locked
            if here and id(origin.entry) not in seen:
                seen.add(id(origin.entry))
                yield run, origin.entry


def _stated(run: Run, field: Any, depth: int) -> Origin | None:
    """The origin of the key that says a field, or that it follows from."""
    origin = run.origin(field)
    if origin is None or origin.entry is not None or not depth:
        return origin
    found = (_stated(run, name, depth - 1) for name in origin.inputs)
    return next((o for o in found if o is not None and o.entry is not None), None)


def _size(entry: Entry) -> int:
    return entry.span.end - entry.span.start
