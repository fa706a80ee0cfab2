"""The ``rdjson`` and ``rdjsonl`` formats of reviewdog (its proto/rdf/reviewdog.proto).

Columns count UTF-8 bytes from 1; an end is exclusive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from oomlint.documents.text import Edit, Location, Source, apply_edits
from oomlint.linting.engine import Results, Told
from oomlint.report.places import LineColumn, LineIndex, url
from oomlint.report.runs import as_json

_SOURCE = {"name": "oomlint"}


def render(report: Results) -> str:
    places = LineIndex(report)
    return as_json(
        {"source": _SOURCE, "diagnostics": [_diagnostic(d, places) for d in report.diagnoses]}
    )


def render_lines(report: Results) -> str:
    places = LineIndex(report)
    return "".join(
        as_json({**_diagnostic(d, places), "source": _SOURCE}, indent=None)
        for d in report.diagnoses
    )


def _diagnostic(diagnosis: Told, places: LineIndex) -> dict[str, Any]:
    finding = diagnosis.finding
    out: dict[str, Any] = {
        "message": finding.text,
        "location": _location(finding.location, places),
        "severity": diagnosis.severity.name,
        "code": {"value": finding.rule.code, "url": url(finding.rule)},
    }
    related = [
        {"message": note.message, "location": _location(note.location, places)}
        for note in finding.notes
    ]
    if related:
        out["related_locations"] = related
    suggestions = _suggestions(diagnosis, places)
    if suggestions:
        out["suggestions"] = suggestions
    return out


def _suggestions(diagnosis: Told, places: LineIndex) -> list[dict[str, Any]]:
    """The fix, if it is one to apply and changes the finding's own file only: a suggestion names
    no file.

    However many its edits, a fix is one suggestion: reviewdog posts each for itself, and only
    those of the lines of the first (its service/github/github.go, buildSingleSuggestion).
    """
    fix, path = diagnosis.applicable, diagnosis.finding.location.path
    if fix is None:
        return []
    if any(edit.path != path for edit in fix.edits):
        return []
    source = places.source(path)
    edit = _on_lines(_joined(fix.edits, source), source)
    return [{"range": _range(places.of_edit(edit), places), "text": edit.replacement}]


def _joined(edits: Sequence[Edit], source: Source) -> Edit:
    """Edits of one file as a single one, with the text between them."""
    start, end = min(edit.start for edit in edits), max(edit.end for edit in edits)
    shifted = [replace(edit, start=edit.start - start, end=edit.end - start) for edit in edits]
    return Edit(source.path, start, end, apply_edits(source.text[start:end], shifted))


def _on_lines(edit: Edit, source: Source) -> Edit:
    """An insertion behind the last line break as one before it: no line stands behind it that a
    suggestion could be for."""
    text = edit.replacement
    for ending in ("\r\n", "\n"):
        if (
            edit.start == len(source.text)
            and source.text.endswith(ending)
            and text.endswith(ending)
        ):
            before = edit.start - len(ending)
            return Edit(edit.path, before, before, ending + text.removesuffix(ending))
    return edit


def _location(location: Location, places: LineIndex) -> dict[str, Any]:
    return {"path": location.path, "range": _range(location, places)}


def _range(location: Location, places: LineIndex) -> dict[str, Any]:
    return {"start": _point(places.start(location)), "end": _point(places.end(location))}


def _point(place: LineColumn) -> dict[str, int]:
    return {"line": place.line, "column": place.utf8_column}
