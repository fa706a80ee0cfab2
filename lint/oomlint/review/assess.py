"""What a change does to the runs that it concerns.

Those runs before and after, what of the change made some of them worse, the findings that it causes
besides, and the way out of each: lines put back, or the files as ``--fix`` would leave them.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from oomlint.config.settings import FILE_NAMES
from oomlint.documents.text import Edit, Source, by_path
from oomlint.errors import FileError, UsageError
from oomlint.fix.apply import FixResult, fix_all
from oomlint.fix.planned import each_decided
from oomlint.judgement import Judgement, judgement_of
from oomlint.linting.baseline import Baseline, fingerprint
from oomlint.linting.engine import Diagnosis, Report, Told, judged, link
from oomlint.linting.headlines import worst_first
from oomlint.linting.rule import Applicability, Severity
from oomlint.report.blocks import troubles
from oomlint.review import blame
from oomlint.review.commands import flags
from oomlint.review.trees import CommitTree
from oomlint.runs.linked import Linked
from oomlint.runs.run import Run
from oomlint.session.jobs import Job, make_jobs, merge
from oomlint.session.request import CheckRequest

# A finding that was there before counts as the change's if its peak rises by more than this.
_WORSE = 1.01


class RunChange(Struct, frozen=True):
    """One run before and after; ``None`` where it was not there yet, or is no more."""

    name: str
    before: Judgement | None
    after: Judgement | None
    is_fragment: bool = False
    """A part, such as a DeepSpeed JSON, that no run was found for."""

    @property
    def has_changed(self) -> bool:
        """Whether the prediction is not what it was."""
        before, after = self.before, self.after
        if before is None or after is None:
            return True
        return any(
            (one.outcome, one.estimate) != (other.outcome, other.estimate)
            for one, other in ((before.spoken, after.spoken), (before.written, after.written))
        )


class Card(Struct, frozen=True, eq=False):
    """One thing to say of the memory of runs: what made them need too much.

    ``said`` is what the change turned; where it turned nothing that one can name (a run that is new),
    ``lead`` says what the need comes of. ``after`` are the runs once its way is taken, by name: the one
    that ``puts_back`` what ``undo`` does, or else that of the fixes of its runs, if there are any.
    """

    said: tuple[blame.KeyBeforeAfter, ...]
    lead: Told | None
    runs: tuple[RunChange, ...]
    members: tuple[Diagnosis, ...]
    """The findings that it says the same as."""
    places: tuple[blame.Turn, ...] = ()
    """What is to blame, in the files after the change."""
    undo: blame.Undo | None = None
    puts_back: bool = False
    after: Mapping[str, Judgement] = {}
    keeps: bool = True
    """Whether what is trained stays the same on that way."""

    @property
    def resource(self) -> Literal["gpu", "host"]:
        found = next((run.after for run in self.runs if run.after is not None), None)
        if found is not None and found.peaks:
            return blame.resource_of(found)
        spoken = self.lead.finding.resource if self.lead is not None else None
        return "host" if spoken == "host" else "gpu"

    @property
    def names(self) -> frozenset[str]:
        return frozenset(run.name for run in self.runs)


class Assessment(Struct, frozen=True, eq=False):
    """What there is to say about a change. Paths are relative to the repository's root."""

    report: Report
    """The files after the change, with the findings that it causes, and the files among them that
    could be read before and cannot be now."""
    runs: tuple[RunChange, ...]
    cards: tuple[Card, ...] = ()
    fixes: tuple[FixResult, ...] = ()
    """What ``--fix`` makes of the files once ``undone`` has been made of them."""
    undone: tuple[Edit, ...] = ()
    flags: tuple[str, ...] = ()
    """The options under which a command judges as this did."""


def assess(
    given: CheckRequest,
    before: CommitTree,
    after: CommitTree,
    renamed: Mapping[str, str],
    *,
    unsafe: bool = False,
) -> Assessment:
    """Lint both sides of a change where they differ.

    Args:
        renamed: old path → new path of files that have moved.
        unsafe: let fixes change results too.

    Raises:
        UsageError: the settings after the change, or the options, are wrong.
    """
    now = _Side(given, after)
    try:
        then = _Side(given, before)
    except UsageError:  # the change may be what mends the settings
        then = _Side(replace(given, config=None, isolated=True), before)
    changed = before.changed_to(after)
    touched = {renamed.get(path, path) for path in changed}
    concerned = [
        (run, was)
        for run in now.runs
        for was in [then.counterpart(run, renamed)]
        if _touches(run, touched) or _differs(was, run)
    ]
    lost = [run for run in then.runs if now.find(renamed.get(run.name, run.name)) is None]
    own = touched.union(*(run.sources for run, _ in concerned))
    names_now = now.together(own)
    old_of = {new: old for old, new in renamed.items()}
    names_then = then.together({old_of.get(path, path) for path in names_now} | changed)
    report, old_report = now.lint(names_now, unsafe), then.lint(names_then)
    caused, known = _split(report.diagnoses, old_report.diagnoses, renamed)
    old_errors = {(renamed.get(e.path, e.path), e.message) for e in old_report.errors}
    report = replace(
        report,
        diagnoses=caused,
        errors=tuple(e for e in report.errors if (e.path, e.message) not in old_errors),
    )
    runs = (*(_change(run, was) for run, was in concerned), *(_change(None, r) for r in lost))
    worse = _worse(concerned, report)
    worsened = _Worsened(worse, then, now, touched, old_of)
    turns = worsened.turns(), worsened.beside()
    cards = list(_cards(report, worse, runs, turns, now))
    undone = _undone(card for card in cards if card.undo and blame.is_settled(card.undo))
    fixes: tuple[FixResult, ...] = ()
    if caused:
        others = (*report.known, *known)
        fixes = tuple(now.fixed(names_now, others, undone, unsafe))
    return Assessment(
        report=report,
        runs=runs,
        cards=tuple(_on_its_way(part, fixes) for card in cards for part in _parted(card, fixes)),
        fixes=fixes,
        undone=undone,
        flags=flags(given),
    )


# -- cards -----------------------------------------------------------------------------------


class _Worsened(Struct, frozen=True, eq=False):
    """The runs that a change made worse, as they were and as they are, with both of its sides."""

    pairs: Sequence[tuple[Run, Run]]
    then: _Side
    now: _Side
    touched: Collection[str]
    old_of: Mapping[str, str]

    def turns(self) -> list[blame.Turn]:
        """What the change turned in the files of these runs."""
        return [
            turn
            for path, old, new in self._sources(self._own & set(self.touched))
            for turn in blame.turns_of(
                old,
                new,
                [was for was, run in self.pairs if path in run.sources],
                [run for _, run in self.pairs if path in run.sources],
            )
        ]

    def beside(self) -> list[blame.Turn]:
        """What the change turned in files that are no run's own: settings, pinned versions."""
        if not self.pairs:
            return []
        return [
            turn
            for _, old, new in self._sources(set(self.touched) - self._own)
            for turn in blame.turns_of(old, new, (), ())
        ]

    @property
    def _own(self) -> set[str]:
        return {path for _, run in self.pairs for path in run.sources}

    def _sources(self, paths: Iterable[str]) -> Iterator[tuple[str, Source, Source]]:
        """Those of some files that stand on both sides, as they were and as they are."""
        for path in sorted(paths):
            old, new = self.then.source(self.old_of.get(path, path)), self.now.source(path)
            if old is not None and new is not None:
                yield path, old, new


def _saying(beside: Iterable[blame.Turn], cause: blame.BlamedChange) -> Iterator[blame.Turn]:
    """Of these turns those that say what a cause does."""
    return (turn for turn in beside if not set(turn.said).isdisjoint(cause.said))


def _worse(concerned: Iterable[tuple[Run, Run | None]], report: Report) -> list[tuple[Run, Run]]:
    """The runs that became worse, and of which something is said that the baseline does not know."""
    alarming = {d.finding.location.path for d in report.diagnoses if _alarms(d)}
    return [
        (was, run)
        for run, was in concerned
        if was is not None
        and not run.is_fragment
        and _touches(run, alarming)
        and blame.is_worse(judgement_of(was), judgement_of(run))
    ]


def _alarms(diagnosis: Diagnosis) -> bool:
    """Whether a finding is more than a remark, or a remark on what a run rather dies of that gets there."""
    run, is_of_memory = diagnosis.run, diagnosis.finding.predicted_bytes is not None
    judged = None if run is None else judgement_of(run)
    is_lost = is_of_memory and judged is not None and judged.is_lost and not judged.endings
    return is_lost or diagnosis.severity > Severity.INFO


def _cards(
    report: Report,
    worse: Sequence[tuple[Run, Run]],
    runs: Sequence[RunChange],
    changed: tuple[Sequence[blame.Turn], Sequence[blame.Turn]],
    now: _Side,
) -> Iterator[Card]:
    """A card for each cause that the change turned, in files of runs or beside, then for each that new runs
    have in common."""
    turns, beside = changed
    changes = {run.name: run for run in runs if run.after is not None}
    leads = {each.judgement.name: each for each in troubles(report) if not each.enders}
    told: set[str] = set()
    for cause in blame.causes(worse, turns, now.relinked):
        names = [each.after.name for each in cause.worse]
        if not cause.said:
            continue
        told.update(names)
        about = _about(report, names)
        lead = next((leads[name].leader for name in names if name in leads), None)
        yield Card(
            cause.said,
            lead or next(iter(worst_first(about)), None),
            tuple(changes[name] for name in names),
            about,
            (
                *dict.fromkeys(turn for each in cause.worse for turn in each.turns),
                *_saying(beside, cause),
            ),
            cause.undo,
        )
    alike: dict[Hashable, list[str]] = {}
    for name, trouble in leads.items():
        run = changes.get(name)
        if run is not None and name not in told and not run.is_fragment:
            alike.setdefault(_kind(trouble.leader, run), []).append(name)
    for names in alike.values():
        lead = leads[names[0]].leader
        yield Card((), lead, tuple(changes[n] for n in names), _about(report, names))


def _kind(lead: Told, run: RunChange) -> Hashable:
    """What the cards of runs with one cause have in common."""
    hardware = run.after.hardware if run.after is not None else None
    return (
        lead.rule.code,
        fingerprint(lead.rule.code, "", lead.finding.message),
        hardware.name if hardware is not None else None,
        run.before is None,
    )


def _about(report: Report, names: Collection[str]) -> tuple[Diagnosis, ...]:
    """The findings that speak of the memory of runs."""
    return tuple(
        d
        for d in report.diagnoses
        if d.run is not None
        and d.run.name in names
        and d.finding.resource in ("gpu", "host")
        and d.finding.predicted_bytes is not None
    )


def _undone(cards: Iterable[Card]) -> tuple[Edit, ...]:
    return tuple(sorted({e for card in cards if card.undo for e in card.undo.edits}))


def _parted(card: Card, fixes: Sequence[FixResult]) -> Iterator[Card]:
    """The card of runs of which nobody knows what the change turned, apart where their ways are."""
    if card.said or len(card.runs) == 1:
        yield card
        return
    parts: dict[tuple[str, ...], list[RunChange]] = {}
    for run in card.runs:
        titles = (d.fix.title for d in _applied(fixes, {run.name}) if d.fix is not None)
        parts.setdefault(tuple(titles), []).append(run)
    for runs in parts.values():
        names = {run.name for run in runs}
        members = tuple(d for d in card.members if d.run is not None and d.run.name in names)
        leads = (d for d in members if card.lead is not None and d.rule is card.lead.rule)
        yield replace(card, runs=tuple(runs), members=members, lead=next(leads, card.lead))


def _applied(fixes: Iterable[FixResult], names: Collection[str]) -> list[Diagnosis]:
    return [
        d
        for result in fixes
        for d in result.report.applied
        if d.run is not None
        and (d.run.name in names or (d.fix and not d.fix.also.isdisjoint(names)))
    ]


def _on_its_way(card: Card, fixes: Sequence[FixResult]) -> Card:
    """The card with the better of its two ways: lines put back, or what the fixes do."""
    undo = card.undo
    if undo is not None and blame.is_settled(undo):
        return replace(card, puts_back=True, after=undo.after)
    applied = _applied(fixes, card.names)
    fixed = {
        run.name: judgement_of(run)
        for result in fixes
        for run in result.report.runs
        if run.name in card.names and applied
    }
    keeps = all(d.fix is None or d.fix.trains_the_same for d in applied)
    if undo is not None and (not fixed or blame.wins(undo, fixed.values(), keeps=keeps)):
        return replace(card, puts_back=True, after=undo.after, keeps=undo.keeps)
    return replace(card, after=fixed, keeps=keeps)


class _Side:
    """One tree of files, linked as a whole, linted where it is asked for."""

    def __init__(self, given: CheckRequest, tree: CommitTree) -> None:
        if given.project_root is not None:
            given = replace(given, project_root=tree.folder / given.project_root)
        try:
            self._jobs = make_jobs(given, ["."], cwd=tree.folder)
        except UsageError as error:
            raise UsageError(str(error).replace(f"{tree.folder}/", "")) from None
        self._root = tree.folder
        self._linked = [link(job.workspace, job.names, job.options) for job in self._jobs]
        self.runs: tuple[Run, ...] = tuple(run for linked in self._linked for run in linked.runs)
        self._relinked: dict[tuple[frozenset[Edit], frozenset[str]], Mapping[str, Run]] = {}

    def find(self, name: str) -> Run | None:
        return next((run for run in self.runs if run.name == name), None)

    def counterpart(self, run: Run, renamed: Mapping[str, str]) -> Run | None:
        """The run here that a run of the side after the change was."""
        return next((r for r in self.runs if renamed.get(r.name, r.name) == run.name), None)

    def together(self, names: Collection[str]) -> frozenset[str]:
        """The files ``names``, and all that make up one run with some of them, and so on."""
        found = set(names)
        while True:
            more = {p for run in self.runs if _touches(run, found) for p in run.sources} - found
            if not more:
                return frozenset(found)
            found |= more

    def lint(self, names: Collection[str], unsafe: bool = False) -> Report:
        """What is found in these files, with fixes as ``--fix`` decides on each of them."""
        level = Applicability.UNSAFE if unsafe else Applicability.SAFE
        return merge(
            replace(found, diagnoses=tuple(each_decided(found.diagnoses, job.options, level)))
            for number, job in enumerate(self._jobs)
            for found in [judged(job.workspace, self._of(number, names), job.options)]
        )

    def _of(self, number: int, names: Collection[str]) -> Linked:
        """The runs of these files in a job; they need not be linked anew where they are all that it has
        besides settings of ours."""
        job = self._jobs[number]
        if all(name in names or PurePath(name).name in FILE_NAMES for name in job.names):
            return self._linked[number]
        return link(job.workspace, _among(job, names), job.options)

    def source(self, path: str) -> Source | None:
        """The text of a file, if it is here and can be read."""
        data = self._jobs[0].workspace.read_or_none(path)
        try:
            return None if data is None else Source.from_bytes(path, data)
        except FileError:
            return None

    def relinked(self, edits: Sequence[Edit], names: Collection[str]) -> Mapping[str, Run]:
        """The runs of these names as they are after edits of their files."""
        asked = (frozenset(edits), frozenset(names))
        if asked not in self._relinked:
            self._relinked[asked] = self._linked_anew(edits, names)
        return self._relinked[asked]

    def _linked_anew(self, edits: Sequence[Edit], names: Collection[str]) -> Mapping[str, Run]:
        files = {path for run in self.runs if run.name in names for path in run.sources}
        texts = self._edited(edits)
        found: dict[str, Run] = {}
        for job in self._jobs:
            workspace = job.workspace.with_overlay(texts)
            linked = link(workspace, _among(job, files), job.options)
            found |= {run.name: run for run in linked.runs if run.name in names}
        return found

    def _edited(self, edits: Sequence[Edit]) -> dict[str, bytes]:
        sources = {path: self.source(path) for path in by_path(edits)}
        return {
            path: source.edited(own).to_bytes()
            for path, own in by_path(edits).items()
            for source in [sources[path]]
            if source is not None
        }

    def fixed(
        self,
        names: Collection[str],
        known: Sequence[Diagnosis],
        undone: Sequence[Edit],
        unsafe: bool,
    ) -> Iterable[FixResult]:
        """What ``--fix`` would do about everything but ``known`` once some lines are put back."""
        texts = self._edited(undone)
        for number, job in enumerate(self._jobs):
            listed = Baseline(self._root).rewritten(known, job.workspace, (), grow=True)
            options = replace(job.options, baseline=listed)
            workspace = job.workspace.with_overlay(texts) if texts else job.workspace
            linked = None if texts else self._of(number, names)
            yield fix_all(workspace, _among(job, names), options, unsafe=unsafe, linked=linked)


def _among(job: Job, names: Collection[str]) -> list[str]:
    return [name for name in job.names if name in names]


def _touches(run: Run, names: Collection[str]) -> bool:
    return any(path in names for path in run.sources)


def _differs(before: Run | None, after: Run) -> bool:
    """Whether a run will do something else, though its own files may be the same: a pinned
    version, a setting of oomlint, a model's config.json."""
    if before is None:
        return True
    return (
        replace(before.plan, name=after.name) != after.plan
        or before.hardware != after.hardware
        or len(before.missing) != len(after.missing)
    )


def _change(after: Run | None, before: Run | None) -> RunChange:
    some = after or before
    assert some is not None
    return RunChange(
        some.name,
        None if before is None else judgement_of(before),
        None if after is None else judgement_of(after),
        some.is_fragment,
    )


def _split(
    after: Sequence[Diagnosis], before: Sequence[Diagnosis], renamed: Mapping[str, str]
) -> tuple[tuple[Diagnosis, ...], tuple[Diagnosis, ...]]:
    """Findings that the change causes, and that were there."""
    left = list(before)
    pairs: list[tuple[Diagnosis, Diagnosis | None]] = [(diagnosis, None) for diagnosis in after]
    # What reads alike first; then what says the same of a peak, if in other words.
    for identify in (_fingerprint, _topic):
        old: dict[Hashable, list[Diagnosis]] = {}
        for was in left:
            old.setdefault(identify(was, renamed), []).append(was)
        for number, (diagnosis, match) in enumerate(pairs):
            same = old.get(identify(diagnosis, {}))
            if match is None and same:
                pairs[number] = diagnosis, same.pop(0)
        left = [diagnosis for group in old.values() for diagnosis in group]
    caused = [now for now, was in pairs if was is None or _is_worse(was, now)]
    known = [now for now, was in pairs if was is not None and not _is_worse(was, now)]
    return tuple(caused), tuple(known)


def _fingerprint(diagnosis: Diagnosis, renamed: Mapping[str, str]) -> Hashable:
    path = diagnosis.finding.location.path
    return fingerprint(diagnosis.rule.code, renamed.get(path, path), diagnosis.finding.message)


def _topic(diagnosis: Diagnosis, renamed: Mapping[str, str]) -> Hashable:
    finding = diagnosis.finding
    if finding.predicted_bytes is None:
        return id(diagnosis)  # two keys that do nothing are two findings
    path = finding.location.path
    return diagnosis.rule.code, renamed.get(path, path), finding.resource


def _is_worse(before: Diagnosis, after: Diagnosis) -> bool:
    was, now = before.finding.predicted_bytes, after.finding.predicted_bytes
    grew = was is not None and now is not None and now > was * _WORSE
    return after.severity > before.severity or (grew and after.severity > Severity.INFO)
