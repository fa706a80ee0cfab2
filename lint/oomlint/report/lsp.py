"""The ``lsp`` format: a list of PublishDiagnosticsParams (LSP 3.17), columns in UTF-16."""

from __future__ import annotations

from typing import Any

from oomlint.documents.text import Location
from oomlint.linting.engine import Results, Told
from oomlint.linting.rule import Severity
from oomlint.report.places import LineColumn, LineIndex, url
from oomlint.report.runs import as_json

_LEVELS = {Severity.ERROR: 1, Severity.WARNING: 2, Severity.INFO: 3}


def render(report: Results) -> str:
    places = LineIndex(report)
    by_file: dict[str, list[dict[str, Any]]] = {path: [] for path in report.files}
    for diagnosis in report.diagnoses:
        group = by_file.setdefault(diagnosis.finding.location.path, [])
        group.append(_diagnostic(report, diagnosis, places))
    return as_json(
        [{"uri": _uri(report, path), "diagnostics": group} for path, group in by_file.items()]
    )


def _diagnostic(report: Results, diagnosis: Told, places: LineIndex) -> dict[str, Any]:
    finding = diagnosis.finding
    return {
        "range": _range(finding.location, places),
        "severity": _LEVELS[diagnosis.severity],
        "code": finding.rule.code,
        "codeDescription": {"href": url(finding.rule)},
        "source": "oomlint",
        "message": finding.message,
        "relatedInformation": [
            {
                "location": {
                    "uri": _uri(report, note.location.path),
                    "range": _range(note.location, places),
                },
                "message": note.message,
            }
            for note in finding.notes
        ],
        "data": {"name": finding.rule.name, "details": list(finding.details)},
    }


def _uri(report: Results, path: str) -> str:
    return report.workspace.file(path).as_uri()


def _range(location: Location, places: LineIndex) -> dict[str, Any]:
    return {"start": _point(places.start(location)), "end": _point(places.end(location))}


def _point(place: LineColumn) -> dict[str, int]:
    return {"line": place.line - 1, "character": place.utf16_column - 1}
