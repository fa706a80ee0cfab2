"""``--statistics``: how often each rule spoke."""

from __future__ import annotations

from collections import Counter

from oomlint.linting.engine import Results
from oomlint.linting.rule import Applicability
from oomlint.report.paint import Paint
from oomlint.report.runs import as_json


def render(report: Results, output_format: str, paint: Paint) -> str:
    """Counts by rule, the most frequent first; JSON for the JSON formats, else a table."""
    counts = Counter(diagnosis.rule for diagnosis in report.diagnoses)
    fixable = Counter(
        d.rule
        for d in report.diagnoses
        if d.applicable is not None and d.applicable.applicability == Applicability.SAFE
    )
    rows = sorted(counts.items(), key=lambda item: (-item[1], item[0].code))
    if output_format in ("json", "jsonl"):
        objects = [
            {"code": rule.code, "name": rule.name, "count": n, "fixable": fixable[rule]}
            for rule, n in rows
        ]
        if output_format == "json":
            return as_json(objects)
        return "".join(as_json(row, indent=None) for row in objects)
    width = max((len(str(n)) for _, n in rows), default=0)
    return "".join(
        f"{n:>{width}}  {paint(rule.code, 'bold')}  [{'*' if fixable[rule] else ' '}] {rule.name}\n"
        for rule, n in rows
    )
