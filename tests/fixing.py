"""A fix written into the text of a run and read back, and rules that only propose one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from oomlint.fix.edits import make_fix
from oomlint.rule import Applicability, Finding, Proposal, Rule, SetFields, Severity
from oomlint.run import Run


def fixed(read: Callable[[str], Run], text: str, changes: dict[str, Any]) -> str:
    """The text once a fix has made its run say ``changes``, proven to read as foreseen."""
    run = read(text)
    fix = make_fix(run, Proposal("title", (SetFields(changes),), Applicability.SAFE), None)
    assert fix is not None
    assert fix.reason is None, fix.reason
    for edit in sorted(fix.edits, key=lambda edit: -edit.start):
        text = text[: edit.start] + edit.replacement + text[edit.end :]
    after = read(text)
    for field, value in fix.expected.items():
        setting = after.settings.get(field)
        assert (None if setting is None else setting.value) == value, field
    return text


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
