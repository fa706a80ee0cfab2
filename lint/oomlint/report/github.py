"""The ``github`` format: workflow commands that GitHub Actions turns into annotations."""

from __future__ import annotations

from collections.abc import Mapping

from oomlint.linting.engine import Results, Told
from oomlint.linting.rule import Severity
from oomlint.report.places import LineIndex

# GitHub keeps the first 10 annotations of each level a step and drops the rest without a word
# (actions/toolkit docs/problem-matchers.md, "Limitations").
MOST = 10
_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def render(report: Results) -> str:
    """The ten worst of each level, and one notice that counts the rest: the last line, but among
    the first ten notices."""
    places = LineIndex(report)
    groups = {
        level: sorted((d for d in report.diagnoses if d.severity == severity), key=_badness)
        for severity, level in _COMMANDS.items()
    }
    lines = [_command(level, d, places) for level, group in groups.items() for d in group[:MOST]]
    rest = sum(max(0, len(group) - MOST) for group in groups.values())
    if rest:
        noun = "finding is" if rest == 1 else "findings are"
        # Behind ten notices it would be the one that GitHub drops.
        behind = 1 if len(groups["notice"]) >= MOST else 0
        lines.insert(
            len(lines) - behind,
            f"::notice title=oomlint::{rest} more {noun} not shown; run oomlint to see all",
        )
    return "".join(line + "\n" for line in lines)


def _badness(diagnosis: Told) -> float:
    """By how much the limit is passed, the most first; the file's order otherwise."""
    finding = diagnosis.finding
    if finding.predicted_bytes is None or not finding.limit_bytes:
        return 0.0
    return -finding.predicted_bytes / finding.limit_bytes


def _command(level: str, diagnosis: Told, places: LineIndex) -> str:
    location = diagnosis.finding.location
    start, end = places.start(location), places.end(location)
    properties: dict[str, object] = {
        "file": location.path,
        "line": start.line,
        "endLine": end.line,
    }
    if start.line == end.line:
        # GitHub shows columns of a single line only.
        properties |= {"col": start.column, "endColumn": max(end.column, start.column)}
    properties["title"] = f"{diagnosis.rule.code} {diagnosis.rule.name}"
    return command(level, properties, diagnosis.finding.text)


def command(level: str, properties: Mapping[str, object], text: str) -> str:
    """``::error file=a.yaml,line=3::text``"""
    head = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items())
    return f"::{level} {head}::{escaped(text)}"


def escaped(text: str) -> str:
    """As @actions/core escapes a message (packages/core/src/command.ts)."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return escaped(text).replace(":", "%3A").replace(",", "%2C")
