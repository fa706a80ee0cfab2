"""The proof of fixes: that the edited files read as they promised, and otherwise as before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oomlint.documents.base import DataDocument
from oomlint.documents.proof import prove_edits
from oomlint.documents.text import by_path
from oomlint.files.workspace import Workspace
from oomlint.fix.edits import CandidateFix, is_higher
from oomlint.judgement import judgement_of, settled
from oomlint.linting.engine import Report
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib

_VERDICTS = ("fits", "tight", "does_not_fit")


class Refused(Exception):
    """A step that must not be taken; ``str(error)`` completes "not applied: …"."""

    def __init__(self, reason: str, *, is_bug: bool = True) -> None:
        super().__init__(reason)
        self.is_bug = is_bug


def prove(before: Report, after: Report, batch: Sequence[CandidateFix]) -> None:
    """Check that the edited files read as the fixes promised, and otherwise as before.

    No new error may appear, every run must still be there, each wished setting must have its
    wished value, and every other setting that a file says must say the same. A run that only
    shares a file with the fixed ones must stay as it is, unless it has the same fix, and then
    it must not fare worse.

    Raises:
        Refused: with the reason.
    """
    if len(after.errors) > len(before.errors):
        raise Refused(f"the file could not be read any more: {after.errors[-1].message}")
    _prove_texts(before.workspace, after.workspace, batch)
    now = _still_runs(before, after, batch)
    if len(now) != len(before.runs):
        if len(now) > len(before.runs) and all(_frees_all(d) for d in batch):
            return  # a mended script may show a run that could not be read before
        raise Refused("it changes which training runs the files describe")
    for old, new in zip(before.runs, now, strict=True):
        own = [d for d in batch if d.run is not None and d.run.name == old.name]
        near = [d for d in batch if d not in own and _reaches(d, old)]
        meant = [d for d in near if _is_for(d, old)]
        if near and not own and not meant and not _is_alike(old, new):
            raise Refused(
                f"it would also change {old.name}, which does not ask for it", is_bug=False
            )
        _prove_run(old, new, own, near)
        if own:
            _prove_peak(old, new, own)
        if near and not own and _is_worse(old, new):
            raise Refused(
                f"the file also serves {old.name}, which would then need more memory",
                is_bug=False,
            )


def _still_runs(before: Report, after: Report, batch: Sequence[CandidateFix]) -> list[Run]:
    """The runs afterwards, less the files that runs have left for copies and nobody names now."""
    left = {path for d in batch if d.fix is not None for path in d.fix.leaves}
    known = {run.name for run in before.runs}
    return [r for r in after.runs if r.name in known or not (r.is_fragment and r.sources <= left)]


def _is_for(change: CandidateFix, run: Run) -> bool:
    """Whether a change of another run's is for this one, too, as what mends a script is."""
    return _frees_all(change) or (change.fix is not None and run.name in change.fix.also)


def _is_alike(old: Run, new: Run) -> bool:
    names = {name for run in (old, new) for name in run.settings if run.is_explicit(name)}
    return old.plan == new.plan and all(_said(old, name) == _said(new, name) for name in names)


def _prove_texts(before: Workspace, after: Workspace, batch: Sequence[CandidateFix]) -> None:
    """Nothing but the keys and values that were edited may read differently: what no table
    knows must stay too. Documents of one tree each, YAML and JSON, can be compared."""
    edits = [edit for change in batch for edit in (change.fix.edits if change.fix else ())]
    for path, group in by_path([edit for edit in edits if not edit.creates]).items():
        old, new = before.document(path), after.document(path)
        if isinstance(old, DataDocument) and isinstance(new, DataDocument):
            problem = prove_edits(old, new, group)
            if problem is not None:
                raise Refused(f"{problem}, which no fix asked for")
            if new.relaxed and not old.relaxed:
                raise Refused(f"{path} would not be plain JSON any more")


def _frees_all(change: CandidateFix) -> bool:
    return change.fix is not None and change.fix.freed is None


def _reaches(change: CandidateFix, run: Run) -> bool:
    fix = change.fix
    return fix is not None and any(edit.path in run.files for edit in fix.edits)


def _prove_run(
    old: Run, new: Run, own: Sequence[CandidateFix], near: Sequence[CandidateFix]
) -> None:
    promised: dict[Any, Any] = {}
    free: set[str] = set()
    for fix in (d.fix for d in own if d.fix is not None):
        promised.update(fix.expected)
    for fix in (d.fix for d in (*own, *near) if d.fix is not None):
        if fix.freed is None:
            return
        free |= {*fix.freed, *fix.expected}
    for name, value in promised.items():
        if _said(new, name) != _comparable(value):
            raise Refused(f"{name} would not have become {value}")
    said = {f for run in (old, new) for f in run.settings if run.is_explicit(f)}
    for name in sorted(said - free):
        if _said(old, name) != _said(new, name):
            raise Refused(f"it would have changed {name} too")


def _prove_peak(old: Run, new: Run, own: Sequence[CandidateFix]) -> None:
    """No prediction may rise that a fix does not own up to. A key that comes into force, renamed
    or freed by another's removal, is in the prediction of the run as it is meant already."""
    if any(d.fix is None or d.fix.rise or d.fix.freed is None for d in own):
        return
    was, now = (settled(run).estimate.gpu.peak_bytes for run in (old, new))
    if was is not None and now is not None and is_higher(now, was):
        by = gib(now - was)
        raise Refused(f"it would raise the predicted GPU peak by {by}", is_bug=False)


def _said(run: Run, field: Any) -> Any:
    setting = run.settings.get(field)
    return None if setting is None else _comparable(setting.value)


def _comparable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _is_worse(old: Run, new: Run) -> bool:
    if judgement_of(new).endings and not judgement_of(old).endings:
        return True
    was, now = judgement_of(old).verdict, judgement_of(new).verdict
    if was in _VERDICTS and now in _VERDICTS:
        return _VERDICTS.index(now) > _VERDICTS.index(was)
    before, after = settled(old).estimate.gpu.peak_bytes, settled(new).estimate.gpu.peak_bytes
    return before is not None and after is not None and is_higher(after, before)
