"""What a key costs: the prediction with other values in its place, each tried on the text itself.

The edit goes through the document and is read back by the framework's own rules, so that a key
which only moves another (an effective batch, an ``auto``) shows what really happens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from oomlint.documents.base import Scalar
from oomlint.documents.text import Edit
from oomlint.errors import CannotEdit
from oomlint.judgement import Forecast, judgement_of
from oomlint.lsp.help import spelled
from oomlint.lsp.keys import Key
from oomlint.lsp.project import Analysis, Project

_MOST = 5
_MOST_CHOICES = 48
# Of counts up to here (a micro batch, not a length) one is worth a thought.
_SMALL = 64


class Alternative(Struct, frozen=True):
    """A run with another value for a key; ``value`` is as a user would say it."""

    value: str
    forecast: Forecast


def alternatives(analysis: Analysis, key: Key) -> list[Alternative]:
    """The key with other values, and left out; those that no file can say are passed over."""
    cached = ("alternatives", id(key.entry), key.run.name)
    if cached not in analysis.cache:
        analysis.cache[cached] = list(_tried(analysis, key))
    found = analysis.cache[cached]
    assert isinstance(found, list)
    return found


def _tried(analysis: Analysis, key: Key) -> Iterator[Alternative]:
    number = [run.name for run in analysis.report.runs].index(key.run.name)
    for value, edits in _edits(key):
        report = Project.tried(analysis, edits)
        if len(report.runs) == len(analysis.report.runs) and not report.errors:
            yield Alternative(value, judgement_of(report.runs[number]).spoken)


def _edits(key: Key) -> Iterator[tuple[str, list[Edit]]]:
    block, entry = key.block, key.entry
    if block.locked:
        return
    if isinstance(entry.value, Scalar) and entry.value.locked is None:
        for value in _others(key):
            try:
                yield spelled(value), block.document.set_value(entry.value, value)
            except CannotEdit:
                continue
    try:
        yield "left out", block.document.remove_entry(block.holder(entry), entry.key)
    except CannotEdit:
        return


def _others(key: Key) -> list[Any]:
    """Values that people would try instead: the other choices; half and double of a number."""
    raw = key.block.value(key.entry.value)
    schema = dict(key.row.kind.schema or {})
    if listed := key.row.kind.spellings or schema.get("enum"):
        choices = _one_of_each(key, tuple(listed))
        return [c for c in choices if c != raw and str(c) != str(raw)][:_MOST_CHOICES]
    try:
        value = key.row.kind.read(raw)
    except Exception:  # a value that the framework refuses has no neighbours
        return []
    if schema.get("type") == "boolean" and isinstance(raw, (bool, str)):
        return [not _is_on(raw)]
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        least = schema.get("minimum", 0)
        tried = (value // 2, value * 2) if value > _SMALL else (1, value // 2, value * 2)
        return [n for n in dict.fromkeys(tried) if n >= max(least, 1) and n != value][:_MOST]
    return []


def _one_of_each(key: Key, choices: Sequence[Any]) -> list[Any]:
    """Of the spellings that mean the same, the first; none of what the run has already."""
    read = key.row.kind.read
    try:
        seen = [read(key.block.value(key.entry.value))]
    except Exception:
        seen = []
    found = []
    for choice in choices:
        meaning = read(choice)
        if meaning not in seen and choice is not None:
            seen.append(meaning)
            found.append(choice)
    return found


def _is_on(raw: bool | str) -> bool:
    return raw if isinstance(raw, bool) else raw.strip().lower() in ("true", "yes", "on", "1")
