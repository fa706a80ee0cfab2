"""``# oomlint: ignore[...]`` written for the user: where it can stand, tried before it is offered."""

from __future__ import annotations

from collections.abc import Iterator

from oomlint.documents import kind_of
from oomlint.documents.text import Edit, Source
from oomlint.linting.engine import Diagnosis, lint
from oomlint.linting.suppressions import suppressions
from oomlint.lsp.project import Analysis, edited

# JSON has no comments, and in a notebook a line of code is a string of JSON.
_WITHOUT_COMMENTS = frozenset({".json", ".ipynb"})


def ignoring(analysis: Analysis, diagnosis: Diagnosis) -> Edit | None:
    """The edit that silences a finding where it stands, ``None`` where no comment can."""
    path = diagnosis.finding.location.path
    if kind_of(path) in _WITHOUT_COMMENTS:
        return None
    source = analysis.source(path)
    offset = diagnosis.finding.location.span.start
    return next(
        (
            e
            for e in _places(analysis, source, offset, diagnosis)
            if _silences(analysis, diagnosis, e)
        ),
        None,
    )


def _places(
    analysis: Analysis, source: Source, offset: int, diagnosis: Diagnosis
) -> Iterator[Edit]:
    """A comment that is there already, else one at the end of the line, else one above it."""
    name = diagnosis.rule.name
    for comment in suppressions(analysis.workspace, source.path):
        text = source.text[comment.span.start : comment.span.end]
        if comment.names and comment.reaches(offset) and "ignore-file" not in text:
            at = comment.span.start + text.index("]")
            yield Edit(source.path, at, at, f", {name}")
    comment_text = f"# oomlint: ignore[{name}]"
    line, _ = source.position(offset)
    own = source.line_span(line)
    text = source.text[own.start : own.end]
    if "#" not in text and not text.endswith("\\"):
        end = own.start + len(text.rstrip())
        yield Edit(source.path, end, own.end, f"  {comment_text}")
    while line >= 1:
        own = source.line_span(line)
        above = source.text[slice(*_ends(source, line - 1))] if line > 1 else ""
        if not above.endswith("\\"):
            text = source.text[own.start : own.end]
            indent = text[: len(text) - len(text.lstrip())]
            yield Edit(source.path, own.start, own.start, indent + comment_text + source.newline)
            return
        line -= 1


def _ends(source: Source, line: int) -> tuple[int, int]:
    span = source.line_span(line)
    return span.start, span.end


def _silences(analysis: Analysis, diagnosis: Diagnosis, edit: Edit) -> bool:
    """Whether the finding is gone with the comment there, and nothing else reads differently."""
    rule, job = diagnosis.rule, analysis.job
    after = lint(edited(analysis, [edit]), job.names, job.options, rules=[rule])
    was = [d for d in analysis.report.diagnoses if d.rule is rule]
    return (
        len(after.diagnoses) == len(was) - 1
        and diagnosis.finding.message not in {d.finding.message for d in after.diagnoses}
        and len(after.errors) <= len(analysis.report.errors)
        and [run.plan for run in after.runs] == [run.plan for run in analysis.report.runs]
    )
