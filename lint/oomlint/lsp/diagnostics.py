"""Findings as the protocol's diagnostics."""

from __future__ import annotations

from collections.abc import Mapping

from lsprotocol import types

from oomlint.documents.text import Location, Span
from oomlint.linting.engine import Diagnosis
from oomlint.linting.headlines import leaders
from oomlint.linting.rule import Severity
from oomlint.lsp.project import Analysis
from oomlint.lsp.view import View

SOURCE = "oomlint"
_SEVERITIES = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.INFO: types.DiagnosticSeverity.Information,
}
# Keys and comments without effect are greyed out.
_WITHOUT_EFFECT = frozenset({"unused-suppression", "unknown-key-ignored"})


def diagnostics(analysis: Analysis, view: View) -> Mapping[str, list[types.Diagnostic]]:
    """Display path → its diagnostics, for the document and every file of its runs."""
    found: dict[str, list[types.Diagnostic]] = {path: [] for path in analysis.files}
    following = leaders(analysis.diagnoses)
    for diagnosis in analysis.diagnoses:
        path = diagnosis.finding.location.path
        found[path].append(diagnostic(diagnosis, view, following.get(diagnosis)))
    for error in analysis.report.errors:
        if error.path not in found:
            continue
        source = analysis.source(error.path)
        line = min(max(error.line or 1, 1), len(source.line_starts))
        found[error.path].append(
            types.Diagnostic(
                view.range(Location(error.path, source.line_span(line))),
                error.message,
                types.DiagnosticSeverity.Error,
                code=error.kind,
                source=SOURCE,
            )
        )
    return found


def diagnostic(diagnosis: Diagnosis, view: View, leader: Diagnosis | None) -> types.Diagnostic:
    finding = diagnosis.finding
    name, page = finding.rule.name, view.pages.of(finding.rule)
    related = [(note.location, note.message) for note in finding.notes]
    if leader is not None:
        words = f"the same failure as {leader.rule.name}, whose fix is to be tried first"
        related.append((leader.finding.location, words))
    return types.Diagnostic(
        range=view.range(finding.location),
        message=finding.message,
        severity=_SEVERITIES[finding.severity],
        code=finding.rule.code,
        code_description=types.CodeDescription(page) if page is not None else None,
        source=SOURCE,
        tags=[types.DiagnosticTag.Unnecessary] if name in _WITHOUT_EFFECT else None,
        related_information=[
            types.DiagnosticRelatedInformation(view.location(location), message)
            for location, message in related
        ]
        or None,
        data={"name": name, "details": list(finding.details)},
    )


def overlapping(analysis: Analysis, span: Span) -> list[Diagnosis]:
    """The findings on a part of the document, a mere caret included."""
    return [
        d
        for d in analysis.decided
        if d.finding.location.path == analysis.name
        and d.finding.location.span.start <= span.end
        and span.start <= d.finding.location.span.end
    ]
