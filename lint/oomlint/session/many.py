"""Linting many files: in batches, in several processes, keeping of each run what is reported."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from oomlint.documents import JSON_SUFFIXES, kind_of
from oomlint.errors import FileError, InternalError
from oomlint.files import dependencies
from oomlint.files.workspace import Workspace
from oomlint.judgement import Judgement, judgement_of
from oomlint.linting.diagnosis import Diagnosis, Given
from oomlint.linting.engine import Report, Results, Told
from oomlint.plugins import dialects_in_force
from oomlint.runs.elsewhere import Elsewhere
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run
from oomlint.session.batches import Batch, batches
from oomlint.session.jobs import FEW, Job, merge
from oomlint.session.process_pool import Lost, can_fork, processors, shared_out, tidy
from oomlint.session.shared_files import Group, Part, Rank, Root, shares_of

if TYPE_CHECKING:
    from oomlint.fix.edits import Fix
    from oomlint.session.kept_batches import KeptBatches

# What a batch with any run in it imports.
_NEEDED = (
    "oomlint.documents.shell.document",
    "oomlint.documents.yaml.document",
    "oomlint.hardware",
    "oomlint.memory.limits",
    "oomlint.models",
    "oomlint.judgement",
    "oomlint.judgement.alternatives",
    "ruamel.yaml.cyaml",
)

Lint = Callable[[Job], Report]
Plan = Callable[[Report, Job], Report]
Tick = Callable[[int, "int | None"], None]
_KINDS = ("launch", "run", "part", "aside")


# What batches of shared files are told decides about what they say, which others may have to be told.
_MOST_ROUNDS = 6


def lint_many(
    job: Job,
    lint: Lint,
    processes: int | None,
    tick: Tick,
    asked: str | None = None,
    *,
    bounds: bool = True,
    plan: Plan | None = None,
) -> Results | None:
    """The report of ``lint(job)``, with what ``plan`` makes of it, made in batches by up to
    ``processes`` processes (``None``: as many as there are processors). ``None`` if the job had better be done at once,
    which does not depend on processes: the same files are in a batch on any machine.

    Its runs are judgements, and its findings have no proposals
    left: enough for every report, and without ``bounds`` for those that show none of predictions. What is said of a
    batch is kept, and said again, if ``lint`` depends on nothing but the job and what is ``asked``.
    """
    if len(job.names) <= FEW:
        return None
    # Of a batch without runs nobody knows whether the others have some: mostly they do.
    many = _Many(lint, plan, bounds, processes, tick, asked)
    found = many.linted(replace(job, others_train=True))
    have_runs = any(not judgement_of(run).written.is_fragment for run in found.runs)
    if have_runs or not (found.diagnoses or found.known):
        return found
    return many.linted(replace(job, others_train=False))


class _Item(NamedTuple):
    """A batch, where it stands among all, and what it is told of others."""

    number: int
    batch: Batch
    elsewhere: Elsewhere


class _Many(NamedTuple):
    """How many files are linted."""

    lint: Lint
    plan: Plan | None
    bounds: bool
    processes: int | None
    tick: Tick
    asked: str | None

    def linted(self, job: Job) -> Results:
        parts = batches(job.workspace, job.names, is_part=_part_finder(job))
        found: dict[int, Part] = {}
        groups: dict[int, dict[int, Batch]] = {}
        for number, batch in enumerate(parts):
            if batch.group is not None:
                groups.setdefault(batch.group, {})[number] = batch
        items = [
            _Item(number, batch, Elsewhere(files=batch.shared))
            for number, batch in enumerate(parts)
        ]
        # The largest first: at the end nobody waits for long.
        items.sort(key=lambda item: -len(item.batch.names))
        self._take(job, items, found)
        for numbers in groups.values():
            self._settle(job, numbers, found)
        return _joined(job, [found[number] for number in sorted(found)])

    def _settle(self, job: Job, group: Mapping[int, Batch], found: dict[int, Part]) -> None:
        """Tell the batches of a group what the others said, until each said what it says under that."""
        place = {name: number for number, name in enumerate(job.names)}
        shared = next(iter(group.values())).shared
        heard = {number: Elsewhere(files=shared) for number in group}
        firsts = {number: found[number] for number in group}
        for _ in range(_MOST_ROUNDS):
            said = {number: found[number] for number in group}
            known = Group(shared, said, heard, firsts, lambda root: _order(root, place))
            if known.is_inseparable:
                break
            news = known.to_hear()
            if not news:
                found.update(known.told())
                return
            heard = {**heard, **news}
            items = [_Item(number, group[number], what) for number, what in news.items()]
            self._take(job, items, found)
        for number in group:
            del found[number]
        files = sorted((n for b in group.values() for n in b.names), key=place.__getitem__)
        self._take(job, [_Item(min(group), Batch(tuple(files)), Elsewhere())], found)

    def _take(self, job: Job, items: Sequence[_Item], found: dict[int, Part]) -> None:
        """Lint batches, or find what is kept of them."""
        is_recording = dependencies.is_recording()
        asked = f"{self.asked} {self.bounds}" if is_recording and self.asked else None
        kept = None if asked is None else _kept_batches(job, asked)

        def work(item: _Item) -> tuple[Part, dependencies.Sights]:
            if not is_recording:
                return self._part(job, item), {}
            with dependencies.recording() as sights:
                part = self._part(job, item)  # asks for fixes, and so may look at more files
            if kept is not None and not part.report.all_errors:
                kept.keep(item.batch.names, part, sights, [*item.batch.shared, item.elsewhere])
            return part, sights

        def take(item: _Item, part: Part, sights: dependencies.Sights) -> None:
            found[item.number] = part
            dependencies.saw_all(sights)
            done = sum(len(part.names) for part in found.values())
            self.tick(min(done, len(job.names)), len(job.names))

        left = []
        for item in items:
            about = [*item.batch.shared, item.elsewhere]
            known = None if kept is None else kept.found(item.batch.names, Part, about)
            if known is None:
                left.append(item)
            else:
                take(item, *known)
        wanted = processors() if self.processes is None else self.processes
        wanted = wanted if can_fork() else 1
        # One that is left alone is done before others are started.
        wanted = min(wanted, 1 + sum(len(item.batch.names) for item in left) // FEW, len(left))
        for item, result in _each(work, left, wanted):
            lost = isinstance(result, Lost)
            names = item.batch.names
            take(item, *((_lost(job, names, result), {}) if lost else result))

    def _part(self, job: Job, item: _Item) -> Part:
        own = replace(
            job,
            workspace=job.workspace.unread(),
            names=item.batch.names,
            options=replace(job.options, elsewhere=item.elsewhere),
        )
        proposed = self.lint(own)
        planned = None if self.plan is None else self.plan(proposed, own)
        report = proposed if planned is None else planned
        shared = item.batch.shared
        shares = None
        if shared:
            roots = [None if d.run is None else _root(d.run) for d in report.diagnoses]
            shares = shares_of(proposed, planned, roots, shared)
        return Part(
            _condensed(report, self.bounds),
            item.batch.names,
            tuple(map(_root, report.runs)),
            report.opened,
            shares,
        )


def _part_finder(job: Job) -> Callable[[str], bool]:
    """Whether a file is at most a part of runs, and says nothing that others of its kind might not say for it."""
    if job.options.baseline is not None:  # it counts what is found in a file
        return lambda _name: False
    linker: Linker | None = None

    def is_part(name: str) -> bool:
        nonlocal linker
        data = job.workspace.read_or_none(name)
        if kind_of(name) not in JSON_SUFFIXES or data is None or b"oomlint:" in data:
            return False
        if linker is None:
            options = job.options
            dialects = dialects_in_force(options.plugins, options.profiles)
            linker = Linker(job.workspace.unread(), dialects.items, options.link)
        try:
            claims = linker.claims(name)
        except FileError:
            return False
        return bool(claims) and all(claim.kind == "part" for claim in claims)

    return is_part


def _kept_batches(job: Job, asked: str) -> KeptBatches | None:
    if job.workspace.overlay:
        return None
    from oomlint.session.kept_batches import KeptBatches

    try:
        return KeptBatches(job, asked)
    except (OSError, ValueError):  # a check of which nothing can be kept is a check all the same
        return None


def _each(
    work: Callable[[_Item], Any], parts: Iterable[_Item], processes: int
) -> Iterator[tuple[_Item, Any]]:
    if processes > 1:
        yield from shared_out(work, parts, processes, _load_what_most_need)
    else:
        for batch in parts:
            yield batch, work(batch)
            tidy()  # the documents of a batch and its runs refer to each other
        gc.unfreeze()


def _load_what_most_need() -> None:
    from importlib import import_module

    for name in _NEEDED:
        import_module(name)


def _joined(job: Job, parts: Sequence[Part]) -> Results:
    """One report, with its runs as if all had been linted at once: launches first."""
    report = merge(part.report for part in parts)
    place = {name: number for number, name in enumerate(job.names)}
    order = [_order(root, place) for part in parts for root in part.roots]
    ranked = sorted(zip(order, report.runs, strict=True), key=lambda pair: pair[0])
    return replace(
        report,
        runs=tuple(run for _, run in ranked),
        workspace=job.workspace,
        files_read=len(frozenset[str]().union(*(part.opened for part in parts))),
    )


def _lost(job: Job, part: Sequence[str], reason: Lost) -> Part:
    others = f" and {len(part) - 1} files more" if len(part) > 1 else ""
    error = InternalError(part[0], f"{reason}; this file{others} could not be checked")
    return Part(Results((), (), (error,), 0, job.workspace), tuple(part), ())


# -- what is kept of a report --------------------------------------------------------------


def _condensed(report: Report, bounds: bool) -> Results:
    known: dict[int, Judgement] = {}

    def kept(run: Run) -> Judgement:
        if id(run) not in known:
            known[id(run)] = judgement_of(run).kept(bounds=bounds)
        return known[id(run)]

    def short(diagnosis: Diagnosis) -> Told:
        finding, fix, run = diagnosis.finding, diagnosis.fix, diagnosis.run
        return Told(
            replace(finding, proposals=()),
            None if run is None else kept(run),
            Given(None if fix is None else _told(fix)),
        )

    return Results(
        diagnoses=tuple(map(short, report.diagnoses)),
        runs=tuple(map(kept, report.runs)),
        errors=report.errors,
        files_read=report.files_read,
        workspace=Workspace(
            report.workspace.cwd
        ),  # whoever joins the parts has what the user named
        recognised=report.recognised,
        fixed=report.fixed,
        applied=report.applied,
        gone=report.gone,
        known=tuple(map(short, report.known)),
    )


def _told(fix: Fix) -> Fix:
    """A fix as it is told, without what applying it takes."""
    return replace(fix, expected={}, freed=frozenset(), also=frozenset(), made=None)


def _root(run: Run) -> Root:
    """The kind of what a run begins with, and its file."""
    root = run.parts.root
    return None if root is None else (root.kind, root.path)


def _order(root: Root, place: Mapping[str, int]) -> Rank:
    """The linker's order: launches, runs, parts, and of each kind by file."""
    if root is None:
        return len(_KINDS), 0
    kind, path = root
    return _KINDS.index(kind), place.get(path, len(place))
