"""A finding as people read it: what is wrong, the line of the file, what more there is, the fix."""

from __future__ import annotations

from collections.abc import Iterator
from unicodedata import category, combining, east_asian_width

from oomlint.amounts import gib
from oomlint.documents.text import Location
from oomlint.engine import Diagnosis
from oomlint.fix.edits import Fix
from oomlint.report.paint import Paint, visible
from oomlint.report.places import Places
from oomlint.report.wrapping import wrapped
from oomlint.rule import Applicability

_TAB = "    "
_WIDEST = 160


def finding_lines(
    diagnosis: Diagnosis, places: Places, paint: Paint, width: int, *, indent: str = ""
) -> Iterator[str]:
    """A finding without its fix."""
    finding, label = diagnosis.finding, diagnosis.severity.label
    rule = f"{paint(label, label)} {paint(finding.rule.code, 'bold')} {finding.rule.name}:"
    deeper = f"{indent}  "
    title = visible(" ".join(finding.message.split()))
    yield from wrapped(f"{rule} {title}", width, indent, deeper)
    yield from excerpt(finding.location, label, places, paint, indent=deeper)
    for detail in finding.details:
        yield from wrapped(visible(" ".join(detail.split())), width, deeper, deeper)
    for note in finding.notes:
        where = places.head(note.location)
        yield from wrapped(f"{visible(note.message)} ({where})", width, deeper, deeper)


def fix_lines(
    diagnosis: Diagnosis, paint: Paint, width: int, *, indent: str, label: str = "fix"
) -> Iterator[str]:
    """What mends a finding: how it is had, what it does, what it brings."""
    fix = diagnosis.fix
    if fix is None:
        return
    before, after = diagnosis.finding.predicted_bytes, fix.predicted_bytes_after
    is_a_peak = diagnosis.finding.resource in ("gpu", "host") and before
    numbers = f": {gib(before)} → {gib(after)}" if is_a_peak and after is not None else ""
    head = paint(f"{label} ({how(fix)}):", "fix")
    yield from wrapped(f"{head} {visible(fix.title)}{numbers}", width, indent, f"{indent}  ")


def how(fix: Fix) -> str:
    """``safe, --fix``; of a fix that is only shown, why."""
    if fix.applicability is Applicability.DISPLAY:
        return f"shown only: {fix.reason}" if fix.reason else "shown only"
    option = "--fix" if fix.applicability is Applicability.SAFE else "--fix --unsafe-fixes"
    return f"{fix.applicability.label}, {option}"


def excerpt(
    location: Location, style: str, places: Places, paint: Paint, *, indent: str = ""
) -> Iterator[str]:
    """Where a span is, and its first line with its text underlined; nothing for an empty file."""
    source = places.source(location.path)
    start = places.start(location)
    if not source.text:
        return
    line = source.line_span(start.line)
    text = source.text[line.start : line.end]
    first = start.column - 1
    last = max(first + 1, min(location.span.end - line.start, len(text)))
    before, marked, after = (
        visible(t.replace("\t", _TAB)) for t in (text[:first], text[first:last], text[last:])
    )
    width = _width(before)
    if width + _width(marked) > _WIDEST:
        # A minified file: only the neighbourhood of the span is of use.
        before, marked, after = "…" + before[-40:], marked[: _WIDEST - 60], "…"
        width = _width(before)
    number = str(start.line)
    bar = paint("|", "dim")
    gutter = " " * len(number)
    where = f"{places.head(location)}{places.also(location)}"
    yield f"{indent}{gutter}{paint('-->', 'dim')} {paint(where, 'path')}"
    tail = after[: max(0, _WIDEST - width - _width(marked))]
    underline = "^" * max(1, _width(marked))
    yield f"{indent}{paint(number, 'dim')} {bar} {before}{marked}{tail}".rstrip()
    yield f"{indent}{gutter} {bar} {' ' * width}{paint(underline, style)}"


def _width(text: str) -> int:
    """Terminal columns: wide East Asian characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if combining(c) or category(c) == "Cf" else 2 if east_asian_width(c) in "WF" else 1
        for c in text
    )
