"""Linting many files: in batches, in several processes, keeping of each run what is reported."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from oomlint.errors import InternalError
from oomlint.files import dependencies
from oomlint.judgement import Judgement, judgement_of
from oomlint.linting.diagnosis import Diagnosis, Given
from oomlint.linting.engine import Report, Results, Told
from oomlint.runs.run import Run
from oomlint.session.batches import batches
from oomlint.session.jobs import FEW, Job, merge
from oomlint.session.process_pool import Lost, can_fork, processors, shared_out, tidy

if TYPE_CHECKING:
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
Tick = Callable[[int, "int | None"], None]
_Root = tuple[str, str] | None
_Order = tuple[int, int]
_KINDS = ("launch", "run", "part", "aside")


class _Part(Struct, frozen=True):
    """What comes back of a batch."""

    report: Results
    roots: tuple[_Root, ...]
    """Where each run begins."""


def lint_many(
    job: Job,
    lint: Lint,
    processes: int | None,
    tick: Tick,
    asked: str | None = None,
    *,
    bounds: bool = True,
) -> Results | None:
    """The report of ``lint(job)``, made in batches by up to ``processes`` processes (``None``: as
    many as there are processors). ``None`` if the job had better be done at once, which does not depend on
    processes: the same files are in a batch on any machine.

    Its runs are judgements, and its findings have no proposals
    left: enough for every report, and without ``bounds`` for those that show none of predictions. What is said of a
    batch is kept, and said again, if ``lint`` depends on nothing but the job and what is ``asked``.
    """
    if len(job.names) <= FEW:
        return None
    # Of a batch without runs nobody knows whether the others have some: mostly they do.
    found = _in_batches(replace(job, others_train=True), lint, processes, tick, asked, bounds)
    have_runs = any(not judgement_of(run).written.is_fragment for run in found.runs)
    if have_runs or not (found.diagnoses or found.known):
        return found
    return _in_batches(replace(job, others_train=False), lint, processes, tick, asked, bounds)


def _in_batches(
    job: Job, lint: Lint, processes: int | None, tick: Tick, asked: str | None, bounds: bool
) -> Results:
    names = job.names
    wanted = processors() if processes is None else processes
    wanted = wanted if can_fork() else 1
    is_recording = dependencies.is_recording()
    kept = _kept_batches(job, f"{asked} {bounds}") if is_recording and asked else None

    def work(batch: _Batch) -> tuple[_Part, dependencies.Sights]:
        own = replace(job, workspace=job.workspace.unread(), names=batch.names)
        if not is_recording:
            return _condensed(lint(own), bounds), {}
        with dependencies.recording() as sights:
            part = _condensed(
                lint(own), bounds
            )  # which asks for fixes, and so may look at more files
        if kept is not None and not part.report.errors:
            kept.keep(batch.names, part, sights)
        return part, sights

    found: dict[int, _Part] = {}
    done = 0

    def take(batch: _Batch, part: _Part, sights: dependencies.Sights) -> None:
        nonlocal done
        found[batch.number] = part
        dependencies.saw_all(sights)
        done += len(batch.names)
        tick(done, len(names))

    left = []
    for batch in _batches(job):
        known = None if kept is None else kept.found(batch.names, _Part)
        if known is None:
            left.append(batch)
        else:
            take(batch, *known)
    # One that is left alone is done before others are started.
    wanted = min(wanted, 1 + sum(len(batch.names) for batch in left) // FEW, len(left))
    for batch, result in _each(work, left, wanted):
        lost = isinstance(result, Lost)
        take(batch, *((_lost(job, batch.names, result), {}) if lost else result))
    return _joined(job, [found[number] for number in sorted(found)])


def _kept_batches(job: Job, asked: str) -> KeptBatches | None:
    if job.workspace.overlay:
        return None
    from oomlint.session.kept_batches import KeptBatches

    try:
        return KeptBatches(job, asked)
    except (OSError, ValueError):  # a check of which nothing can be kept is a check all the same
        return None


class _Batch(NamedTuple):
    """Files that are linted together, and where they stand among all."""

    number: int
    names: tuple[str, ...]


def _batches(job: Job) -> Iterator[_Batch]:
    """The largest first: at the end nobody waits for long."""
    parts = batches(job.workspace, job.names)
    every = [_Batch(number, tuple(names)) for number, names in enumerate(parts)]
    yield from sorted(every, key=lambda batch: -len(batch.names))


def _each(
    work: Callable[[_Batch], Any], parts: Iterable[_Batch], processes: int
) -> Iterator[tuple[_Batch, Any]]:
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


def _joined(job: Job, parts: Sequence[_Part]) -> Results:
    """One report, with its runs as if all had been linted at once: launches first."""
    report = merge(part.report for part in parts)
    place = {name: number for number, name in enumerate(job.names)}
    order = [_order(root, place) for part in parts for root in part.roots]
    ranked = sorted(zip(order, report.runs, strict=True), key=lambda pair: pair[0])
    return replace(report, runs=tuple(run for _, run in ranked), workspace=job.workspace)


def _lost(job: Job, part: Sequence[str], reason: Lost) -> _Part:
    others = f" and {len(part) - 1} files more" if len(part) > 1 else ""
    error = InternalError(part[0], f"{reason}; this file{others} could not be checked")
    return _Part(Results((), (), (error,), 0, job.workspace), ())


# -- what is kept of a report --------------------------------------------------------------


def _condensed(report: Report, bounds: bool) -> _Part:
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
            Given(None if fix is None else replace(fix, expected={}, freed=frozenset(), made=None)),
        )

    condensed = Results(
        diagnoses=tuple(map(short, report.diagnoses)),
        runs=tuple(map(kept, report.runs)),
        errors=report.errors,
        files_read=report.files_read,
        workspace=report.workspace.unread(),
        recognised=report.recognised,
        fixed=report.fixed,
        applied=report.applied,
        gone=report.gone,
        known=tuple(map(short, report.known)),
    )
    return _Part(condensed, tuple(map(_root, report.runs)))


def _root(run: Run) -> _Root:
    """The kind of what a run begins with, and its file."""
    root = run.parts.root
    return None if root is None else (root.kind, root.path)


def _order(root: _Root, place: Mapping[str, int]) -> _Order:
    """The linker's order: launches, runs, parts, and of each kind by file."""
    if root is None:
        return len(_KINDS), 0
    kind, path = root
    return _KINDS.index(kind), place.get(path, len(place))
