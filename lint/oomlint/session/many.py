"""Linting many files: in batches, in several processes, keeping of each run what is reported."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from oomlint.errors import InternalError
from oomlint.files import dependencies
from oomlint.judgement import judgement_of
from oomlint.linting.engine import Report, Results, Told
from oomlint.runs.run import Run
from oomlint.session.batches import batches
from oomlint.session.jobs import FEW, Job, merge
from oomlint.session.process_pool import Lost, can_fork, processors, shared_out, tidy

# What one process holds of so many runs, with all their documents, is some 200 MB.
_AT_ONCE = 1000

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
_Order = tuple[int, int]
_KINDS = ("launch", "run", "part", "aside")


class _Part(Struct, frozen=True):
    """What comes back of a batch."""

    report: Results
    order: tuple[_Order, ...]
    """Where each run stands among those of all batches."""
    sights: dependencies.Sights


def lint_many(job: Job, lint: Lint, processes: int | None, tick: Tick) -> Results | None:
    """The report of ``lint(job)``, made in batches by up to ``processes`` processes (``None``: as
    many as there are processors). ``None`` if the job had better be done at once.

    Its runs are judgements, and its findings have no proposals
    left: enough for every report.
    """
    names = job.names
    wanted = processors() if processes is None else processes
    wanted = wanted if can_fork() else 1
    if len(names) <= (_AT_ONCE if wanted == 1 else FEW):
        return None
    wanted = min(wanted, 1 + len(names) // FEW)
    place = {name: number for number, name in enumerate(names)}
    is_recording = dependencies.is_recording()

    def work(batch: _Batch) -> _Part:
        own = replace(job, workspace=job.workspace.unread(), names=batch.names)
        if not is_recording:
            return _condensed(lint(own), place, {})
        with dependencies.recording() as sights:
            report = lint(own)
        return _condensed(report, place, sights)

    found: dict[int, _Part] = {}
    done = 0
    for batch, result in _each(work, _batches(job), wanted):
        part = _lost(job, batch.names, result) if isinstance(result, Lost) else result
        found[batch.number] = part
        dependencies.saw_all(part.sights)
        done += len(batch.names)
        tick(done, len(names))
    return _joined(job, [found[number] for number in sorted(found)])


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
    work: Callable[[_Batch], _Part], parts: Iterable[_Batch], processes: int
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
    order = [place for part in parts for place in part.order]
    ranked = sorted(zip(order, report.runs, strict=True), key=lambda pair: pair[0])
    return replace(report, runs=tuple(run for _, run in ranked), workspace=job.workspace)


def _lost(job: Job, part: Sequence[str], reason: Lost) -> _Part:
    others = f" and {len(part) - 1} files more" if len(part) > 1 else ""
    error = InternalError(part[0], f"{reason}; this file{others} could not be checked")
    return _Part(Results((), (), (error,), 0, job.workspace), (), {})


# -- what is kept of a report --------------------------------------------------------------


def _condensed(report: Report, place: Mapping[str, int], sights: dependencies.Sights) -> _Part:
    def short(diagnosis: Told) -> Told:
        finding, fix, run = diagnosis.finding, diagnosis.fix, diagnosis.run
        return Told(
            replace(finding, proposals=()),
            None if run is None else judgement_of(run),
            None if fix is None else replace(fix, expected={}, freed=frozenset(), made=None),
        )

    condensed = Results(
        diagnoses=tuple(map(short, report.diagnoses)),
        runs=tuple(map(judgement_of, report.runs)),
        errors=report.errors,
        files_read=report.files_read,
        workspace=report.workspace.unread(),
        recognised=report.recognised,
        fixed=report.fixed,
        applied=report.applied,
        gone=report.gone,
        known=tuple(map(short, report.known)),
    )
    return _Part(condensed, tuple(_order(run, place) for run in report.runs), sights)


def _order(run: Run, place: Mapping[str, int]) -> _Order:
    """The linker's order: launches, runs, parts, and of each kind by file."""
    root = run.parts.root
    if root is None:
        return len(_KINDS), 0
    return _KINDS.index(root.kind), place.get(root.path, len(place))
