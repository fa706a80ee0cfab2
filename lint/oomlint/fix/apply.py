"""Applying fixes until nothing more is to be done, each one read back and proven.

Fixes are applied to texts in memory; files are written once, at the end. A fix that
changes more than it said is dropped and reported as a bug of ours; two fixes that undo
one another leave the text as it was before they met.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping as MappingABC, Sequence
from dataclasses import dataclass, field
from typing import Any

from oomlint.documents.text import Edit, Source, by_path, overlapping
from oomlint.engine import Diagnosis, Options, Report, lint
from oomlint.errors import FileError, InternalError
from oomlint.rule import Applicability, Rule, SetFields
from oomlint.run import Run
from oomlint.workspace import Workspace

# Ruff's tests converge within 8 passes and its command line gives up at 100; our fixes
# depend on one another through the memory budget, one step of which is one pass.
MAX_PASSES = 32


@dataclass(frozen=True, eq=False)
class FixResult:
    """The report after fixing, and the texts that have to be written."""

    report: Report
    texts: MappingABC[str, bytes]
    """Display path → new bytes, of every file that changed."""
    originals: MappingABC[str, bytes] = field(default_factory=dict)


def fix_all(
    workspace: Workspace,
    names: Sequence[str],
    options: Options,
    *,
    explicit: frozenset[str] = frozenset(),
    unsafe: bool = False,
    rules: Sequence[type[Rule]] | None = None,
) -> FixResult:
    """Lint and fix until a fixpoint. Nothing is written to disk here."""
    level = Applicability.UNSAFE if unsafe else Applicability.SAFE
    applied: list[Diagnosis] = []
    failures: list[FileError] = []
    refused: set[tuple[str, str, str]] = set()
    texts: dict[str, bytes] = {}
    seen = {_digest(texts)}
    current = workspace
    report = lint(current, names, options, explicit=explicit, rules=rules)
    for _ in range(MAX_PASSES):
        batch = list(choose(report.diagnoses, level, refused))
        if not batch:
            break
        outcome = _apply(current, names, options, explicit, rules, report, batch)
        if outcome is None and len(batch) > 1:
            batch = batch[:1]
            outcome = _apply(current, names, options, explicit, rules, report, batch)
        if outcome is None:
            refused.add(_identity(batch[0]))
            failures.append(_bug(batch[0]))
            continue
        changed, after = outcome
        merged = {**texts, **changed}
        digest = _digest(merged)
        if digest in seen:  # two fixes undo one another: stay where we were
            refused |= {_identity(diagnosis) for diagnosis in batch}
            failures.append(_cycle(batch))
            continue
        seen.add(digest)
        texts, report, current = merged, after, after.workspace
        applied += batch
    originals = {path: workspace.read(path) for path in texts}
    texts = {path: data for path, data in texts.items() if data != originals[path]}
    return FixResult(_final(report, applied, failures), texts, originals)


def choose(
    diagnoses: Iterable[Diagnosis], level: Applicability, refused: set[tuple[str, str, str]]
) -> Iterable[Diagnosis]:
    """The fixes to apply in one pass: none overlap, and each run's memory is changed by one
    fix at a time, the cheapest first, since the next may then be needless."""
    ready = [
        d
        for d in diagnoses
        if d.fix is not None
        and d.fix.edits
        and d.fix.applicability >= level
        and _identity(d) not in refused
    ]
    ready.sort(key=lambda d: (d.rule.cost, -d.severity, d.rule.code))
    taken: list[Edit] = []
    settled: set[str] = set()
    for diagnosis in ready:
        fix = diagnosis.fix
        assert fix is not None
        run = diagnosis.run
        if run is not None and _sets_fields(diagnosis):
            if run.name in settled:
                continue
        if any(overlapping(edit, other) for edit in fix.edits for other in taken):
            continue
        if run is not None and _sets_fields(diagnosis):
            settled.add(run.name)
        taken += fix.edits
        yield diagnosis


def _sets_fields(diagnosis: Diagnosis) -> bool:
    return any(
        isinstance(wish, SetFields)
        for proposal in diagnosis.finding.proposals
        for wish in proposal.wishes
    )


def _apply(
    workspace: Workspace,
    names: Sequence[str],
    options: Options,
    explicit: frozenset[str],
    rules: Sequence[type[Rule]] | None,
    before: Report,
    batch: Sequence[Diagnosis],
) -> tuple[dict[str, bytes], Report] | None:
    """The changed files and the report on them, or ``None`` if the proof fails."""
    edits = [edit for diagnosis in batch for edit in (diagnosis.fix.edits if diagnosis.fix else ())]
    changed: dict[str, bytes] = {}
    for path, group in by_path(edits).items():
        source = Source.from_bytes(path, workspace.read(path))
        changed[path] = source.edited(group).to_bytes()
    after_workspace = workspace.with_overlay(changed)
    after = lint(after_workspace, names, options, explicit=explicit, rules=rules)
    if not is_proven(before, after, batch):
        return None
    return changed, after


def is_proven(before: Report, after: Report, batch: Sequence[Diagnosis]) -> bool:
    """Whether the edited files read as the fixes promised, and otherwise as before.

    No new error may appear, every run must still be there, each wished setting must have
    its wished value, and every other setting that a file says must say the same.
    """
    if len(after.errors) > len(before.errors) or len(after.runs) != len(before.runs):
        return False
    expected: dict[str, Any] = {}
    renamed = False
    for diagnosis in batch:
        fix = diagnosis.fix
        expected.update((fix.expected if fix else None) or {})
        renamed = renamed or not _sets_fields(diagnosis)
    touched = {d.run.name for d in batch if d.run is not None}
    for old, new in zip(before.runs, after.runs, strict=True):
        promised = expected if old.name in touched else {}
        if not _reads_as_promised(old, new, promised, may_rename=renamed, shared=expected):
            return False
    return True


def _reads_as_promised(
    old: Run,
    new: Run,
    promised: MappingABC[str, Any],
    *,
    may_rename: bool,
    shared: MappingABC[str, Any],
) -> bool:
    for name, value in promised.items():
        if _said(new, name) != _comparable(value):
            return False
    old_fields = {f for f in old.settings if old.is_explicit(f)}
    new_fields = {f for f in new.settings if new.is_explicit(f)}
    for name in old_fields | new_fields:
        if name in promised or name in shared:
            continue
        if _said(old, name) != _said(new, name) and not (may_rename and name not in old_fields):
            return False
    return True


def _said(run: Run, field: str) -> Any:
    setting = run.settings.get(field)
    return None if setting is None else _comparable(setting.value)


def _comparable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _identity(diagnosis: Diagnosis) -> tuple[str, str, str]:
    run = diagnosis.run.name if diagnosis.run else diagnosis.finding.location.path
    return diagnosis.rule.code, run, diagnosis.fix.title if diagnosis.fix else ""


def _digest(texts: MappingABC[str, bytes]) -> int:
    return hash(tuple(sorted(texts.items())))


def _bug(diagnosis: Diagnosis) -> InternalError:
    title = diagnosis.fix.title if diagnosis.fix else ""
    return InternalError(
        diagnosis.finding.location.path,
        f"the fix of {diagnosis.rule.name} ({title}) would have changed more than it said and was "
        "not applied; please report this",
    )


def _cycle(batch: Sequence[Diagnosis]) -> InternalError:
    names = " and ".join(sorted({d.rule.name for d in batch}))
    return InternalError(
        batch[0].finding.location.path,
        f"the fix of {names} undoes an earlier fix; it was not applied, please report this",
    )


def _final(report: Report, applied: Sequence[Diagnosis], failures: Sequence[FileError]) -> Report:
    from dataclasses import replace

    return replace(
        report,
        fixed=len(applied),
        applied=tuple(applied),
        errors=(*report.errors, *failures),
    )
