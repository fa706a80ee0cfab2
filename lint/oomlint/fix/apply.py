"""Applying fixes until nothing more is to be done, each one read back and proven.

Fixes are applied to texts in memory; files are written once, at the end. Runs that share
files are fixed together and apart from all others, so that a fix which has to be dropped
stops nothing elsewhere. A fix that changes more than it said is dropped and reported as a
bug of ours, and so is one that would undo an earlier fix. A fix for one run that would change
another one, because they share the file, is only shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping as MappingABC, Sequence
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from oomlint.documents.text import Edit, Source, by_path, overlapping
from oomlint.errors import CannotEdit, FileError, InternalError
from oomlint.files.workspace import Workspace
from oomlint.fix.bystanders import Naming, used_elsewhere
from oomlint.fix.edits import CandidateFix
from oomlint.fix.planned import with_plans
from oomlint.fix.proving import Refused, prove
from oomlint.fix.untouched import untouched, with_known
from oomlint.judgement import judgement_of
from oomlint.linting.diagnosis import Given
from oomlint.linting.engine import Diagnosis, Options, Report, judged, link
from oomlint.linting.rule import Applicability, Rule, Severity
from oomlint.runs.linked import Linked
from oomlint.runs.run import Run

# Ruff's tests converge within 8 passes and its command line gives up at 100; our fixes
# depend on one another through the memory budget, one step of which is one pass.
MAX_PASSES = 32

Identity: TypeAlias = tuple[str, str, str]
"""Rule, run and title of a fix: the same from pass to pass while positions move."""


class FixResult(Struct, frozen=True, eq=False):
    """The report after fixing, and the texts that have to be written."""

    report: Report
    texts: MappingABC[str, bytes]
    """Display path → new bytes, of every file that changed or is new."""
    originals: MappingABC[str, bytes | None] = field(default_factory=dict)
    """Display path → bytes as they were, ``None`` of a new file."""
    before: Report | None = None
    """What was found before anything was fixed."""


class _Job(Struct, frozen=True):
    """What is linted again after every step."""

    names: Sequence[str]
    options: Options
    explicit: frozenset[str]
    rules: Sequence[type[Rule]] | None
    elsewhere: MappingABC[str, str] = field(default_factory=dict)

    def lint(self, workspace: Workspace, known: Sequence[Run] = ()) -> Report:
        """What is found; of runs that are ``known`` to be as they were nothing is worked out anew."""
        linked = link(
            workspace, self.names, self.options, explicit=self.explicit, elsewhere=self.elsewhere
        )
        linked.runs = with_known(linked.runs, known)
        return judged(workspace, linked, self.options, rules=self.rules)

    def only(self, paths: frozenset[str]) -> _Job:
        """This job with these of its files; itself where they are all that it has."""
        names = [name for name in self.names if name in paths]
        return self if len(names) == len(self.names) else replace(self, names=names)


class _Outcome(Struct):
    """What fixing has come to so far."""

    texts: dict[str, bytes] = field(default_factory=dict)
    applied: list[Diagnosis] = field(default_factory=list)
    refused: dict[Identity, str] = field(default_factory=dict)
    failures: list[FileError] = field(default_factory=list)


def fix_all(
    workspace: Workspace,
    names: Sequence[str],
    options: Options,
    *,
    explicit: frozenset[str] = frozenset(),
    unsafe: bool = False,
    rules: Sequence[type[Rule]] | None = None,
    naming: Naming | None = None,
    reports_after: bool = True,
    linked: Linked | None = None,
) -> FixResult:
    """Lint and fix until a fixpoint. Nothing is written to disk here.

    Where nobody reads what is found after fixing (``reports_after``), it is not worked out.

    ``naming`` finds the files around that use the same files; their runs stay as they are. ``linked`` are
    the runs of these files, if somebody has linked them already.
    """
    level = Applicability.UNSAFE if unsafe else Applicability.SAFE
    first_job = job = _Job(names, options, explicit, rules)
    if linked is None:
        linked = link(workspace, names, options, explicit=explicit)
    report = first = judged(workspace, linked, options, rules=rules)
    outcome = _Outcome()
    groups = [paths for paths in _groups(report) if _is_to_do(report, paths, level)]
    if groups and naming is not None:
        elsewhere = used_elsewhere(report, names, options, naming)
        job = replace(job, elsewhere=elsewhere) if elsewhere else job
    settled_whole = False
    for paths in groups:
        part = job.only(paths)
        # What was found before, or is found after, in all files at once need not be found again.
        report_of_part = first if part is first_job else part.lint(workspace, first.runs)
        last = _Group(part, workspace, level, outcome).settle(report_of_part)
        if part is job:
            report, settled_whole = last, True
    originals = {path: workspace.read_or_none(path) for path in outcome.texts}
    if not reports_after:
        return FixResult(_final(first, outcome), outcome.texts, originals, first)
    if (outcome.texts or job.elsewhere) and not settled_whole:
        known = untouched(first.runs, outcome.texts)
        report = job.lint(workspace.with_overlay(outcome.texts), known)
    diagnoses = with_plans(report, options, level) if rules is None else report.diagnoses
    report = replace(report, diagnoses=tuple(diagnoses))
    final = _final(report, outcome)
    final = replace(final, gone=_gone(first, final))
    return FixResult(final, outcome.texts, originals, first)


def _gone(first: Report, final: Report) -> int:
    """How many findings went with the fixes of others: a run that fits has none of its memory left."""
    if not final.applied:
        return 0
    answered = {d.fingerprint for d in (*final.diagnoses, *final.applied)}
    # A remark is nothing that anybody counts as mended.
    named = {d.fingerprint for d in first.diagnoses if d.severity >= Severity.WARNING}
    return len(named - answered)


def _is_to_do(report: Report, paths: frozenset[str], level: Applicability) -> bool:
    concerned = [d for d in report.diagnoses if d.finding.location.path in paths]
    # For a run in trouble there may be a plan where no rule has a fix.
    return any(_fails(d) for d in concerned) or any(choose(concerned, level, {}))


def _fails(diagnosis: Diagnosis) -> bool:
    return diagnosis.run is not None and judgement_of(diagnosis.run).wants_way


def _groups(report: Report) -> list[frozenset[str]]:
    """The files of the report in groups: two runs that share a file are in one."""
    groups: list[set[str]] = []
    for run in report.runs:
        files = set(run.sources)
        for group in [g for g in groups if g & files]:
            groups.remove(group)
            files |= group
        groups.append(files)
    # Scripts that hold no run may have faults to mend all the same.
    alone = {d.finding.location.path for d in report.diagnoses}.difference(*groups)
    return [frozenset(group) for group in (*groups, *({path} for path in sorted(alone)))]


class _Group(Struct, frozen=True, eq=False):
    """Files that are fixed together, step by step."""

    job: _Job
    workspace: Workspace
    level: Applicability
    outcome: _Outcome

    def settle(self, found: Report) -> Report:
        """Fix them; the report is what is found first, and comes back as it is last."""
        report, texts = found, dict[str, bytes]()
        seen = [texts]
        for _ in range(MAX_PASSES):
            batch = list(
                self._chosen(report.diagnoses if self.job.rules else self._planned(report))
            )
            if not batch:
                break
            step = self._step(report, batch, texts, seen)
            if step is not None:
                texts, report, taken = step
                seen.append(texts)
                self.outcome.applied += taken
        else:
            left = next(iter(self._chosen(report.diagnoses)), None)
            if left is not None:
                reason = f"there is no end after {MAX_PASSES} passes"
                self.outcome.failures.append(_failure(left, reason))
        texts, report = self._without_deserted(texts, found, report)
        self.outcome.texts.update(texts)
        return report

    def _planned(self, report: Report) -> Sequence[Diagnosis]:
        return with_plans(report, self.job.options, self.level, lowest=self.level)

    def _chosen(self, diagnoses: Iterable[Diagnosis]) -> Iterable[Diagnosis]:
        return choose(diagnoses, self.level, self.outcome.refused)

    def _without_deserted(
        self, texts: dict[str, bytes], before: Report, after: Report
    ) -> tuple[dict[str, bytes], Report]:
        """A file that was changed for runs which then left it, for a copy or for one beside it, stays as it was, unless it
        asks for its change by itself."""
        deserted = _trained(before) - _trained(after)
        kept = {path: data for path, data in texts.items() if path not in deserted}
        if len(kept) == len(texts):
            return texts, after
        report = self.job.lint(self.workspace.with_overlay(kept))
        if any(self._chosen(self._planned(report))):
            return texts, after
        return kept, report

    def _step(
        self,
        before: Report,
        batch: Sequence[Diagnosis],
        texts: MappingABC[str, bytes],
        seen: Sequence[MappingABC[str, bytes]],
    ) -> tuple[dict[str, bytes], Report, Sequence[Diagnosis]] | None:
        """Apply as much of a batch as stands the proof; where that is nothing, refuse its first fix."""
        while True:
            try:
                changed = _edited(before.workspace, batch)
                merged = self._changed_by({**texts, **changed})
                if merged in seen:
                    raise Refused("it undoes an earlier fix")
                known = untouched(before.runs, changed)
                after = self.job.lint(before.workspace.with_overlay(changed), known)
                prove(before, after, batch)
            except Refused as refusal:
                if len(batch) > 1:
                    batch = batch[: len(batch) // 2]
                    continue
                self.outcome.refused[_identity(batch[0])] = str(refusal)
                if refusal.is_bug:
                    self.outcome.failures.append(_failure(batch[0], str(refusal)))
                return None
            return merged, after, batch

    def _changed_by(self, texts: MappingABC[str, bytes]) -> dict[str, bytes]:
        """The texts that are not as the files are."""
        read = self.workspace.read_or_none
        return {path: data for path, data in texts.items() if data != read(path)}


def _trained(report: Report) -> set[str]:
    """The files of runs that somebody starts."""
    return {path for run in report.runs if not run.is_fragment for path in run.sources}


def choose(
    diagnoses: Iterable[Diagnosis], level: Applicability, refused: MappingABC[Identity, str]
) -> Iterable[Diagnosis]:
    """The fixes to apply in one pass: none overlap, and each run's memory is changed by one
    fix at a time, the cheapest first, since the next may then be needless. Of the runs of a file
    one keeps it."""
    ready = [
        d
        for d in diagnoses
        if d.applicable is not None
        and d.applicable.applicability >= level
        and _identity(d) not in refused
    ]
    ready.sort(key=lambda d: (d.rule.cost, -d.severity, d.rule.code))
    taken: list[Edit] = []
    moved: set[str] = set()
    named_anew: set[str] = set()
    left: dict[str, int] = {}
    for diagnosis in ready:
        fix, run = diagnosis.fix, diagnosis.run
        assert fix is not None
        moving = {run.name, *fix.also} if run is not None and fix.expected else set[str]()
        if moving & moved:
            continue
        if any(_exclude(edit, other) for edit in fix.edits for other in taken):
            continue
        edited, joined = {edit.path for edit in fix.edits}, fix.joins
        if joined & {edit.path for edit in taken} or edited & named_anew:
            continue
        if run is not None and any(_is_last(run, path, left) for path in fix.leaves):
            continue  # alone with the file by then, it needs no copy
        for path in fix.leaves:
            left[path] = left.get(path, 0) + 1
        moved |= moving
        named_anew |= joined
        taken += fix.edits
        yield diagnosis


def _exclude(one: Edit, other: Edit) -> bool:
    """Whether two edits cannot be made in one pass; of two copies that say the same, one is enough."""
    alike = one.creates and other.creates and one.replacement == other.replacement
    return alike or overlapping(one, other)


def _is_last(run: Run, path: str, left: MappingABC[str, int]) -> bool:
    """Whether all other runs of a file are given copies in this pass."""
    return left.get(path, 0) == len(run.parts.shared.get(path, ())) - 1 > 0


def apply_change(
    workspace: Workspace,
    names: Sequence[str],
    options: Options,
    change: CandidateFix,
    *,
    explicit: frozenset[str] = frozenset(),
) -> dict[str, bytes]:
    """The new bytes of the files that one change edits, proven like any fix.

    Raises:
        CannotEdit: the files would not read as promised.
    """
    job = _Job(names, options, explicit, rules=())
    try:
        changed = _edited(workspace, [change])
        prove(job.lint(workspace), job.lint(workspace.with_overlay(changed)), [change])
    except Refused as refusal:
        raise CannotEdit(str(refusal)) from None
    return changed


def _edited(workspace: Workspace, batch: Sequence[CandidateFix]) -> dict[str, bytes]:
    """The files of a batch with its edits in them; all of them, since a fix is whole or nothing."""
    edits = [edit for change in batch for edit in (change.fix.edits if change.fix else ())]
    changed: dict[str, bytes] = {}
    for path, group in by_path(edits).items():
        reason = workspace.why_not_to_change(path)
        if reason is not None:
            raise Refused(reason, is_bug=False)
        if any(edit.creates for edit in group):
            changed[path] = _created(workspace, path, group)
        else:
            source = Source.from_bytes(path, workspace.read(path))
            try:
                changed[path] = source.edited(group).to_bytes()
            except ValueError:
                raise Refused("its edits overlap") from None
    return changed


def _created(workspace: Workspace, path: str, group: Sequence[Edit]) -> bytes:
    """The bytes of a new file; it must not be there, and nobody may want it otherwise."""
    first, *others = group
    if others or workspace.exists(path):
        raise Refused(f"{path} exists already", is_bug=False)
    return Source(path, first.replacement).to_bytes()


# -- the result -------------------------------------------------------------------------


def _identity(diagnosis: Diagnosis) -> Identity:
    run = diagnosis.run.name if diagnosis.run else diagnosis.finding.location.path
    return diagnosis.rule.code, run, diagnosis.fix.title if diagnosis.fix else ""


def _failure(diagnosis: Diagnosis, reason: str) -> InternalError:
    title = diagnosis.fix.title if diagnosis.fix else ""
    return InternalError(
        diagnosis.finding.location.path,
        f"the fix of {diagnosis.rule.name} ({title}) was not applied: {reason}; please report this",
    )


def _final(report: Report, outcome: _Outcome) -> Report:
    return replace(
        report,
        diagnoses=tuple(_shown(d, outcome.refused) for d in report.diagnoses),
        fixed=len(outcome.applied),
        applied=tuple(outcome.applied),
        errors=(*report.errors, *outcome.failures),
    )


def _shown(diagnosis: Diagnosis, refused: MappingABC[Identity, str]) -> Diagnosis:
    """A fix that was refused is no longer offered, only shown, with the reason."""
    reason = refused.get(_identity(diagnosis)) if refused else None
    if diagnosis.fix is None or reason is None:
        return diagnosis
    return replace(diagnosis, ask=Given(diagnosis.fix.declined(reason)))
