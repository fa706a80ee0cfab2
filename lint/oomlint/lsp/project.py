"""One folder of the editor's workspace, linted with the buffers' texts over the files on disk.

Everything here runs in one thread, call after call. What was parsed is kept until its text
changes, and what a lint said until a file that it read does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from oomlint.dialects.block import Block
from oomlint.documents.text import Edit, Source, by_path
from oomlint.errors import CannotEdit, FileError, UsageError
from oomlint.files.reference_index import Kin, Stamp, stamp
from oomlint.files.workspace import Workspace
from oomlint.fix.apply import apply_change, fix_all
from oomlint.fix.bystanders import used_elsewhere
from oomlint.fix.edits import Fix
from oomlint.fix.planned import each_decided, with_plans
from oomlint.judgement import judgement_of
from oomlint.linting.engine import Diagnosis, Report, lint
from oomlint.linting.rule import Applicability, Severity
from oomlint.runs.run import Run
from oomlint.session.jobs import Job, make_jobs
from oomlint.session.request import CheckRequest

Mark: TypeAlias = Stamp | bytes
"""What tells one state of a file from the next: its stamp on disk, or the text in the editor."""


class Outdated(Exception):
    """The text has changed while it was being linted."""


class Analysis(Struct, frozen=True, eq=False, dict=True):
    """What a lint says about one document and the files that it belongs together with."""

    name: str
    job: Job
    report: Report
    marks: Mapping[str, Mark]
    """The files that it depends on, and the state they were in."""
    epoch: int = 0
    """How often files had been looked for when it was made."""
    cache: dict[object, object] = field(default_factory=dict)
    """What was worked out from it on request."""

    @property
    def workspace(self) -> Workspace:
        return self.report.workspace

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """The runs that the document is a part of."""
        return tuple(run for run in self.report.runs if self.name in files_of(run))

    @cached_property
    def diagnoses(self) -> tuple[Diagnosis, ...]:
        """What there is to say of the document and of its runs."""
        files = set(self.files)
        return tuple(d for d in self.report.diagnoses if d.finding.location.path in files)

    @cached_property
    def decided(self) -> tuple[Diagnosis, ...]:
        """The same, with fixes that are written one by one, as somebody chooses them: of a run in trouble each that
        helps, since it may take several."""
        decided = each_decided(self.diagnoses, self.job.options, Applicability.SAFE)
        return tuple(
            found if found.run is not None and judgement_of(found.run).is_in_trouble else each
            for found, each in zip(self.diagnoses, decided, strict=True)
        )

    @cached_property
    def planned(self) -> tuple[Diagnosis, ...]:
        """The same, with the fixes that ``--fix`` begins with."""
        report = replace(self.report, runs=self.runs, diagnoses=self.diagnoses)
        return tuple(with_plans(report, self.job.options, Applicability.SAFE))

    @cached_property
    def files(self) -> tuple[str, ...]:
        """The document itself first, then every other file of its runs."""
        others = (path for run in self.runs for path in files_of(run))
        return tuple(dict.fromkeys((self.name, *others)))

    def source(self, path: str) -> Source:
        """The text of a file; empty where it cannot be read."""
        try:
            return Source.from_bytes(path, self.workspace.read(path))
        except FileError:
            return Source(path, "")


def files_of(run: Run) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*run.files, *(claim.path for claim in run.claims))))


class Project:
    """A folder, the texts of its open documents, and what is known of them."""

    def __init__(self, root: Path, complain: Callable[[str], None] = lambda _message: None) -> None:
        self.root = root
        self._complain = complain
        self._names = Workspace(root)
        self._given = CheckRequest()
        self._texts: dict[str, bytes] = {}
        self._kin: Kin | None = None
        self._jobs: dict[str, Job | None] = {}
        self._spaces: dict[Path, tuple[Workspace, dict[str, Mark]]] = {}
        self._analyses: dict[str, Analysis] = {}
        self._blocks: dict[str, tuple[Block, ...]] = {}
        self._related: dict[str, tuple[str, ...]] = {}
        self._elsewhere: dict[str, Mapping[str, str]] = {}
        self._epoch = 0

    # -- what changes ----------------------------------------------------------------

    def name(self, path: str) -> str:
        """The display path of an absolute path."""
        return self._names.name(path)

    def put(self, name: str, data: bytes) -> None:
        """An editor has this text of a file open."""
        is_new = name not in self._texts
        self._texts[name] = data
        if is_new:
            self.look_around()
        elif self._kin is not None and self._kin.read(name, data):
            self._epoch += 1
            self._forget_others()

    def drop(self, name: str) -> None:
        """The editor has closed a file: what is on disk counts again."""
        self._texts.pop(name, None)
        self._analyses.pop(name, None)
        self.look_around()

    def _forget_others(self) -> None:
        """Which files belong together, and which others use, may have changed."""
        self._related.clear()
        self._elsewhere.clear()

    def look_around(self) -> None:
        """Files may have come, gone or changed on disk, settings among them."""
        self._epoch += 1
        self._jobs.clear()
        self._forget_others()
        if self._kin is not None:
            self._kin.refresh(self._texts)

    def configure(self, given: CheckRequest) -> None:
        """What the client says of machine, rules and settings."""
        self._given = given
        self._epoch += 1
        self._jobs.clear()
        self._forget_others()

    # -- what is known ---------------------------------------------------------------

    def analyse(
        self, name: str, is_outdated: Callable[[], bool] = lambda: False
    ) -> Analysis | None:
        """The lint of an open document with all that belongs to it; ``None`` where the settings
        exclude it.

        Raises:
            Outdated: ``is_outdated`` said so on the way.
        """
        job = self._job(name)
        if job is None:
            return None
        workspace = self._space(job.workspace)
        names = self._related.get(name) or (name, *self._above(name, job))
        known = self._analyses.get(name)
        if known is not None and known.epoch == self._epoch and self._holds(known):
            return known

        def go_on(_done: int, _total: int) -> None:
            if is_outdated():
                raise Outdated

        report = self._linted(name, replace(job, workspace=workspace, names=names), go_on)
        self._remember(workspace)
        read = {*names, *report.files, *(e.path for e in report.errors), *report.recognised}
        read |= {path for run in report.runs for path in files_of(run)}
        marks = {path: self._mark(path) for path in read}
        job = replace(job, workspace=workspace, names=names)
        analysis = Analysis(name, job, report, marks, self._epoch)
        self._analyses[name] = analysis
        blocks = [b for run in report.runs for b, _ in run.parts.blocks if b.path == name]
        self._blocks[name] = tuple(blocks) or self._blocks.get(name, ())
        if analysis.runs:  # what else names the document has turned out to be none of its business
            self._related[name] = tuple(n for n in names if n in analysis.files)
        return analysis

    def _linted(self, name: str, job: Job, go_on: Callable[[int, int], None]) -> Report:
        """The lint of a document's files, in which fixes leave alone what others use too."""
        known = self._elsewhere.get(name)
        analysed = self._analyses.get(name)
        earlier = () if analysed is None else analysed.report.runs

        def linted() -> Report:
            return lint(
                job.workspace,
                job.names,
                job.options,
                elsewhere=known,
                progress=go_on,
                earlier=earlier,
            )

        report = linted()
        # A remark's fix changes nothing, and so takes nothing from others.
        asking = (d.fix for d in report.diagnoses if d.severity >= Severity.WARNING)
        if known is None and any(fix is not None and fix.made for fix in asking):
            known = used_elsewhere(report, job.names, job.options, self._above_all().naming)
            self._elsewhere[name] = known
            if known:
                return linted()
        return report

    def dependants(self, name: str) -> list[str]:
        """The other documents whose last lint read a file, or may have missed one."""
        return [
            n
            for n, analysis in self._analyses.items()
            if n != name and (name in analysis.marks or analysis.epoch != self._epoch)
        ]

    def blocks(self, name: str) -> tuple[Block, ...]:
        """The blocks of a document when it could last be read."""
        return self._blocks.get(name, ())

    def naming(self, name: str) -> list[Source]:
        """The texts of the folder that name a file, by its name with its ending."""
        base = name.rpartition("/")[2].encode("utf-8", "surrogateescape")
        space = self._names.with_overlay(self._texts)
        read = ((other, space.read_or_none(other)) for other in self._above_all().naming(name))
        return [Source.from_bytes(n, data) for n, data in read if data is not None and base in data]

    # -- trying things out -----------------------------------------------------------

    def refusal(self, analysis: Analysis, diagnosis: Diagnosis) -> str | None:
        """Why a finding's fix would not do what it promises, if that is so."""
        job = self._with_neighbours(analysis, diagnosis.fix)
        try:
            apply_change(job.workspace, job.names, job.options, diagnosis)
        except CannotEdit as error:
            return str(error)
        return None

    def fixed(self, analysis: Analysis) -> Mapping[str, bytes]:
        """The files that ``--fix`` would change for the document's sake, with their new bytes."""
        job = replace(
            analysis.job, names=tuple(n for n in analysis.job.names if n in analysis.files)
        )
        naming = self._above_all().naming
        return fix_all(job.workspace, job.names, job.options, naming=naming).texts

    @staticmethod
    def tried(analysis: Analysis, edits: Sequence[Edit]) -> Report:
        """The runs as they would be after edits; no rule speaks."""
        return lint(edited(analysis, edits), analysis.job.names, analysis.job.options, rules=())

    def _with_neighbours(self, analysis: Analysis, fix: Fix | None) -> Job:
        return self._widened(analysis.job, {edit.path for edit in (fix.edits if fix else ())})

    def _widened(self, job: Job, paths: Iterable[str]) -> Job:
        """The job with all files that use one of ``paths``."""
        names = [*job.names]
        for path in paths:
            names += (path, *self._above(path, job))
        return replace(job, names=tuple(dict.fromkeys(names)))

    # -- keeping up ------------------------------------------------------------------

    def _job(self, name: str) -> Job | None:
        if name not in self._jobs:
            path = str(self._names.file(name))
            overlay = {path: b""}
            try:
                jobs = make_jobs(self._given, [path], overlay, self.root, looks_around=False)
            except UsageError as error:
                self._complain(str(error))
                jobs = make_jobs(
                    CheckRequest(isolated=True), [path], overlay, self.root, looks_around=False
                )
            self._jobs[name] = next((job for job in jobs if job.names), None)
        return self._jobs[name]

    def _above(self, name: str, job: Job) -> list[str]:
        """The files that lead to one and share its settings."""
        others = ((other, self._job(other)) for other in self._above_all().above(name))
        return [n for n, other in others if other is not None and other.found == job.found]

    def _above_all(self) -> Kin:
        if self._kin is None:
            self._kin = Kin(self.root)
            self._kin.refresh(self._texts)
        return self._kin

    def _space(self, base: Workspace) -> Workspace:
        """The workspace with the present texts, in which all that has not changed is parsed."""
        workspace, marks = self._spaces.get(base.project_root, (base, {}))
        changed = {n for n in workspace.parsed if n not in marks or marks[n] != self._mark(n)}
        if changed or workspace.overlay != self._texts:
            workspace = workspace.refreshed(self._texts, changed)
        return workspace

    def _remember(self, workspace: Workspace) -> None:
        marks = {name: self._mark(name) for name in workspace.parsed}
        self._spaces[workspace.project_root] = workspace, marks

    def _holds(self, analysis: Analysis) -> bool:
        return all(self._mark(name) == mark for name, mark in analysis.marks.items())

    def _mark(self, name: str) -> Mark:
        text = self._texts.get(name)
        return stamp(self._names.file(name)) if text is None else text


def edited(analysis: Analysis, edits: Sequence[Edit]) -> Workspace:
    """The workspace as it would be after edits."""
    texts = {
        path: analysis.source(path).edited(group).to_bytes()
        for path, group in by_path(edits).items()
    }
    return analysis.workspace.with_overlay(texts)
