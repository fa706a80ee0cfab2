"""The text of one comment: what was found, what mends it, and a mark to know it again by."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from oomlint.documents.text import Location
from oomlint.linting.engine import Diagnosis, Told
from oomlint.linting.rule import Applicability
from oomlint.report.markdown import SIGNS, sentence
from oomlint.report.places import LineIndex, url
from oomlint.review.cards import plain
from oomlint.review.forge import Style
from oomlint.review.suggest import Remedy, Suggestion
from oomlint.wording.amounts import gib

_MARK = re.compile(r"<!-- oomlint:finding ([0-9a-f/,-]+) ([0-9a-f]{16}) -->")
_BACKTICKS = re.compile(r"`+")
_MOST_ALIKE = 20


class FailureTopic(Struct, frozen=True, eq=False):
    """Findings that explain one failure: the one that leads, and those that follow it; ``alike`` are those
    that say the same of other places."""

    leader: Diagnosis
    followers: tuple[Diagnosis, ...] = ()
    alike: tuple[Diagnosis, ...] = ()

    @property
    def members(self) -> tuple[Diagnosis, ...]:
        return (self.leader, *self.followers, *self.alike)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def marked(body: str, keys: Iterable[str]) -> str:
    """The body with a line that nobody sees: which findings it is about, and its digest."""
    return f"{body}\n\n<!-- oomlint:finding {','.join(keys)} {digest(body)} -->"


def read_mark(body: str) -> tuple[tuple[str, ...], str] | None:
    """Keys and digest of a comment that :func:`marked` made; ``None`` of any other."""
    found = _MARK.search(body)
    return (tuple(found[1].split(",")), found[2]) if found is not None else None


def topic_text(topic: FailureTopic, places: LineIndex, lines: tuple[str, int, int]) -> list[str]:
    """What was found, for a reader who sees the ``lines``: a path, the first and the last."""
    finding = topic.leader.finding
    sign = SIGNS[topic.leader.severity.label]
    where = _elsewhere(finding.location, places, lines)
    more = [sentence(plain(each)) for each in finding.details]
    more += [f"- `{places.head(note.location)}`: {plain(note.message)}" for note in finding.notes]
    more += [
        f"- also {rule_link(d)}{_elsewhere(d.finding.location, places, lines)}"
        for d in topic.followers
    ]
    more += [
        f"- the same at `{places.head(d.finding.location)}`" for d in topic.alike[:_MOST_ALIKE]
    ]
    if len(topic.alike) > _MOST_ALIKE:
        more.append(f"- and at {len(topic.alike) - _MOST_ALIKE} more places")
    count = len(topic.alike)
    also = f" Here and at {count} more place{'' if count == 1 else 's'}." if count else ""
    return [
        f"{sign} **{sentence(plain(finding.message)).removesuffix('.')}**{where}.{also}",
        folded(f"{rule_link(topic.leader)}", more),
    ]


def folded(title: str, lines: Sequence[str]) -> str:
    """What there is to know besides, behind its title; the title alone where there is nothing."""
    if not lines:
        return f"<sub>{title}</sub>"
    # GitHub reads Markdown in a fold only behind an empty line.
    return "\n".join((f"<details><summary>{title}</summary>", "", *lines, "</details>"))


def rule_link(diagnosis: Told) -> str:
    rule = diagnosis.rule
    return f'<a href="{url(rule)}">{rule.code} {rule.name}</a>'


def _elsewhere(location: Location, places: LineIndex, lines: tuple[str, int, int]) -> str:
    path, first, last = lines
    is_here = location.path == path and first <= places.start(location).line <= last
    return "" if is_here else f" (`{places.head(location)}`)"


def fix_text(diagnosis: Told) -> str:
    """``Fix: turn checkpointing on, then the predicted GPU peak is 61.2 GiB.``"""
    fix = diagnosis.fix
    if fix is None:
        return ""
    text = f"**Fix:** {plain(fix.title)}"
    if fix.predicted_bytes_after is not None:
        where = "host" if diagnosis.finding.resource == "host" else "GPU"
        text += f", then the predicted {where} peak is {gib(fix.predicted_bytes_after)}"
    if fix.applicability is Applicability.UNSAFE and not fix.trains_the_same:
        text += " (may change results)"
    if fix.applicability is Applicability.DISPLAY:
        text += f" (to be done by hand{': ' + plain(fix.reason) if fix.reason else ''})"
    return sentence(text)


def titles(remedy: Remedy) -> str:
    """What the fixes of a remedy do, each said once."""
    found = dict.fromkeys(d.fix.title for d in remedy.fixes if d.fix is not None)
    return plain("; ".join(found))


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
    return f"It goes with the {noun} for {where}: add them to one batch."
