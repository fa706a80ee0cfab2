"""The property harness for rules: every example of a rule is a test of it.

Used by this project's tests and by ``oomlint test-rules`` for rules of others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from oomlint.files.workspace import Workspace
from oomlint.fix.apply import FixResult, apply_change, fix_all
from oomlint.judgement import judgement_of
from oomlint.judgement.words import sentence
from oomlint.linting.engine import Diagnosis, Options, Report, lint
from oomlint.linting.rule import MOST_OF_A_TITLE, Applicability, Example, Rule, Severity
from oomlint.memory.result import GPU_COMPONENTS, HOST_COMPONENTS
from oomlint.plan.fields import f

_NOWHERE = Path("/oomlint-example")

# Remarks of one example, each made in a pass of its own.
_MOST_REMARKS = 8
_PARTS = tuple(dict.fromkeys((*GPU_COMPONENTS, *HOST_COMPONENTS)))
_HEADINGS = ("## What it finds", "## How to fix it", "## When not to", "## Sources")


def problems(rule: type[Rule]) -> Iterator[str]:
    """What is wrong with a rule, one sentence each; nothing for a sound one."""
    yield from _page_problems(rule)
    if not rule.bad:
        yield "has no bad example"
    if not rule.good:
        yield "has no good example"
    for number, example in enumerate(rule.bad, 1):
        for problem in _bad_problems(rule, example):
            yield f"bad example {number}: {problem}"
    for number, example in enumerate(rule.good, 1):
        for finding in lint_example(rule, example).diagnoses:
            yield f"good example {number}: speaks: {finding.finding.message}"


def _page_problems(rule: type[Rule]) -> Iterator[str]:
    page = rule.page()
    for heading in _HEADINGS:
        if heading not in page:
            yield f"its page lacks {heading!r}"
    if rule.summary.endswith("."):
        yield "its summary ends in a full stop"
    for part in rule.explains:
        if part not in _PARTS:
            yield f"explains {part!r}, which is no part of a need: {', '.join(_PARTS)}"


def _bad_problems(rule: type[Rule], example: Example) -> Iterator[str]:
    before = lint_example(rule, example)
    if before.errors:
        yield f"error: {before.errors[0].message}"
    if not before.diagnoses:
        yield f"is not found: {_seen(before)}"
        return
    for diagnosis in before.diagnoses:
        title = diagnosis.finding.message
        if len(title) > MOST_OF_A_TITLE or title.endswith("."):
            yield f"its title is no title of at most {MOST_OF_A_TITLE} characters: {title}"
    offered = [d.fix.applicability for d in before.diagnoses if d.fix is not None]
    best = max(offered, default=None)
    if rule.applicability is None and best is not None and best > Applicability.DISPLAY:
        yield f"has a {best.label} fix although the rule declares none"
    if best is not None and rule.applicability is not None and best > rule.applicability:
        yield f"its fix is {best.label}, more than the rule declares"
    if example.fixed is None:
        return
    result = _fix(rule, example)
    yield from _fix_problems(rule, example, before, result)


def _seen(report: Report) -> str:
    """What an example is taken for, which is why a rule says nothing of it."""
    if not report.runs:
        return "no run is read from it"
    return "; ".join(sentence(judgement_of(run).spoken) for run in report.runs)


def _fix_problems(
    rule: type[Rule], example: Example, before: Report, result: FixResult
) -> Iterator[str]:
    for error in result.report.errors:
        yield f"error while fixing: {error.message}"
    texts = {path: data.decode() for path, data in result.texts.items()}
    for path in sorted(set(texts) | set(example.fixed or {})):
        want = (example.fixed or {}).get(path, example.files.get(path))
        if texts.get(path, example.files.get(path)) != want:
            yield f"{path} becomes\n{texts.get(path)}\ninstead of\n{want}"
    for left in result.report.diagnoses:
        if left.applicable is not None:
            yield f"is still found and fixable after the fix: {left.finding.message}"
    again = _fix(rule, Example({**example.files, **texts}, hardware=example.hardware,
                               host_memory=example.host_memory, values=example.values))  # fmt: skip
    if again.texts:
        yield "is not stable: a second run changes it again"
    for old, new in zip(before.runs, result.report.runs, strict=True):
        was, now = old.estimate.gpu.peak_bytes, new.estimate.gpu.peak_bytes
        if was is not None and now is not None and now > was * 1.001 and _is_about_gpu(before):
            yield f"raises the predicted GPU peak from {was} to {now} bytes"


def _is_about_gpu(report: Report) -> bool:
    return any(d.finding.resource == "gpu" for d in report.diagnoses)


def example_options(example: Example) -> Options:
    """The options that an example states, as the command line would make them."""
    from oomlint.hardware import parse_bytes, parse_hardware

    hardware = parse_hardware(example.hardware) if example.hardware else None
    values = dict(example.values)
    if example.host_memory:
        values[f.host.ram_gib] = parse_bytes(example.host_memory) / 2**30
    return Options(hardware=hardware, values=values)


def _workspace(example: Example) -> Workspace:
    return Workspace(_NOWHERE, {name: text.encode() for name, text in example.files.items()})


def lint_example(rule: type[Rule], example: Example) -> Report:
    """What a rule, alone, says about an example."""
    names = list(example.files)
    return lint(
        _workspace(example),
        names,
        example_options(example),
        explicit=frozenset(names),
        rules=[rule],
    )


def _fix(rule: type[Rule], example: Example) -> FixResult:
    names = list(example.files)
    result = fix_all(
        _workspace(example),
        names,
        example_options(example),
        explicit=frozenset(names),
        unsafe=True,
        rules=[rule],
    )
    return _with_remarks(rule, example, result)


def _with_remarks(rule: type[Rule], example: Example, result: FixResult) -> FixResult:
    """A result with the fixes of remarks made too, which are only shown to users: they have to hold all
    the same."""
    names, options = list(example.files), example_options(example)
    texts, report = dict(result.texts), result.report
    for _ in range(_MOST_REMARKS):
        change = next((d for d in report.diagnoses if _is_a_remark_with_fix(d)), None)
        if change is None:
            break
        workspace = _workspace(example).with_overlay(texts)
        explicit = frozenset(names)
        texts |= apply_change(workspace, names, options, change, explicit=explicit)
        workspace = _workspace(example).with_overlay(texts)
        report = lint(workspace, names, options, explicit=explicit, rules=[rule])
    return FixResult(report, texts, result.originals)


def _is_a_remark_with_fix(diagnosis: Diagnosis) -> bool:
    fix, finding = diagnosis.fix, diagnosis.finding
    is_meant = any(each.applicability > Applicability.DISPLAY for each in finding.proposals)
    return finding.severity < Severity.WARNING and is_meant and fix is not None and bool(fix.edits)
