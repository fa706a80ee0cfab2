"""A fix written into the text of a run and read back, and rules that only propose one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tests import linked

from oomlint.documents.text import apply_edits, by_path
from oomlint.fix.apply import FixResult, fix_all
from oomlint.fix.edits import Fix, make_fix
from oomlint.linting.engine import Options
from oomlint.linting.rule import Finding, Proposal, Rule, Severity
from oomlint.runs.run import Run

Files = Mapping[str, str]


def fix_of(run: Run, changes: Mapping[Any, Any]) -> Fix:
    """What would make a run say ``changes``: edits, or the reason why there are none."""
    fix = make_fix(run, Proposal.set("title", changes), None)
    assert fix is not None
    return fix


def fixed(read: Callable[[str], Run], text: str, changes: Mapping[Any, Any]) -> str:
    """The text once a fix has made its run say ``changes``, proven to read as foreseen."""
    fix = fix_of(read(text), changes)
    after = apply_edits(text, fix.edits)
    _prove(fix, read(after))
    return after


def fixed_files(
    read: Callable[[dict[str, str]], Run], files: Files, changes: Mapping[Any, Any]
) -> dict[str, str]:
    """The same of a run that several files make."""
    fix = fix_of(read({**files}), changes)
    edited = {path: apply_edits(files[path], edits) for path, edits in by_path(fix.edits).items()}
    after = {**files, **edited}
    _prove(fix, read(after))
    return after


def repaired(
    files: linked.Files,
    *names: str,
    hardware: str | None = None,
    rules: Sequence[type[Rule]] | None = None,
    unsafe: bool = False,
) -> FixResult:
    """What all fixes together make of the files ``names``, by default of all."""
    options = Options(hardware=linked.hardware_of(hardware))
    workspace = linked.workspace_of(files)
    return fix_all(workspace, names or tuple(files), options, rules=rules, unsafe=unsafe)


def _prove(fix: Fix, after: Run) -> None:
    assert fix.reason is None, fix.reason
    for field, value in fix.expected.items():
        setting = after.settings.get(field)
        assert (None if setting is None else setting.value) == value, field


def speaks(
    proposals: Callable[[Run], Proposal | None],
    *,
    code: str = "OOM101",
    name: str = "wants",
    cost: int = 0,
    at: str = "model.id",
) -> type[Rule]:
    """A rule that proposes what ``proposals(run)`` gives, where it gives anything."""

    def check(self: Rule, run: Run) -> Iterable[Finding]:
        found = proposals(run)
        if found is not None:
            yield self.finding(run, Severity.WARNING, f"{name} it", at=at, proposals=[found])

    members = {"code": code, "name": name, "cost": cost, "check": check}
    return type(name, (Rule,), members)


def wants(
    field: str, value: Any, when: Callable[[Run], bool] = lambda run: True, **more: Any
) -> type[Rule]:
    """A rule that wants a field to have a value."""

    def proposals(run: Run) -> Proposal | None:
        if run.plan.get(field) == value or not when(run):
            return None
        return Proposal.set(f"set {field}", {field: value})

    return speaks(proposals, **more)
