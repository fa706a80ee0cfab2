"""What ``--fix`` did: each fix with the files that it changed, its rule and its title."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oomlint.linting.engine import Told
from oomlint.report.paint import Paint, visible
from oomlint.report.wrapping import wrapped


def applied_lines(
    applied: Sequence[Told], paint: Paint, width: int, *, head: str = "fixed"
) -> Iterator[str]:
    """``fixed axolotl.yaml: OOM101 no-gradient-checkpointing: checkpoint every layer``, a fix each."""
    for diagnosis in applied:
        files = paint(visible(", ".join(_changed(diagnosis))), "path")
        rule = f"{paint(diagnosis.rule.code, 'bold')} {diagnosis.rule.name}"
        title = visible(diagnosis.fix.title) if diagnosis.fix is not None else ""
        yield from wrapped(f"{paint(head, 'fix')} {files}: {rule}: {title}", width, "", "  ")


def files_changed(applied: Sequence[Told]) -> int:
    """How many files the fixes changed or made."""
    return len({path for diagnosis in applied for path in _changed(diagnosis)})


def _changed(diagnosis: Told) -> list[str]:
    edits = diagnosis.fix.edits if diagnosis.fix is not None else ()
    return list(dict.fromkeys(edit.path for edit in edits))
