"""The ``text`` format: findings with their source line, fix and numbers, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from unicodedata import category, combining, east_asian_width

from oomlint.documents.text import Location
from oomlint.engine import Diagnosis, Report
from oomlint.fix.edits import Fix
from oomlint.judgement import Forecast, judgement_of
from oomlint.precedence import leaders
from oomlint.report.concise import head
from oomlint.report.json import fixable
from oomlint.report.paint import Paint, visible
from oomlint.report.places import Places
from oomlint.report.runs import sentence
from oomlint.rule import Applicability, gib

_PLAIN = Paint()
_TAB = "    "
_WIDEST = 160
_VERDICT_STYLE = {"fits": "good", "tight": "tight", "does_not_fit": "bad", "unknown": "dim"}


def render(report: Report, paint: Paint = _PLAIN, *, quiet: bool = False) -> str:
    """Findings; then, unless ``quiet``, a line per run and the summary."""
    places = Places(report)
    following = leaders(report.diagnoses)
    blocks = [
        "\n".join(_finding(leader, followers, places, paint)) + "\n\n"
        for leader, followers in _led(report.diagnoses, following)
    ]
    if quiet:
        return "".join(blocks)
    lines = [run_line(judgement_of(run).spoken, paint) for run in report.runs]
    return "".join([*blocks, *(line + "\n" for line in lines), summary(report, paint) + "\n"])


def run_line(forecast: Forecast, paint: Paint = _PLAIN) -> str:
    return paint(sentence(forecast), _VERDICT_STYLE[forecast.verdict])


def _led(
    diagnoses: Sequence[Diagnosis], following: Mapping[Diagnosis, Diagnosis]
) -> Iterator[tuple[Diagnosis, list[Diagnosis]]]:
    """Each finding that leads or stands alone, with those that explain the same failure."""
    followers: dict[Diagnosis, list[Diagnosis]] = {}
    for diagnosis, leader in following.items():
        followers.setdefault(leader, []).append(diagnosis)
    for diagnosis in diagnoses:
        if diagnosis not in following:
            yield diagnosis, followers.get(diagnosis, [])


def _finding(
    diagnosis: Diagnosis, followers: Sequence[Diagnosis], places: Places, paint: Paint
) -> Iterator[str]:
    finding = diagnosis.finding
    yield head(diagnosis, places, paint)
    yield from excerpt(finding.location, diagnosis.severity.label, places, paint)
    for note in finding.notes:
        yield f"  {paint('note:', 'bold')} {places.head(note.location)}: {visible(note.message)}"
    if diagnosis.fix is not None:
        yield f"  {paint('fix:', 'fix')} {_fix(diagnosis, diagnosis.fix)}"
    for follower in followers:
        yield from _follower(follower, diagnosis, places, paint)


def _follower(
    diagnosis: Diagnosis, leader: Diagnosis, places: Places, paint: Paint
) -> Iterator[str]:
    """What another rule says of the same failure, without what the leader has said already."""
    finding = diagnosis.finding
    label = diagnosis.severity.label
    where = paint(places.head(finding.location), "path")
    name = f"{paint(label, label)} {paint(finding.rule.code, 'bold')} {finding.rule.name}"
    rest = _beyond(finding.message, leader.finding.message)
    yield f"  also: {where}: {name} {visible(' '.join(rest.split()))}"
    for note in finding.notes:
        yield f"    {paint('note:', 'bold')} {places.head(note.location)}: {visible(note.message)}"
    if diagnosis.fix is not None:
        yield f"    {paint('fix:', 'fix')} {_fix(diagnosis, diagnosis.fix)}"


def _beyond(message: str, said: str) -> str:
    """A message without the sentences that another one begins with as well."""
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(message, said, strict=False))
    shared = "".join(letter for letter, _ in alike)
    cut = max(shared.rfind(end) for end in (". ", "; "))
    return message if cut < 0 else message[cut + 2 :]


def _fix(diagnosis: Diagnosis, fix: Fix) -> str:
    text = visible(fix.title)
    after = fix.predicted_bytes_after
    if fix.applicability == Applicability.DISPLAY:
        why = f": {fix.reason}" if fix.reason else ""
        text += f" [shown only{why}]"
    else:
        text += f" [{fix.applicability.label}]"
    if after is not None:
        where = "host" if diagnosis.finding.resource == "host" else "GPU"
        text += f", then the predicted {where} peak is {gib(after)}"
    return text


def excerpt(location: Location, style: str, places: Places, paint: Paint = _PLAIN) -> Iterator[str]:
    """The first line of a span with its text underlined; nothing for an empty file."""
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
    tail = after[: max(0, _WIDEST - width - _width(marked))]
    underline = "^" * max(1, _width(marked))
    yield f"{gutter} {bar}"
    yield f"{paint(number, 'dim')} {bar} {before}{marked}{tail}".rstrip()
    yield f"{gutter} {bar} {' ' * width}{paint(underline, style)}"


def _width(text: str) -> int:
    """Terminal columns: wide East Asian characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if combining(c) or category(c) == "Cf" else 2 if east_asian_width(c) in "WF" else 1
        for c in text
    )


def summary(report: Report, paint: Paint = _PLAIN) -> str:
    """``2 errors, 1 warning, 3 notes in 1 run; 2 fixable with --fix, 1 more with --unsafe-fixes``"""
    counts = dict.fromkeys(("error", "warning", "info"), 0)
    for diagnosis in report.diagnoses:
        counts[diagnosis.severity.label] += 1
    runs = _count(len(report.runs), "run")
    parts = [
        paint(_count(counts[label], noun), label)
        for label, noun in (("error", "error"), ("warning", "warning"), ("info", "note"))
        if counts[label]
    ]
    if not report.runs and not report.diagnoses:
        text = f"no training run found in {_count(report.files_read, 'file')}"
    else:
        text = f"{', '.join(parts) or paint('no findings', 'good')} in {runs}"
    if report.fixed:
        text += f"; {report.fixed} fixed"
    safe, unsafe = fixable(report, Applicability.SAFE), fixable(report, Applicability.UNSAFE)
    hints = []
    if safe:
        hints.append(f"{safe} fixable with --fix")
    if unsafe:
        more = "more " if safe else "fixable "
        hints.append(f"{unsafe} {more}with --unsafe-fixes")
    if hints:
        text += f"; {', '.join(hints)}"
    if report.errors:
        text += f"; {_count(len(report.errors), 'file')} could not be used"
    return text


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def error_line(path: str, line: int | None, column: int | None, message: str, paint: Paint) -> str:
    """``path:line:column: cannot be read: …`` for the error stream."""
    where = ":".join(str(part) for part in (path, line, column) if part is not None)
    said = visible(" ".join(message.split()))
    return f"{paint(visible(where), 'path')}: {paint('error', 'error')}: {said}"
