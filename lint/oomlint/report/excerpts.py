"""A finding as people read it: what is wrong, the line of the file, what more there is, the fix."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from oomlint.documents.text import Location
from oomlint.linting.engine import Told
from oomlint.linting.rule import Applicability, Finding
from oomlint.report.paint import Paint, visible
from oomlint.report.places import LineIndex
from oomlint.report.wrapping import columns, glued, wrapped
from oomlint.wording.amounts import gib, of_gib

if TYPE_CHECKING:
    from oomlint.fix.edits import Fix

_TAB = "    "
# What is shown before a mark for which a line is too long.
_NEARBY = 20


def finding_lines(
    diagnosis: Told,
    places: LineIndex,
    paint: Paint,
    width: int,
    *,
    indent: str = "",
    told: Collection[str] = (),
) -> Iterator[str]:
    """A finding without its fix, and without the details that were ``told`` before."""
    finding, label = diagnosis.finding, diagnosis.severity.label
    rule = f"{paint(label, label)} {paint(finding.rule.code, 'bold')} {finding.rule.name}:"
    deeper = f"{indent}  "
    title = visible(" ".join(finding.message.split()))
    yield from wrapped(f"{rule} {title}", width, indent, deeper)
    yield from excerpt(finding.location, label, places, paint, width, indent=deeper)
    for detail in finding.details:
        if detail not in told:
            yield from wrapped(visible(" ".join(detail.split())), width, deeper, f"{deeper}  ")
    for note in finding.notes:
        where = glued(places.head(note.location))
        yield from wrapped(f"{visible(note.message)} ({where})", width, deeper, f"{deeper}  ")


def fix_lines(
    diagnosis: Told, paint: Paint, width: int, *, indent: str, label: str = "fix"
) -> Iterator[str]:
    """What mends a finding: how it is had, what it does, what it brings."""
    fix = diagnosis.fix
    if fix is None:
        return
    numbers = _numbers(diagnosis.finding, fix)
    style = "dim" if fix.applicability is Applicability.DISPLAY else "fix"
    head = paint(f"{label} ({how(fix)}):", style)
    yield from wrapped(f"{head} {visible(fix.title)}{numbers}", width, indent, f"{indent}  ")


def _numbers(finding: Finding, fix: Fix) -> str:
    """``: 88.7 GiB → 61.2 GiB``, a peak before and after; where the fix raises the limit, ``: 207 of 128 GiB → 207
    of 248 GiB``; mostly nothing of what is no peak."""
    before, after = finding.predicted_bytes, fix.predicted_bytes_after
    if finding.resource not in ("gpu", "host") or not before or after is None:
        return ""
    limit, raised = finding.limit_bytes, fix.limit_bytes_after
    if limit is not None and raised is not None:
        return f": {glued(of_gib(before, limit))} → {glued(of_gib(after, raised))}"
    # What is no change of the peak, of speed say, has no numbers: "31.5 GiB → 31.5 GiB" tells nothing.
    return "" if gib(before) == gib(after) else f": {glued(f'{gib(before)} → {gib(after)}')}"


def how(fix: Fix) -> str:
    """``safe, --fix``; of a fix that is only shown, why."""
    if fix.applicability is Applicability.DISPLAY:
        return f"shown only: {fix.reason}" if fix.reason else "shown only"
    option = "--fix" if fix.applicability is Applicability.SAFE else "--fix --unsafe-fixes"
    return f"{fix.applicability.label}, {option}"


def excerpt(
    location: Location, style: str, places: LineIndex, paint: Paint, width: int, *, indent: str = ""
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
    number = str(start.line)
    gutter = " " * len(number)
    before, marked, after = _within(
        width - len(indent) - len(number) - len(" | "),
        *(visible(t.replace("\t", _TAB)) for t in (text[:first], text[first:last], text[last:])),
    )
    bar = paint("|", "dim")
    where = f"{places.head(location)}{places.also(location)}"
    yield f"{indent}{gutter}{paint('-->', 'dim')} {paint(where, 'path')}"
    underline = "^" * max(1, columns(marked))
    yield f"{indent}{paint(number, 'dim')} {bar} {before}{marked}{after}".rstrip()
    yield f"{indent}{gutter} {bar} {' ' * columns(before)}{paint(underline, style)}"


def _within(room: int, before: str, marked: str, after: str) -> tuple[str, str, str]:
    """A line in three parts, cut to so many columns: what is marked is what is to be seen, then what stands
    behind it, and what stands before it where there is no room for all."""
    if columns(before) + columns(marked) + columns(after.rstrip()) <= room:
        return before, marked, after
    if columns(before) + columns(marked) > room - 1:
        before = _end(before, max(0, min(_NEARBY, room - columns(marked) - 1)))
        marked = _start(marked, room - columns(before) - 1)
    return before, marked, _start(after, room - columns(before) - columns(marked))


def _start(text: str, room: int) -> str:
    """The start of a text in so many columns, with a sign where it is cut."""
    if columns(text) <= room:
        return text
    while text and columns(text) >= room:
        text = text[: min(len(text) - 1, max(room, 0))]
    return f"{text}…" if room > 0 else ""


def _end(text: str, room: int) -> str:
    """The end of it."""
    if columns(text) <= room:
        return text
    while text and columns(text) >= room:
        text = text[max(1, len(text) - max(room, 0)) :]
    return f"…{text}" if room > 0 else ""
