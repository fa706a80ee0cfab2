"""The text of one comment: what was found, what mends it, and a mark to know it again by."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from oomlint.documents.text import Location
from oomlint.engine import Diagnosis
from oomlint.report.markdown import SIGNS, escaped
from oomlint.report.places import Places, url
from oomlint.review.forge import Style
from oomlint.review.suggest import Remedy, Suggestion
from oomlint.rule import Applicability, gib

_MARK = re.compile(r"<!-- oomlint:finding ([0-9a-f/,-]+) ([0-9a-f]{16}) -->")
_BACKTICKS = re.compile(r"`+")


class Topic(Struct, frozen=True, eq=False):
    """Findings that explain one failure: the one that leads, and those that follow it."""

    leader: Diagnosis
    followers: tuple[Diagnosis, ...] = ()

    @property
    def members(self) -> tuple[Diagnosis, ...]:
        return (self.leader, *self.followers)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def marked(body: str, keys: Iterable[str]) -> str:
    """The body with a line that nobody sees: which findings it is about, and its digest."""
    return f"{body}\n\n<!-- oomlint:finding {','.join(keys)} {digest(body)} -->"


def read_mark(body: str) -> tuple[tuple[str, ...], str] | None:
    """Keys and digest of a comment that :func:`marked` made; ``None`` of any other."""
    found = _MARK.search(body)
    return (tuple(found[1].split(",")), found[2]) if found is not None else None


def quiet(text: str) -> str:
    """Text in which nobody is mentioned: names in it come from files that a stranger may write."""
    return text.replace("@", "@\u200b")


def _plain(text: str) -> str:
    return quiet(escaped(text))


def topic_text(topic: Topic, places: Places, lines: tuple[str, int, int]) -> str:
    """What was found, for a reader who sees the ``lines``: a path, the first and the last."""
    finding = topic.leader.finding
    sign = SIGNS[topic.leader.severity.label]
    where = _elsewhere(finding.location, places, lines)
    parts = [f"{sign} **{_name(topic.leader)}**{where}: {_plain(finding.text)}."]
    details = [
        f"- `{places.head(note.location)}`: {_plain(note.message)}" for note in finding.notes
    ]
    details += [
        f"- also {_name(d)}{_elsewhere(d.finding.location, places, lines)}" for d in topic.followers
    ]
    if details:
        parts.append("\n".join(details))
    return "\n\n".join(parts)


def _name(diagnosis: Diagnosis) -> str:
    rule = diagnosis.rule
    return f"[{rule.code} {rule.name}]({url(rule)})"


def _elsewhere(location: Location, places: Places, lines: tuple[str, int, int]) -> str:
    path, first, last = lines
    is_here = location.path == path and first <= places.start(location).line <= last
    return "" if is_here else f" (`{places.head(location)}`)"


def fix_text(diagnosis: Diagnosis) -> str:
    """``Fix: turn checkpointing on, then the predicted GPU peak is 61.2 GiB.``"""
    fix = diagnosis.fix
    if fix is None:
        return ""
    text = f"**Fix:** {_plain(fix.title)}"
    if fix.predicted_bytes_after is not None:
        where = "host" if diagnosis.finding.resource == "host" else "GPU"
        text += f", then the predicted {where} peak is {gib(fix.predicted_bytes_after)}"
    if fix.applicability is Applicability.UNSAFE:
        text += " (may change results)"
    if fix.applicability is Applicability.DISPLAY:
        text += f" (to be done by hand{': ' + _plain(fix.reason) if fix.reason else ''})"
    return text + "."


def remedy_text(remedy: Remedy) -> str:
    """What the fixes of a remedy do, each said once; of several with a predicted peak the last
    one has it, since they build on one another."""
    peaks = [d for d in remedy.fixes if d.fix and d.fix.predicted_bytes_after is not None]
    lines: dict[str, None] = {}
    for diagnosis in remedy.fixes:
        if diagnosis.fix is not None and diagnosis not in peaks[:-1]:
            lines[fix_text(diagnosis)] = None
        elif diagnosis.fix is not None:
            lines[f"**Fix:** {_plain(diagnosis.fix.title)}."] = None
    return "\n".join(lines)


def suggestion_block(suggestion: Suggestion, style: Style) -> str:
    """The fence with the new lines; longer than any run of backticks inside."""
    inside = [run for line in suggestion.lines for run in _BACKTICKS.findall(line)]
    fence = "`" * max(3, *(len(run) + 1 for run in inside), 3)
    word = style.suggestion(suggestion.last - suggestion.first)
    return "\n".join((fence + word, *suggestion.lines, fence))


def companions_text(others: Sequence[Suggestion]) -> str:
    """That a suggestion does not come alone."""
    if not others:
        return ""
    where = ", ".join(f"`{s.path}` line {s.first}" for s in others)
    noun = "suggestion" if len(others) == 1 else "suggestions"
    return f"Take it together with the {noun} for {where}: one without the other is no fix."
