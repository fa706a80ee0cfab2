"""What the way out of a run promises, against what is judged once it is taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from oomlint.documents.text import Source, by_path
from oomlint.files.workspace import Workspace
from oomlint.fix.edits import Fix
from oomlint.fix.planned import with_plans
from oomlint.hardware import parse_hardware
from oomlint.judgement import Judgement, judgement_of
from oomlint.linting.engine import Options, Report, lint
from oomlint.linting.rule import Applicability, Severity
from oomlint.report.blocks import ways_in

HARDWARE = ("8xA100-80GB", "4xA100-40GB", "1xRTX-4090", "1xT4")
# Shares of a need: predictions are rounded to bytes component by component.
_ROUNDING = 0.001


def checked(folder: Path, names: Sequence[str], options: Options) -> Report:
    """A check as the command makes it, with the way out of each run in trouble."""
    workspace = Workspace(folder)
    return _planned(lint(workspace, names, options), options)


def _planned(report: Report, options: Options) -> Report:
    diagnoses = with_plans(report, options, Applicability.SAFE)
    return replace(report, diagnoses=tuple(diagnoses))


def broken(
    folder: Path, names: Sequence[str], hardware: str, level: Applicability = Applicability.SAFE
) -> Iterator[str]:
    """What is wrong with the safe ways out of the runs of a folder, a line each."""
    options = Options(hardware=parse_hardware(hardware))
    before = checked(folder, names, options)
    for name, fix in ways_in(before).items():
        # A run that gets a copy of a shared file goes by another name: tests/fix/test_copies.py.
        if fix.applicability >= level and not fix.leaves and _is_of_memory(before, name, fix):
            for text in _broken(before, name, fix, options, names):
                yield f"{name} on {hardware}: {text}"


def _is_of_memory(before: Report, name: str, fix: Fix) -> bool:
    """Whether a fix changes the need at all: attention that a card cannot compute is mended for its own sake."""
    run = next(run for run in before.runs if run.name == name)
    estimate = judgement_of(run).spoken.estimate
    now = (estimate.gpu.peak_bytes, estimate.host.peak_bytes)
    return now != (fix.gpu_bytes_after, fix.host_bytes_after)


def _broken(
    before: Report, name: str, fix: Fix, options: Options, names: Sequence[str]
) -> Iterator[str]:
    workspace = before.workspace.with_overlay(_applied(before.workspace, fix))
    after = lint(workspace, names, options)
    if len(after.errors) > len(before.errors):
        yield f"{after.errors[-1].path} cannot be read: {after.errors[-1].message}"
        return
    new = _errors(after, name) - _errors(before, name)
    if new:
        yield f"new errors: {', '.join(sorted(new))}"
    run = next((run for run in after.runs if run.name == name), None)
    if run is None:
        yield "the run is gone"
        return
    yield from _unkept(judgement_of(run), fix)


def _errors(report: Report, name: str) -> set[str]:
    found = (d for d in report.diagnoses if d.run is not None and d.run.name == name)
    return {d.rule.name for d in found if d.severity >= Severity.ERROR}


def _unkept(judgement: Judgement, fix: Fix) -> Iterator[str]:
    estimate = judgement.spoken.estimate
    for what, now, promised in (
        ("GPU", estimate.gpu.peak_bytes, fix.gpu_bytes_after),
        ("host", estimate.host.peak_bytes, fix.host_bytes_after),
    ):
        if now is None or promised is None:
            if fix.changes and now != promised:
                yield f"{what}: {promised} was promised, {now} it is"
        elif abs(now - promised) > _ROUNDING * promised:
            yield f"{what}: {promised / 2**30:.2f} GiB were promised, {now / 2**30:.2f} it is"
    risk = judgement.risk
    if risk is None or risk.any is None:
        yield "whether it fits is not known any more"
    elif "leaves a risk" in fix.title or not fix.changes:
        if risk.is_lost:
            yield f"it still rather dies ({risk.any:.2f})"
    elif judgement.verdict != "fits":
        yield f"it does not fit ({risk.any:.2f}) after: {fix.title}"


def _applied(workspace: Workspace, fix: Fix) -> dict[str, bytes]:
    changed: dict[str, bytes] = {}
    for path, group in by_path(list(fix.edits)).items():
        if any(edit.creates for edit in group):
            changed[path] = Source(path, group[0].replacement).to_bytes()
        else:
            source = Source.from_bytes(path, workspace.read(path))
            changed[path] = source.edited(group).to_bytes()
    return changed
