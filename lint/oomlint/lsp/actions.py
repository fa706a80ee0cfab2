"""Code actions: fixes of findings, a comment that ignores one, its page, and all safe fixes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

from lsprotocol import types

from oomlint.documents.difference import difference
from oomlint.documents.text import Edit, Source
from oomlint.errors import CannotEdit
from oomlint.judgement import judgement_of
from oomlint.linting.engine import Diagnosis
from oomlint.linting.rule import Applicability
from oomlint.lsp.commands import ways_of
from oomlint.lsp.diagnostics import diagnostic, overlapping
from oomlint.lsp.ignoring import ignoring
from oomlint.lsp.project import Analysis, Project
from oomlint.lsp.view import View
from oomlint.report.blocks import is_cause
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib

FIX_ALL = "source.fixAll.oomlint"
KINDS = (types.CodeActionKind.QuickFix, FIX_ALL)

EXPLAIN = "oomlint.explain"
FIT = "oomlint.fit"
APPLY = "oomlint.applyWay"

# Of a run's ways to fit so many are offered where the caret is; the page has them all.
_MOST_WAYS = 3


def actions(project: Project, view: View, params: types.CodeActionParams) -> list[types.CodeAction]:
    """What can be done about a range of the document.

    Working out all safe fixes takes a while: a client that can ask for an edit once the user
    has chosen gets that action without it.
    """
    analysis = view.analysis
    found: list[types.CodeAction] = []
    only = params.context.only
    if _wanted(types.CodeActionKind.QuickFix.value, only):
        span = view.positions(analysis.name).span(params.range)
        found += _quick_fixes(project, view, list(overlapping(analysis, span)))
    if _wanted(FIX_ALL, only) and _has_safe_fixes(analysis):
        action = types.CodeAction("Fix all that oomlint can fix safely", FIX_ALL)
        if view.client.resolves_edits and only is None:
            action.data = {"uri": params.text_document.uri}
            found.append(action)
        else:
            found += _with_edit(project, view, action)
    return found


def _with_edit(
    project: Project, view: View, action: types.CodeAction
) -> Iterator[types.CodeAction]:
    """The action with all safe fixes; disabled, with the reason, where it cannot be sent."""
    try:
        action.edit = fix_all(project, view)
    except CannotEdit as error:
        if view.client.takes_disabled:
            action.disabled = types.CodeActionDisabled(_capital(str(error)))
    if action.edit is not None or action.disabled is not None:
        yield action


def fix_all(project: Project, view: View) -> types.WorkspaceEdit | None:
    """What ``--fix`` does for the document; ``None`` where that is nothing.

    Raises:
        CannotEdit: it adds a file, which the client cannot do.
    """
    analysis = view.analysis
    edits: list[Edit] = []
    for path, data in project.fixed(analysis).items():
        new = Source.from_bytes(path, data)
        if analysis.workspace.exists(path):
            edits += difference(analysis.source(path), new)
        else:
            edits.append(Edit(path, 0, 0, new.text, creates=True))
    return view.workspace_edit(edits) if edits else None


def _wanted(offered: str, only: Sequence[Any] | None) -> bool:
    """Whether a client that asks only for some kinds asks for this one; a kind includes those
    whose names go on behind a dot."""
    wanted = [str(kind.value if isinstance(kind, Enum) else kind) for kind in only or ()]
    return only is None or any(not w or f"{offered}.".startswith(f"{w}.") for w in wanted)


def _has_safe_fixes(analysis: Analysis) -> bool:
    """Whether ``--fix`` begins with something."""
    return any(
        d.applicable is not None and d.applicable.applicability is Applicability.SAFE
        for d in analysis.planned
    )


def _quick_fixes(
    project: Project, view: View, found: Sequence[Diagnosis]
) -> Iterator[types.CodeAction]:
    """What mends findings at one place, then how their runs could fit, each of these once however many
    findings say the same, and last what only silences or explains them."""
    shown = {id(diagnosis): diagnostic(diagnosis, view, None) for diagnosis in found}
    for diagnosis in found:
        planned = _with_plan(view.analysis, diagnosis)
        yield from _of_fix(project, view, planned, [shown[id(diagnosis)]])
    in_trouble: dict[str, tuple[Run, list[types.Diagnostic]]] = {}
    for diagnosis in found:
        run = diagnosis.run
        if run is None or not judgement_of(run).is_in_trouble:
            continue
        if is_cause(diagnosis.finding, judgement_of(run)):
            in_trouble.setdefault(run.name, (run, []))[1].append(shown[id(diagnosis)])
    for run, told in in_trouble.values():
        yield from _of_ways(view, run, told)
    for diagnosis in found:
        yield from _about(view, diagnosis, [shown[id(diagnosis)]])


def _about(
    view: View, diagnosis: Diagnosis, shown: list[types.Diagnostic]
) -> Iterator[types.CodeAction]:
    name = diagnosis.rule.name
    comment = ignoring(view.analysis, diagnosis)
    if comment is not None:
        yield types.CodeAction(
            f"Ignore {name} here",
            types.CodeActionKind.QuickFix,
            diagnostics=shown,
            edit=view.workspace_edit([comment]),
        )
    title = f"Explain {name}"
    yield types.CodeAction(
        title,
        types.CodeActionKind.QuickFix,
        diagnostics=shown,
        command=types.Command(title, EXPLAIN, arguments=[{"rule": name}]),
    )


def _of_ways(view: View, run: Run, shown: list[types.Diagnostic]) -> Iterator[types.CodeAction]:
    """The cheapest ways to make a run fit, and the page of all; which edits one takes is worked out when
    it is taken."""
    kind = types.CodeActionKind.QuickFix
    for number, way in enumerate(ways_of(view.analysis, run)[:_MOST_WAYS], 1):
        title = f"Way {number}: {'; '.join(way.titles)} → {gib(way.estimate.gpu.peak_bytes)}"
        asked = {"uri": view.uri(view.analysis.name), "run": run.name, "number": number}
        command = types.Command(title, APPLY, arguments=[asked])
        yield types.CodeAction(title, kind, diagnostics=shown, command=command)
    title = "Show the ways to make this run fit"
    arguments = [{"uri": view.uri(view.analysis.name), "run": run.name}]
    command = types.Command(title, FIT, arguments=arguments)
    yield types.CodeAction(title, kind, diagnostics=shown, command=command)


def _with_plan(analysis: Analysis, diagnosis: Diagnosis) -> Diagnosis:
    """A headline with the way out of its run's trouble, which takes a moment to find: only when somebody
    looks."""
    if not diagnosis.rule.is_headline or diagnosis.fix is not None:
        return diagnosis
    return next(d for d in analysis.planned if d.finding is diagnosis.finding)


def _of_fix(
    project: Project, view: View, diagnosis: Diagnosis, shown: list[types.Diagnostic]
) -> Iterator[types.CodeAction]:
    """A finding's own fix; why it cannot be had, where the client shows that."""
    fix = diagnosis.applicable
    if fix is None:
        return
    is_safe = fix.applicability is Applicability.SAFE
    title = _capital(fix.title) + ("" if fix.trains_the_same else " (may change results)")
    action = types.CodeAction(title, types.CodeActionKind.QuickFix, diagnostics=shown)
    refusal = view.refusal(fix.edits) or project.refusal(view.analysis, diagnosis)
    if refusal is None:
        action.is_preferred = True if is_safe else None
        action.edit = view.workspace_edit(fix.edits)
        yield action
    elif view.client.takes_disabled:
        action.disabled = types.CodeActionDisabled(_capital(refusal))
        yield action


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
