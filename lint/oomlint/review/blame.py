"""What of a change made runs need more, and what they would need with that put back.

A change of files comes in :class:`Turn`\\ s: places of whole lines, each with the edit that makes them what
they were. A turn is to blame for a run if the run without it, linked and judged as any run is, needs less.
So nothing is guessed from names of keys: what is said to be a cause was taken back, and the need fell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from oomlint.documents.difference import difference
from oomlint.documents.text import Edit, Source, Span
from oomlint.judgement import Judgement, Verdict, judgement_of
from oomlint.judgement.comparison import compare
from oomlint.judgement.planner.training import trains_the_same
from oomlint.linting.rule import short
from oomlint.runs.run import Run

Relink = Callable[[Sequence[Edit], Collection[str]], Mapping[str, Run]]
"""The runs of these names as they would be after edits of their files."""

# What moves a peak by less explains nothing.
_LEAST = 0.01
# Beyond so many places in a file it is another file, and is taken back as a whole.
_MOST_PLACES = 12
_LONGEST_VALUE = 32

_RANKS: Mapping[Verdict, int] = {"fits": 0, "unknown": 1, "tight": 2, "does_not_fit": 3}
# ``key: value``, ``"key": value`` and ``key = value``, for lines that no framework's table knows.
_LINE = re.compile(r"""^\s*(?:-\s+)?["']?([\w.-]+)["']?\s*[:=]\s*(.*?),?\s*(?:#.*)?$""")


class KeyBeforeAfter(Struct, frozen=True, order=True):
    """What a file says of a key, before and after; empty where it does not say it."""

    key: str
    before: str
    after: str


class Turn(Struct, frozen=True):
    """One place that a change turned, and the edit of whole lines that puts it back."""

    edit: Edit
    said: tuple[KeyBeforeAfter, ...]

    @property
    def path(self) -> str:
        return self.edit.path


class Worse(Struct, frozen=True, eq=False):
    """A run that needs more than before, or too much, and the turns that are to blame, the gravest first.

    ``said`` are these in words, or what else differs where the run's own files do not: the hardware, the
    version of a library.
    """

    before: Run
    after: Run
    turns: tuple[Turn, ...]
    said: tuple[KeyBeforeAfter, ...]


class Undo(Struct, frozen=True, eq=False):
    """Lines put back, and what comes of it. ``keeps``: whether what is trained stays what the change makes
    of it, so that nothing but memory is given up."""

    turns: tuple[Turn, ...]
    after: Mapping[str, Judgement]
    keeps: bool

    @property
    def edits(self) -> tuple[Edit, ...]:
        return tuple(sorted({turn.edit for turn in self.turns}))

    @property
    def said(self) -> tuple[KeyBeforeAfter, ...]:
        return tuple(dict.fromkeys(said for turn in self.turns for said in turn.said))


class BlamedChange(Struct, frozen=True, eq=False):
    """One cause with all runs that it made worse. ``undo`` is the best of what putting back can do, ``None``
    where no line can be put back."""

    said: tuple[KeyBeforeAfter, ...]
    worse: tuple[Worse, ...]
    undo: Undo | None

    @property
    def resource(self) -> Literal["gpu", "host"]:
        return resource_of(judgement_of(self.worse[0].after))


def resource_of(judgement: Judgement) -> Literal["gpu", "host"]:
    """The need that a run in trouble is spoken of by."""
    return judgement.peaks[0].resource if judgement.peaks else "gpu"


def peak(judgement: Judgement, resource: Literal["gpu", "host"]) -> int | None:
    return judgement.spoken.estimate.of(resource).peak_bytes


def rank(judgement: Judgement) -> int:
    """How bad a verdict is: 0 where the run fits, or where nobody says what there is to fit into."""
    return 0 if judgement.hardware is None else _RANKS[judgement.verdict]


def is_worse(before: Judgement, after: Judgement) -> bool:
    """Whether a run in trouble, or one whose limits are unknown, was not before, or needs more of what it has
    too little of."""
    if after.hardware is not None and not after.is_in_trouble:
        return False
    return rank(after) > rank(before) or _rises(before, after, resource_of(after))


def _rises(before: Judgement, after: Judgement, resource: Literal["gpu", "host"]) -> bool:
    was, now = peak(before, resource), peak(after, resource)
    return was is not None and now is not None and now > was * (1 + _LEAST)


def worst(judged: Iterable[Judgement]) -> int:
    return max(map(rank, judged), default=0)


# -- causes ----------------------------------------------------------------------------------


def causes(
    worse: Sequence[tuple[Run, Run]], turns: Sequence[Turn], relink: Relink
) -> list[BlamedChange]:
    """The causes of what became worse, runs before and after, the one with most runs first."""
    alone = [(turn, relink((turn.edit,), _using(turn, worse))) for turn in turns]
    blamed = [_blamed(before, after, alone, relink) for before, after in worse]
    groups: dict[tuple[KeyBeforeAfter, ...], list[Worse]] = {}
    for each in blamed:
        groups.setdefault(each.said, []).append(each)
    found = [
        BlamedChange(said, tuple(group), _undo(group, relink)) for said, group in groups.items()
    ]
    return sorted(found, key=lambda cause: -len(cause.worse))


def _using(turn: Turn, worse: Iterable[tuple[Run, Run]]) -> frozenset[str]:
    return frozenset(after.name for _, after in worse if turn.path in after.sources)


def _blamed(
    before: Run, after: Run, alone: Sequence[tuple[Turn, Mapping[str, Run]]], relink: Relink
) -> Worse:
    own = [turn for turn, _ in alone if turn.path in after.sources]
    judged = judgement_of(after)
    gains = [
        (_gain(judged, judgement_of(runs[after.name])), turn)
        for turn, runs in alone
        if turn.path in after.sources and after.name in runs
    ]
    found = [turn for gain, turn in sorted(gains, key=lambda pair: -pair[0]) if gain > 0]
    if not found and len(own) > 1:  # none does it alone
        without = relink([turn.edit for turn in own], (after.name,)).get(after.name)
        if without is not None and _gain(judged, judgement_of(without)) > 0:
            found = own
    said = tuple(dict.fromkeys(said for turn in found for said in turn.said))
    return Worse(before, after, tuple(found), said or tuple(_beyond_files(before, after)))


def _gain(after: Judgement, undone: Judgement) -> float:
    """What a run gains by what was put back: verdicts count more than bytes; 0 where it gains nothing."""
    resource = resource_of(after)
    now, then = peak(after, resource), peak(undone, resource)
    if now is None or then is None or (rank(undone) > rank(after)):
        return 0.0
    saved = (now - then) / max(now, 1)
    better = rank(after) - rank(undone)
    return better + max(saved, 0.0) if better or saved >= _LEAST else 0.0


def _beyond_files(before: Run, after: Run) -> Iterator[KeyBeforeAfter]:
    """What differs where no line of the run's files does."""
    old, new = before.hardware, after.hardware
    if old != new:
        yield KeyBeforeAfter(
            "hardware", old.name if old else "unknown", new.name if new else "unknown"
        )
        return
    resource = resource_of(judgement_of(after))
    steps = [s for s in compare(before, after).steps if (s.of(resource).step or 0) > 0]
    for step in sorted(steps, key=lambda step: -(step.of(resource).step or 0))[:1]:
        for each in step.differences[:1]:
            yield KeyBeforeAfter(each.field, short(each.a.value), short(each.b.value))


# -- putting back ----------------------------------------------------------------------------


def _undo(group: Sequence[Worse], relink: Relink) -> Undo | None:
    """The best of: each thing put back alone, all of them."""
    turns = list(dict.fromkeys(turn for each in group for turn in each.turns))
    kinds = list(dict.fromkeys(turn.said for turn in turns))
    picks = [[turn for turn in turns if turn.said == kind] for kind in kinds]
    picks += [turns] if len(kinds) > 1 else []
    found = [undo for pick in picks if pick and (undo := _put_back(pick, group, relink))]
    return min(found, key=order, default=None)


def _put_back(pick: Sequence[Turn], group: Sequence[Worse], relink: Relink) -> Undo | None:
    names = frozenset(each.after.name for each in group)
    runs = relink(sorted({turn.edit for turn in pick}), names)
    if runs.keys() != names:
        return None
    keeps = all(trains_the_same(runs[each.after.name].plan, each.after.plan) for each in group)
    return Undo(tuple(pick), {name: judgement_of(run) for name, run in runs.items()}, keeps)


def order(undo: Undo) -> tuple[int, bool, int]:
    """What is better comes first: the verdicts that it leads to, then that it keeps what is trained, then
    that it is short."""
    return worst(undo.after.values()), not undo.keeps, len({turn.said for turn in undo.turns})


def is_settled(undo: Undo) -> bool:
    """Whether no other way can be better."""
    return undo.keeps and worst(undo.after.values()) == 0


def wins(undo: Undo, after: Collection[Judgement], *, keeps: bool) -> bool:
    """Whether putting back is the better way than one that leads to ``after``: of two that are as good it
    is, for what it leads to has been before."""
    return (worst(undo.after.values()), not undo.keeps) <= (worst(after), not keeps)


# -- turns -----------------------------------------------------------------------------------


def turns_of(old: Source, new: Source, before: Sequence[Run], after: Sequence[Run]) -> list[Turn]:
    """The places of a file that differ, in order, with what ``before`` and ``after`` read there."""
    were, are = _entries(before, old), _entries(after, new)
    found = []
    shift = 0
    edits = difference(new, old)
    for edit in edits if len(edits) <= _MOST_PLACES else [_whole(new, old)]:
        was = Span(edit.start + shift, edit.start + shift + len(edit.replacement))
        shift += len(edit.replacement) - (edit.end - edit.start)
        for piece, span in _pieces(edit, was, new, old):
            found.append(Turn(piece, _said(piece, span, were, are, new, old)))
    return found


def _whole(new: Source, old: Source) -> Edit:
    return Edit(new.path, 0, len(new.text), old.text)


def _pieces(edit: Edit, was: Span, new: Source, old: Source) -> Iterator[tuple[Edit, Span]]:
    """Line by line where each line says the same key as the one that it was."""
    ours = new.text[edit.start : edit.end].splitlines(keepends=True)
    theirs = old.text[was.start : was.end].splitlines(keepends=True)
    keys = [(_key(a), _key(b)) for a, b in zip(ours, theirs, strict=False)]
    if len(ours) != len(theirs) or len(ours) < 2 or any(a is None or a != b for a, b in keys):
        yield edit, was
        return
    here, there = edit.start, was.start
    for mine, other in zip(ours, theirs, strict=True):
        if mine != other:
            yield (
                Edit(edit.path, here, here + len(mine), other),
                Span(there, there + len(other)),
            )
        here, there = here + len(mine), there + len(other)


def _key(line: str) -> str | None:
    found = _LINE.match(line)
    return None if found is None else found[1]


Entries = Sequence[tuple[Span, str, str]]
"""Where a key stands, its name and its value, as the file writes them."""


def _entries(runs: Sequence[Run], source: Source) -> Entries:
    found: dict[Span, tuple[Span, str, str]] = {}
    for run in runs:
        for setting in run.settings.values():
            for each in (setting, *setting.shadowed):
                block, entry = each.origin.block, each.origin.entry
                if block is not None and entry is not None and block.path == source.path:
                    value = source.text[entry.value.span.start : entry.value.span.end]
                    found[entry.span] = entry.span, entry.key.rpartition(".")[2], _shown(value)
    return list(found.values())


def _said(
    edit: Edit, was: Span, were: Entries, are: Entries, new: Source, old: Source
) -> tuple[KeyBeforeAfter, ...]:
    after = _within(are, Span(edit.start, edit.end))
    before = _within(were, was)
    if not before and not after:
        before = dict(_lines(old.text[was.start : was.end]))
        after = dict(_lines(new.text[edit.start : edit.end]))
    keys = dict.fromkeys((*after, *before))
    found = [KeyBeforeAfter(key, before.get(key, ""), after.get(key, "")) for key in keys]
    return tuple(said for said in found if said.before != said.after)


def _within(entries: Entries, lines: Span) -> dict[str, str]:
    return {key: value for span, key, value in entries if span.start in lines}


def _lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is not None:
            yield found[1], _shown(found[2])


def _shown(value: str) -> str:
    text = " ".join(value.split())
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
