"""What a change does to the runs that it concerns.

Those runs before and after, the findings it causes, and the files as ``--fix`` would leave them.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from oomlint.baseline import Baseline, fingerprint
from oomlint.cli.given import Given
from oomlint.cli.jobs import Job, make_jobs, merge
from oomlint.engine import Diagnosis, Report, lint
from oomlint.errors import UsageError
from oomlint.fix.apply import FixResult, fix_all
from oomlint.judgement import Judgement, judgement_of
from oomlint.review.trees import Tree
from oomlint.rule import Severity
from oomlint.run import Run

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
            (one.verdict, one.estimate) != (other.verdict, other.estimate)
            for one, other in ((before.spoken, after.spoken), (before.written, after.written))
        )


class Assessment(Struct, frozen=True, eq=False):
    """What there is to say about a change. Paths are relative to the repository's root."""

    report: Report
    """The files after the change, with the findings that it causes, and the files among them that
    could be read before and cannot be now."""
    runs: tuple[RunChange, ...]
    fixes: tuple[FixResult, ...] = ()
    known: tuple[Diagnosis, ...] = ()
    """Findings in the same runs that were there before."""
    mended: tuple[Diagnosis, ...] = ()
    """Findings that the change does away with, as they stood before."""


def assess(
    given: Given, before: Tree, after: Tree, renamed: Mapping[str, str], *, unsafe: bool = False
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
    own = touched.union(*(_files(run) for run, _ in concerned))
    names_now = now.together(own)
    old_of = {new: old for old, new in renamed.items()}
    names_then = then.together({old_of.get(path, path) for path in names_now} | changed)
    report, old_report = now.lint(names_now), then.lint(names_then)
    caused, known, mended = _split(report.diagnoses, old_report.diagnoses, renamed)
    old_errors = {(renamed.get(e.path, e.path), e.message) for e in old_report.errors}
    return Assessment(
        report=replace(
            report,
            diagnoses=caused,
            errors=tuple(e for e in report.errors if (e.path, e.message) not in old_errors),
        ),
        runs=(*(_change(run, was) for run, was in concerned), *(_change(None, r) for r in lost)),
        fixes=tuple(now.fixed(names_now, (*report.known, *known), unsafe)) if caused else (),
        known=tuple(d for d in known if d.finding.location.path in own),
        mended=mended,
    )


class _Side:
    """One tree of files, linked as a whole, linted where it is asked for."""

    def __init__(self, given: Given, tree: Tree) -> None:
        if given.project_root is not None:
            given = replace(given, project_root=tree.folder / given.project_root)
        try:
            self._jobs = make_jobs(given, ["."], cwd=tree.folder)
        except UsageError as error:
            raise UsageError(str(error).replace(f"{tree.folder}/", "")) from None
        self._root = tree.folder
        self.runs: tuple[Run, ...] = merge(self._linked(job) for job in self._jobs).runs

    @staticmethod
    def _linked(job: Job) -> Report:
        return lint(job.workspace, job.names, job.options, rules=())

    def find(self, name: str) -> Run | None:
        return next((run for run in self.runs if run.name == name), None)

    def counterpart(self, run: Run, renamed: Mapping[str, str]) -> Run | None:
        """The run here that a run of the side after the change was."""
        return next((r for r in self.runs if renamed.get(r.name, r.name) == run.name), None)

    def together(self, names: Collection[str]) -> frozenset[str]:
        """The files ``names``, and all that make up one run with some of them, and so on."""
        found = set(names)
        while True:
            more = {p for run in self.runs if _touches(run, found) for p in _files(run)} - found
            if not more:
                return frozenset(found)
            found |= more

    def lint(self, names: Collection[str]) -> Report:
        return merge(lint(job.workspace, _among(job, names), job.options) for job in self._jobs)

    def fixed(
        self, names: Collection[str], known: Sequence[Diagnosis], unsafe: bool
    ) -> Iterable[FixResult]:
        """What ``--fix`` would do about everything but ``known``."""
        for job in self._jobs:
            listed = Baseline(self._root).rewritten(known, job.workspace, (), grow=True)
            options = replace(job.options, baseline=listed)
            yield fix_all(job.workspace, _among(job, names), options, unsafe=unsafe)


def _among(job: Job, names: Collection[str]) -> list[str]:
    return [name for name in job.names if name in names]


def _files(run: Run) -> set[str]:
    return {*run.files, *(claim.path for claim in run.claims)}


def _touches(run: Run, names: Collection[str]) -> bool:
    return any(path in names for path in _files(run))


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
) -> tuple[tuple[Diagnosis, ...], tuple[Diagnosis, ...], tuple[Diagnosis, ...]]:
    """Findings that the change causes, that were there, and that it does away with."""
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
    return tuple(caused), tuple(known), tuple(left)


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
