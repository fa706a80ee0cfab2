"""The ``json`` and ``jsonl`` formats of ``check``, in the shapes of :mod:`oomlint.report.shapes`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from oomlint.errors import FileError
from oomlint.judgement import judgement_of
from oomlint.linting.engine import Results, Told
from oomlint.linting.headlines import leaders
from oomlint.linting.rule import Applicability, Finding
from oomlint.report.blocks import is_cause, ways_in
from oomlint.report.places import Fingerprints, LineIndex, url
from oomlint.report.runs import as_json, edit_object, run_object

if TYPE_CHECKING:
    from oomlint.fix.edits import Fix
    from oomlint.report.shapes import (
        CheckShape,
        ErrorShape,
        FindingShape,
        FixShape,
        SummaryShape,
    )


_PASSING = frozenset({"activations", "logits", "communication", "temporary", "gather"})


def render(report: Results) -> str:
    """The whole report as one JSON object."""
    return as_json(check_object(report))


def render_lines(report: Results) -> str:
    """One finding a line."""
    return "".join(as_json(finding, indent=None) for finding in _finding_objects(report))


def check_object(report: Results) -> CheckShape:
    from oomlint import __version__

    ways, judged = ways_in(report), map(judgement_of, report.runs)
    return {
        "version": 1,
        "tool": {"name": "oomlint", "version": __version__},
        "findings": _finding_objects(report),
        "runs": [run_object(each, ways.get(each.name)) for each in judged],
        "errors": [error_object(error) for error in report.all_errors],
        "summary": summary_object(report),
    }


def _finding_objects(report: Results) -> list[FindingShape]:
    places, prints, following = LineIndex(report), Fingerprints(report), leaders(report.diagnoses)
    return [finding_object(d, following.get(d), places, prints) for d in report.diagnoses]


def finding_object(
    diagnosis: Told, leader: Told | None, places: LineIndex, prints: Fingerprints
) -> FindingShape:
    finding = diagnosis.finding
    return {
        "code": finding.rule.code,
        "name": finding.rule.name,
        "severity": cast("Any", finding.severity.label),
        "confidence": finding.confidence,
        "message": finding.message,
        "details": list(finding.details),
        "path": finding.location.path,
        "range": places.range(finding.location),
        "resource": finding.resource,
        "predicted_bytes": finding.predicted_bytes,
        "limit_bytes": finding.limit_bytes,
        "fix": None if diagnosis.fix is None else fix_object(diagnosis.fix),
        "related": [
            {
                "path": note.location.path,
                "range": places.range(note.location),
                "message": note.message,
            }
            for note in finding.notes
        ],
        "run": None if diagnosis.run is None else diagnosis.run.name,
        "cause_bytes": _cause_bytes(diagnosis),
        "evidence": None if finding.evidence is None else cast("Any", finding.evidence.word),
        "ends": ends_word(finding),
        "url": url(finding.rule),
        "fingerprint": prints.of(diagnosis),
        "follows": None if leader is None else prints.of(leader),
    }


def ends_word(finding: Finding) -> Any:
    """``after_load``, how far a run gets that a finding is sure to end before its first step; mostly ``None``."""
    return finding.ends.word if finding.ends is not None and finding.ends_the_run else None


def _cause_bytes(diagnosis: Told) -> int | None:
    """The share of the need at risk that a finding speaks of: what its rule explains of it. What comes and goes
    is another in another phase, so that it is known only where that is the phase of the need at risk."""
    run, finding = diagnosis.run, diagnosis.finding
    if run is None:
        return None
    judgement = judgement_of(run)
    if not is_cause(finding, judgement):
        return None
    peak = next((p for p in judgement.peaks if p.resource == finding.resource), None)
    parts = diagnosis.rule.explains
    if peak is None:
        return None
    if finding.predicted_bytes not in (None, peak.predicted) and _PASSING.intersection(parts):
        return None
    return peak.share_of(parts) or None


def fix_object(fix: Fix) -> FixShape:
    return {
        "title": fix.title,
        "applicability": cast("Any", fix.applicability.label),
        "edits": [edit_object(edit) for edit in fix.edits],
        "predicted_bytes_after": fix.predicted_bytes_after,
    }


def error_object(error: FileError) -> ErrorShape:
    return {
        "path": error.path,
        "kind": error.kind,
        "message": error.message,
        "line": error.line,
        "column": error.column,
    }


def summary_object(report: Results) -> SummaryShape:
    counts = {"error": 0, "warning": 0, "info": 0}
    for diagnosis in report.diagnoses:
        counts[diagnosis.severity.label] += 1
    return {
        "files": len(report.files),
        "files_read": report.files_read,
        "runs": len(report.runs),
        "error": counts["error"],
        "warning": counts["warning"],
        "info": counts["info"],
        "fixable": report.fixable(Applicability.SAFE),
        "fixed": report.fixed,
    }
