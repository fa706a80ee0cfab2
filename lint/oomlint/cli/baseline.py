"""``--baseline``: leave out known findings; write the file that lists them, or prune it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, get_args

from msgspec.structs import replace

from oomlint.cli.output import emit
from oomlint.errors import UsageError
from oomlint.linting.baseline import DEFAULT_NAME, Baseline, read_baseline
from oomlint.linting.engine import Results
from oomlint.session.jobs import Job
from oomlint.session.request import CheckRequest

BaselineAction = Literal["write", "prune"]


def parse_baseline(text: str | None) -> tuple[BaselineAction | None, Path | None]:
    """What to do, and the file; ``write``, ``prune=FILE`` and ``FILE`` are told apart."""
    if text is None:
        return None, None
    word, _, file = text.partition("=")
    for action in get_args(BaselineAction):
        if word == action:
            return action, Path(file) if file else None
    return None, Path(text)


def update(
    action: BaselineAction, given: CheckRequest, jobs: Sequence[Job], reports: Sequence[Results]
) -> list[Results]:
    """Write or prune the baselines of the jobs; the reports without what they list now.

    Raises:
        UsageError: the baseline to prune is missing or is none.
    """
    out = []
    by_file: dict[Path, list[tuple[Job, Results]]] = {}
    for job, report in zip(jobs, reports, strict=True):
        by_file.setdefault(_file(given, job), []).append((job, report))
    for file, members in by_file.items():
        cwd = members[0][0].workspace.cwd
        old = Baseline(file.parent)
        if action == "prune" or file.exists():
            old = read_baseline(file, cwd)
        if old.is_report:
            raise UsageError(f"{file} is a report of oomlint check, no baseline to {action}")
        new = old
        for job, report in members:
            new = new.rewritten(
                report.diagnoses, job.workspace, _checked(job, report), grow=action == "write"
            )
        emit(new.text(), file)
        emit(_said(action, members[0][0].workspace.name(file), old, new), err=True)
        out += [_without(report, new) for _, report in members]
    return out


def _file(given: CheckRequest, job: Job) -> Path:
    cwd = job.workspace.cwd
    return cwd / (given.baseline or job.baseline_file or DEFAULT_NAME)


def _checked(job: Job, report: Results) -> set[str]:
    return {*job.names, *report.files}


def _without(report: Results, baseline: Baseline) -> Results:
    new, known = baseline.split(report.diagnoses, report.workspace)
    return replace(report, diagnoses=tuple(new), known=tuple(known))


def _said(action: BaselineAction, file: str, old: Baseline, new: Baseline) -> str:
    now = _findings(sum(new.counts.values()))
    if action == "write":
        return f"wrote {now} to {file}\n"
    gone = _findings(sum(old.counts.values()) - sum(new.counts.values()))
    return f"dropped {gone} from {file}, where {now} are left\n"


def note(report: Results, jobs: Iterable[Job]) -> str:
    """What the baseline kept back, and whether it has outlived some of it; empty without one."""
    used = [(job, job.options.baseline) for job in jobs if job.options.baseline is not None]
    if not used:
        return ""
    outlived = sum(b.outlived(report.known, job.workspace, job.names) for job, b in used)
    hint = f"; {_findings(outlived)} listed but not found: --baseline prune" if outlived else ""
    return f"{_findings(len(report.known))} known from the baseline{hint}\n"


def _findings(number: int) -> str:
    return f"{number} finding{'' if number == 1 else 's'}"
