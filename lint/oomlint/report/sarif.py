"""The ``sarif`` format: SARIF 2.1.0 as GitHub code scanning takes it, fixes included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from oomlint.documents.text import Location, by_path
from oomlint.linting.engine import Results, Told
from oomlint.linting.rule import Rule, Severity
from oomlint.report.json import ends_word
from oomlint.report.places import Fingerprints, LineIndex, url
from oomlint.report.runs import as_json
from oomlint.wording.addresses import REPOSITORY

if TYPE_CHECKING:
    from oomlint.fix.edits import Fix

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
# What code scanning takes of one run; it shows the first 5,000 (GitHub docs, "SARIF support").
_MOST_RESULTS = 25_000
# It cuts a rule's short description here (the same page).
_MOST_CHARACTERS = 1024
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_PROBLEMS = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.INFO: "recommendation",
}
# From the surest down.
_PRECISION = {"high": "very-high", "medium": "high", "low": "medium"}


def render(report: Results) -> str:
    from oomlint import __version__

    places, prints = LineIndex(report), Fingerprints(report)
    shown = report.diagnoses
    if len(shown) > _MOST_RESULTS:
        shown = tuple(sorted(shown, key=lambda d: -d.severity)[:_MOST_RESULTS])
    rules = sorted({d.rule for d in shown}, key=lambda rule: rule.code)
    index = {rule: number for number, rule in enumerate(rules)}
    results = [_result(d, index[d.rule], places, prints.of(d)) for d in shown]
    errors = report.all_errors
    run = {
        "tool": {
            "driver": {
                "name": "oomlint",
                "semanticVersion": __version__,
                "informationUri": REPOSITORY,
                "rules": [_rule(rule, [d for d in shown if d.rule is rule]) for rule in rules],
            }
        },
        "columnKind": "unicodeCodePoints",
        "automationDetails": {"id": "oomlint/"},
        "invocations": [
            {
                "executionSuccessful": not errors,
                "toolExecutionNotifications": [
                    {
                        "level": "error",
                        "message": {"text": error.message},
                        "locations": [{"physicalLocation": {"artifactLocation": _uri(error.path)}}],
                    }
                    for error in errors
                ],
            }
        ],
        "results": results,
    }
    return as_json({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(rule: type[Rule], found: Sequence[Told]) -> dict[str, Any]:
    page = rule.page()
    worst = max(d.severity for d in found)
    least_sure = max((d.finding.confidence for d in found), key=[*_PRECISION].index)
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.summary[:_MOST_CHARACTERS]},
        "fullDescription": {"text": rule.summary[:_MOST_CHARACTERS]},
        "helpUri": url(rule),
        "help": {"text": page, "markdown": page},
        "properties": {
            "tags": ["memory"],
            "precision": _PRECISION[least_sure],
            "problem.severity": _PROBLEMS[worst],
        },
    }


def _result(diagnosis: Told, rule_index: int, places: LineIndex, print_: str) -> dict[str, Any]:
    finding = diagnosis.finding
    out: dict[str, Any] = {
        "ruleId": finding.rule.code,
        "ruleIndex": rule_index,
        "level": _LEVELS[finding.severity],
        "message": {"text": finding.text},
        "locations": [_place(finding.location, places)],
        # The only fingerprint that code scanning knows findings again by; ours outlives moved lines.
        "partialFingerprints": {"primaryLocationLineHash": print_, "oomlint/v1": print_},
        "properties": {"precision": _PRECISION[finding.confidence]},
    }
    ends = ends_word(finding)
    if ends is not None:
        out["properties"]["endsRun"] = ends
    related = [
        {**_place(note.location, places), "id": number, "message": {"text": note.message}}
        for number, note in enumerate(finding.notes)
    ]
    if related:
        out["relatedLocations"] = related
    fix = diagnosis.applicable
    if fix is not None:
        out["fixes"] = [_fix(fix, places)]
    return out


def _fix(fix: Fix, places: LineIndex) -> dict[str, Any]:
    return {
        "description": {"text": fix.title},
        "properties": {"applicability": fix.applicability.label},
        "artifactChanges": [
            {
                "artifactLocation": _uri(path),
                "replacements": [
                    {
                        "deletedRegion": _region(places.of_edit(edit), places),
                        "insertedContent": {"text": edit.replacement},
                    }
                    for edit in edits
                ],
            }
            for path, edits in by_path(fix.edits).items()
        ],
    }


def _place(location: Location, places: LineIndex) -> dict[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": _uri(location.path),
            "region": _region(location, places),
        }
    }


def _uri(path: str) -> dict[str, str]:
    """A URI reference: relative paths stay so, which code scanning needs."""
    quoted = quote(path, safe="/", errors="surrogateescape")
    return {"uri": f"file://{quoted}" if path.startswith("/") else quoted}


def _region(location: Location, places: LineIndex) -> dict[str, int]:
    start, end = places.start(location), places.end(location)
    return {
        "startLine": start.line,
        "startColumn": start.column,
        "endLine": end.line,
        "endColumn": end.column,
    }
