"""The summary of a review: what the change does to the memory of runs, and what fits in no comment."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from oomlint import __version__
from oomlint.documents.text import Source
from oomlint.judgement import Forecast
from oomlint.judgement.words import ending
from oomlint.linting.rule import Severity
from oomlint.report import diff
from oomlint.report.markdown import AS_WRITTEN, SIGNS, escaped, line, sentence, verdict
from oomlint.report.places import LineIndex
from oomlint.review import blame, cards
from oomlint.review.assess import Assessment, Card, RunChange
from oomlint.review.cards import code, quiet, span
from oomlint.review.commands import fix_command
from oomlint.review.comment import FailureTopic, digest, titles
from oomlint.review.suggest import Remedy, change_of
from oomlint.wording.amounts import gib

MOST_RUNS = 50
_MOST_LISTED = 50
_MARK = re.compile(r"<!-- oomlint:summary ([0-9a-f]{16}) -->")
# A prediction that moves by less is no news.
_NEWS = 0.01


class Rest(Struct, frozen=True, eq=False):
    """What no comment on a line says: what to do about each card, findings elsewhere, and remedies that
    reach elsewhere."""

    ways: Mapping[Card, str]
    topics: Sequence[FailureTopic]
    remedies: Sequence[Remedy]


def has_news(assessment: Assessment) -> bool:
    """Whether anybody would miss a review that is not there."""
    return bool(
        assessment.report.at_least(Severity.WARNING)
        or assessment.cards
        or assessment.report.errors
        or _moved(assessment)
        or _new(assessment)
    )


def summary(
    assessment: Assessment,
    rest: Rest,
    *,
    in_comments: int,
    most: int,
    notes: Sequence[str] = (),
) -> str:
    """The summary in at most ``most`` characters: diffs go first, then findings.

    ``in_comments``: how many comments stand on lines.
    """
    places = LineIndex(assessment.report)
    sources = {
        edit.path: places.source(edit.path)
        for remedy in rest.remedies
        for edit in remedy.edits
        if not edit.creates
    }
    head = [*_head(assessment, rest, in_comments), *notes]
    listed = list(_listed(rest.topics, places, _MOST_LISTED))
    shown = [*_fold(assessment)] if assessment.cards or assessment.report.diagnoses else []
    commands = list(_commands(rest.remedies, assessment.flags))
    for parts in (
        (*head, *listed, *_diffs(rest.remedies, sources, assessment.flags), *shown),
        (*head, *listed, *commands, *shown),
        (*head, *_listed(rest.topics, places, 5), *shown),
        (*head, *shown),
        head,
    ):
        text = "\n".join(parts).strip("\n") or "No run needs more memory by this change."
        if len(text) < most - 200:
            break
    else:
        text = text[: most - 300] + "\n\n…"
    mark = digest(text)
    return f"{text}\n\n<!-- oomlint {__version__} -->\n<!-- oomlint:summary {mark} -->"


def is_summary(body: str) -> bool:
    return _MARK.search(body) is not None


# -- what the change does ------------------------------------------------------------------


def _head(assessment: Assessment, rest: Rest, in_comments: int) -> Iterator[str]:
    for card in assessment.cards:
        yield f"{cards.sign(card)} **{cards.headline(card)}.** {rest.ways.get(card, '')}".rstrip()
        yield ""
    yield from _news(assessment)
    spoken = {d for card in assessment.cards for d in card.members}
    others = [d for d in assessment.report.diagnoses if d not in spoken]
    count = sum(d.severity > Severity.INFO for d in others)
    if count:
        found = _count(count, "finding")
        yield f"This change causes {found}{' more' if assessment.cards else ''}."
    if in_comments:
        yield f"See the comment{'' if in_comments == 1 else 's'} below."
    for error in assessment.report.errors[:_MOST_LISTED]:
        where = error.path if error.line is None else f"{error.path}:{error.line}"
        yield f"- ❌ `{where}` cannot be read: {quiet(escaped(error.message))}"


def _news(assessment: Assessment) -> Iterator[str]:
    """What else the change does to runs, a line each: what is better, what is different, what is new."""
    groups: dict[Hashable, list[RunChange]] = {}
    for run in _moved(assessment):
        assert run.before is not None
        assert run.after is not None
        was, now = run.before.outcome == "fits", run.after.outcome
        outcome = was, now, ending(run.after), _sign(run)
        groups.setdefault(outcome, []).append(run)
    for runs in groups.values():
        yield f"{_sign(runs[0])} {sentence(cards.news(runs))}"
        yield ""
    for run in _new(assessment)[:_MOST_LISTED]:
        assert run.after is not None
        spoken = run.after.spoken
        need = _peak(spoken.estimate.gpu.peak_bytes)
        yield f"{code(run.name)} (new) needs {need} per GPU: {quiet(verdict(spoken))}."
        yield ""


def _told(assessment: Assessment) -> frozenset[str]:
    return frozenset(name for card in assessment.cards for name in card.names)


def _moved(assessment: Assessment) -> list[RunChange]:
    """Runs of no card whose need or verdict is another."""
    told = _told(assessment)
    return [
        run
        for run in assessment.runs
        if run.name not in told and not run.is_fragment and _has_moved(run)
    ]


def _has_moved(run: RunChange) -> bool:
    if run.before is None or run.after is None:
        return False
    if run.before.outcome != run.after.outcome or run.before.hardware != run.after.hardware:
        return True
    pairs = ((blame.peak(run.before, r), blame.peak(run.after, r)) for r in ("gpu", "host"))
    return any((a is None) != (b is None) or abs((a or 0) - (b or 0)) > _NEWS * (a or 1) for a, b in pairs)  # fmt: skip


def _sign(run: RunChange) -> str:
    """For the better, for the worse, or neither."""
    assert run.before is not None
    assert run.after is not None
    if (run.before.outcome == "ends") != (run.after.outcome == "ends"):
        return SIGNS["error"] if run.after.endings else "✅"
    was, now = blame.rank(run.before), blame.rank(run.after)
    if was == now:
        sizes = blame.peak(run.before, "gpu") or 0, blame.peak(run.after, "gpu") or 0
        return "✅" if sizes[1] < sizes[0] else SIGNS["info"]
    return "✅" if now < was else SIGNS["warning"]


def _new(assessment: Assessment) -> list[RunChange]:
    """New runs of no card of which something is predicted."""
    told = _told(assessment)
    return [
        run
        for run in assessment.runs
        if run.before is None
        and run.after is not None
        and run.name not in told
        and not run.is_fragment
        and not run.after.spoken.estimate.unknown
    ]


# -- the table ----------------------------------------------------------------------------


def _fold(assessment: Assessment) -> Iterator[str]:
    """The runs that the change concerns, one row for all that are alike."""
    shown = [run for run in assessment.runs if not run.is_fragment]
    if not shown:
        return
    yield ""
    yield f"<details><summary>Memory of {_count(len(shown), 'run')}, before and after</summary>"
    yield ""
    yield from table(shown)
    yield "</details>"


_Row: TypeAlias = tuple[str, str, str, str]
"""How the run was read, whether it is new, its hardware and its verdict."""


def table(runs: Iterable[RunChange]) -> Iterator[str]:
    """Peaks and verdicts; those of runs with the same cause and verdict in one row."""
    yield "| run | hardware | per GPU | per host | verdict |"
    yield "| --- | --- | ---: | ---: | --- |"
    groups: dict[_Row, list[list[Forecast | None]]] = {}
    named: dict[_Row, list[str]] = {}
    # What changes is what people look for.
    for run in sorted(runs, key=lambda run: not run.has_changed):
        for reading, sides in _readings(run):
            key = (
                reading,
                "new" if run.before is None else "no more" if run.after is None else "",
                _arrow(sides, lambda f: f.hardware.name if f.hardware else "unknown"),
                quiet(_arrow(sides, verdict)),
            )
            groups.setdefault(key, []).append(sides)
            named.setdefault(key, []).append(run.name)
    for number, (key, rows) in enumerate(groups.items()):
        if number >= MOST_RUNS:
            yield f"| and {len(groups) - MOST_RUNS} more rows | | | | |"
            return
        reading, state, hardware, judged = key
        name = cards.names(named[key]) + reading + (f" ({state})" if state else "")
        gpu = _spans(rows, lambda f: f.estimate.gpu.peak_bytes)
        host = _spans(rows, lambda f: f.estimate.host.peak_bytes)
        yield f"| {name} | {hardware} | {gpu} | {host} | {judged} |"


def _readings(run: RunChange) -> Iterator[tuple[str, list[Forecast | None]]]:
    """The run as findings speak of it; one with misspelt keys, before or after, as it is written too."""
    before, after = run.before, run.after
    spoken = [each.spoken if each is not None else None for each in (before, after)]
    because = dict.fromkeys(text for each in spoken if each is not None for text in each.because)
    yield f" (with {escaped(' and '.join(because))})" if because else "", spoken
    if because:
        written = [each.written if each is not None else None for each in (before, after)]
        yield f" ({AS_WRITTEN})", written


def _peak(size: int | None) -> str:
    return "not known" if size is None else gib(size)


def _spans(
    rows: Sequence[Sequence[Forecast | None]], size: Callable[[Forecast], int | None]
) -> str:
    """``26.7 GiB → **128 to 149 GiB**``, or the one value where nothing changes."""
    cells = []
    for side in (0, 1):
        there = [row[side] for row in rows]
        found = [n for each in there if each is not None and (n := size(each)) is not None]
        known = span(found) if found else "not known"
        cells.append(known if any(each is not None for each in there) else "")
    before, after = cells
    if before and after and before != after:
        return f"{before} → **{after}**"
    return after or before


def _arrow(sides: Sequence[Forecast | None], cell: Callable[[Forecast], str]) -> str:
    """``fits → **does not fit**``, or the one value where nothing changes."""
    before, after = (None if side is None else cell(side) for side in sides)
    if before is not None and after is not None and before != after:
        return f"{before} → **{after}**"
    return after or before or ""


# -- findings and fixes -----------------------------------------------------------------------


def _listed(topics: Sequence[FailureTopic], places: LineIndex, most: int) -> Iterator[str]:
    if not topics:
        return
    # Remarks are for those who ask.
    told = [topic for topic in topics if topic.leader.severity > Severity.INFO]
    remarks = [topic for topic in topics if topic not in told]
    if told:
        yield ""
        yield "#### Findings on lines that the diff does not show"
        yield ""
        yield from _items(told, places, most)
    if remarks:
        yield ""
        yield f"<details><summary>{_count(len(remarks), 'remark')}</summary>"
        yield ""
        yield from _items(remarks, places, most)
        yield "</details>"


def _items(topics: Sequence[FailureTopic], places: LineIndex, most: int) -> Iterator[str]:
    for topic in topics[:most]:
        more = f" Also at {_count(len(topic.alike), 'more place')}." if topic.alike else ""
        yield quiet(line(topic.leader, places)) + more
        for diagnosis in topic.followers[:most]:
            yield quiet(line(diagnosis, places))
    if len(topics) > most:
        yield f"- and {len(topics) - most} more"


def _diffs(
    remedies: Sequence[Remedy], sources: Mapping[str, Source], flags: Sequence[str]
) -> Iterator[str]:
    """A fold for each thing that is to be done, however many files it is to be done in."""
    alike: dict[str, list[Remedy]] = {}
    for remedy in remedies:
        alike.setdefault(titles(remedy) or "lines to put back", []).append(remedy)
    for title, group in alike.items():
        changes = {k: v for remedy in group for k, v in change_of(remedy, sources).items()}
        text = diff.render(
            {path: after for path, (_, after) in changes.items()},
            {path: before for path, (before, _) in changes.items()},
        )
        fence = "`" * max(4, *(len(run) + 1 for run in re.findall("`+", text)), 4)
        yield ""
        yield f"<details><summary>Beyond the lines of the diff: {title}</summary>"
        yield ""
        yield f"{fence}diff\n{text}{fence}"
        if any(remedy.fixes for remedy in group):
            yield ""
            yield f"`{_command(group, flags)}` does this too."
        yield "</details>"


def _commands(remedies: Sequence[Remedy], flags: Sequence[str]) -> Iterator[str]:
    fixing = [remedy for remedy in remedies if remedy.fixes]
    if fixing:
        yield ""
        yield f"Fixes beyond the lines of the diff: run `{_command(fixing, flags)}`."
    back = list(dict.fromkeys(path for r in remedies if not r.fixes for path in r.paths))
    if back:
        yield ""
        yield f"The same lines are to be put back in {cards.names(back).replace('runs', 'files')}."


def _command(remedies: Sequence[Remedy], flags: Sequence[str]) -> str:
    """What makes these fixes: files that a fix adds are no files to name yet, runs are."""
    runs = dict.fromkeys(
        d.run.name if d.run is not None else d.finding.location.path
        for remedy in remedies
        for d in remedy.fixes
    )
    return fix_command(list(runs), flags)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
