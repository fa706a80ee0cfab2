"""The ``gitlab`` format: a Code Quality report (GitLab docs, ci/testing/code_quality)."""

from __future__ import annotations

from oomlint.linting.engine import Results
from oomlint.linting.rule import Severity
from oomlint.report.places import Fingerprints, LineIndex
from oomlint.report.runs import as_json

_LEVELS = {Severity.ERROR: "critical", Severity.WARNING: "major", Severity.INFO: "info"}


def render(report: Results) -> str:
    places, prints = LineIndex(report), Fingerprints(report)
    return as_json(
        [
            {
                "description": f"{d.rule.code} {d.rule.name}: {d.finding.text}",
                "check_name": d.rule.name,
                "fingerprint": prints.of(d),
                "severity": _LEVELS[d.severity],
                "location": {
                    "path": d.finding.location.path,
                    "lines": {
                        "begin": places.start(d.finding.location).line,
                        "end": places.end(d.finding.location).line,
                    },
                },
            }
            for d in report.diagnoses
        ]
    )
