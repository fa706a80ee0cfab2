"""``# oomlint: ignore[name, ...] reason``: comments that silence findings, and their upkeep.

A comment covers its own line, or, standing alone, the line below; ``ignore-file``
covers the whole file. Without brackets it means every rule. One that silences nothing is
itself a finding with a safe fix, so that stale ones do not pile up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping as MappingABC, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oomlint.documents.text import Edit, Location, Source, Span
from oomlint.errors import FileError

if TYPE_CHECKING:
    from oomlint.fix.edits import Fix
    from oomlint.rule import Finding, Rule
    from oomlint.workspace import Workspace

_COMMENT = re.compile(
    r"#[ \t]*oomlint:[ \t]*(?P<what>ignore-file|ignore)(?:\[(?P<names>[^\]\n]*)\])?[^\r\n]*"
)


@dataclass(frozen=True, slots=True)
class Suppression:
    """One comment. ``covered`` is the text that it speaks of, ``erased`` what goes when the
    comment is removed (its line, if it stands alone); ``names`` empty means all rules."""

    path: str
    span: Span
    covered: Span
    erased: Span
    names: tuple[str, ...]
    alone: bool
    """Whether the comment has its line for itself."""

    def covers(self, rule: type[Rule]) -> bool:
        return not self.names or rule.name in self.names or rule.code in self.names

    def reaches(self, offset: int) -> bool:
        return self.covered.start <= offset <= self.covered.end


def suppressions(workspace: Workspace, path: str) -> tuple[Suppression, ...]:
    """The suppression comments of a file; none where comments do not exist or it is unreadable."""
    data = workspace.read_or_none(path)
    if data is None or b"oomlint:" not in data or path.endswith(".json"):
        return ()
    try:
        source = Source.from_bytes(path, data)
    except FileError:
        return ()
    return tuple(_suppression(source, match) for match in _COMMENT.finditer(source.text))


def _suppression(source: Source, match: re.Match[str]) -> Suppression:
    start = match.start()
    line, _ = source.position(start)
    own = source.line_span(line)
    alone = not source.text[own.start : start].strip()
    if match["what"] == "ignore-file":
        covered = Span(0, len(source.text))
    elif alone and line < len(source.line_starts):
        covered = Span(own.start, source.line_span(line + 1).end)
    else:
        covered = own
    if alone:
        last = line == len(source.line_starts)
        erased = Span(own.start, own.end if last else source.line_starts[line])
    else:
        before = source.text[own.start : start].rstrip()
        erased = Span(own.start + len(before), match.end())
    names = tuple(name.strip() for name in (match["names"] or "").split(",") if name.strip())
    return Suppression(source.path, Span(start, match.end()), covered, erased, names, alone)


def unused_findings(
    comments: MappingABC[str, Sequence[Suppression]],
    used: set[Suppression],
    rules: Sequence[type[Rule]],
    every_rule: Sequence[type[Rule]],
) -> Iterable[tuple[Finding, Fix]]:
    """Comments that silence nothing. A comment that names a rule which did not run is left alone."""
    reporter = next((rule for rule in rules if rule.name == "unused-suppression"), None)
    if reporter is None:
        return
    running = {rule.name for rule in rules} | {rule.code for rule in rules}
    known = {rule.name for rule in every_rule} | {rule.code for rule in every_rule}
    for group in comments.values():
        for comment in group:
            if comment in used:
                continue
            idle = [name for name in comment.names if name in known and name not in running]
            if idle or (not comment.names and len(rules) < len(every_rule)):
                continue
            yield _unused(comment, reporter, known)


def _unused(comment: Suppression, reporter: type[Rule], known: set[str]) -> tuple[Finding, Fix]:
    from oomlint.fix.edits import Fix
    from oomlint.rule import Applicability, Finding, Severity

    strangers = [name for name in comment.names if name not in known]
    if strangers:
        message = f"this comment ignores {strangers[0]!r}, which is no rule of oomlint"
    else:
        message = "this comment ignores nothing: no finding is reported here"
    finding = Finding(
        reporter, Severity.WARNING, "high", message, Location(comment.path, comment.span)
    )
    edit = Edit(comment.path, comment.erased.start, comment.erased.end, "")
    return finding, Fix("remove the comment", Applicability.SAFE, (edit,))
