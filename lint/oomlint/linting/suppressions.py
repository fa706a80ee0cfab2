"""``# oomlint: ignore[name, ...] reason``: comments that silence findings, and their upkeep.

A comment covers its own line, or, standing alone, the line below (a shell command with all its
continued lines); ``ignore-file`` covers the whole file. Without brackets it means every rule. One that silences nothing is
itself a finding with a safe fix, so that stale ones do not pile up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping as MappingABC, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from oomlint.documents import SHELL_SUFFIXES, kind_of, languages_of
from oomlint.documents.text import Edit, Location, Source, Span
from oomlint.errors import FileError

if TYPE_CHECKING:
    from oomlint.files.workspace import Workspace
    from oomlint.fix.edits import Fix
    from oomlint.linting.rule import Finding, ListedRule, Rule

_COMMENT = r"#[ \t]*oomlint:[ \t]*(?P<what>ignore-file|ignore)(?![\w-])(?:\[(?P<names>[^\]\n]*)\])?[^\r\n]*"


class Suppression(Struct, frozen=True):
    """One comment. ``covered`` is the text that it speaks of, ``erased`` what goes when the
    comment is removed (its line, if it stands alone); ``names`` empty means all rules."""

    path: str
    span: Span
    covered: Span
    erased: Span
    names: tuple[str, ...]

    def covers(self, rule: type[Rule]) -> bool:
        return not self.names or rule.name in self.names or rule.code in self.names

    def reaches(self, offset: int) -> bool:
        return self.covered.start <= offset <= self.covered.end


def suppressions(workspace: Workspace, path: str) -> tuple[Suppression, ...]:
    """The suppression comments of a file; none where comments do not exist or it is unreadable."""
    data = workspace.read_or_none(path)
    if data is None or b"oomlint:" not in data or path.endswith(".json"):
        return ()
    from oomlint.documents.comments import comments

    try:
        document = workspace.document(path)
        source = Source.from_bytes(path, data) if document is None else document.source
    except FileError:
        return ()
    spans = comments(source, document)
    return tuple(_suppressions(source, spans))


def silences(workspace: Workspace, finding: Finding) -> bool:
    """Whether a comment at one of the places of a finding asks to ignore it."""
    return any(
        each.reaches(location.span.start) and each.covers(finding.rule)
        for location in (finding.location, *(note.location for note in finding.notes))
        for each in suppressions(workspace, location.path)
    )


def _suppressions(source: Source, comments: Sequence[Span]) -> Iterator[Suppression]:
    alone = {line for line, starts in _lines_of(source, comments) if starts}
    pattern = re.compile(_COMMENT)
    for span in comments:
        match = pattern.search(source.text, span.start, span.end)
        if match is not None:
            yield _suppression(source, match, span.start, alone)


def _lines_of(source: Source, comments: Iterable[Span]) -> Iterator[tuple[int, bool]]:
    """The line of each comment, and whether the comment has it for itself."""
    for span in comments:
        line, column = source.position(span.start)
        before = source.text[span.start - column + 1 : span.start].strip()
        # A line of a notebook's code is a string of its JSON.
        yield line, before in (("", '"') if _is_notebook(source) else ("",))


def _suppression(source: Source, match: re.Match[str], comment: int, lone: set[int]) -> Suppression:
    start = match.start()
    line, _ = source.position(start)
    own = source.line_span(line)
    alone = line in lone
    if match["what"] == "ignore-file":
        covered = Span(0, len(source.text))
    elif alone:
        covered = Span(own.start, source.line_span(_last_covered(source, line, lone)).end)
    else:
        covered = Span(source.line_span(_first_joined(source, line)).start, own.end)
    if alone and start == comment and not _is_notebook(source):
        # Its line break may be the one that ends a command above, behind a backslash.
        stays = line == len(source.line_starts) or (line > 1 and _continues(source, line - 1))
        erased = Span(own.start, own.end if stays else source.line_starts[line])
    else:
        before = source.text[own.start : start].rstrip()
        # A blank behind a backslash is a character of the word; without it the line would go on.
        erased = Span(own.start + len(before) + before.endswith("\\"), match.end())
    names = tuple(name.strip() for name in (match["names"] or "").split(",") if name.strip())
    return Suppression(source.path, Span(start, match.end()), covered, erased, names)


def _last_covered(source: Source, line: int, lone: set[int]) -> int:
    """The line that a comment on a line of its own speaks of: the next that is no comment, and
    in a shell script those that a backslash joins to it."""
    last = len(source.line_starts)
    line = min(line + 1, last)
    while line in lone and line < last:
        line += 1
    while line < last and _continues(source, line):
        line += 1
    return line


def _first_joined(source: Source, line: int) -> int:
    """The first of the lines that backslashes join to a shell command's last line."""
    while line > 1 and _continues(source, line - 1):
        line -= 1
    return line


def _continues(source: Source, line: int) -> bool:
    if set(languages_of(source.path)).isdisjoint(SHELL_SUFFIXES):
        return False
    span = source.line_span(line)
    end = '\\\\\\n",' if _is_notebook(source) else "\\"
    return source.text[span.start : span.end].endswith(end)


def _is_notebook(source: Source) -> bool:
    return kind_of(source.path) == ".ipynb"


def unused_findings(
    comments: MappingABC[str, Sequence[Suppression]],
    used: set[Suppression],
    rules: Sequence[ListedRule],
    every_rule: Sequence[ListedRule],
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
            yield _unused(comment, reporter.load(), known)


def _unused(comment: Suppression, reporter: type[Rule], known: set[str]) -> tuple[Finding, Fix]:
    from difflib import get_close_matches

    from oomlint.fix.edits import Fix
    from oomlint.linting.rule import Applicability, Finding, Severity, short

    strangers = [name for name in comment.names if name not in known]
    details: tuple[str, ...] = ()
    if strangers:
        message = f"this comment ignores {short(strangers[0], 28)!r}, which is no rule of oomlint"
        near = get_close_matches(strangers[0], sorted(known), n=1, cutoff=0.8)
        details = (f"did you mean {near[0]}?",) if near else ()
    else:
        message = "this comment ignores nothing: no finding is reported here"
    place = Location(comment.path, comment.span)
    finding = Finding(reporter, Severity.WARNING, "high", message, place, details)
    if details:
        asked = "whether the comment goes or is spelt otherwise is yours to say"
        return finding, Fix("remove the comment", Applicability.DISPLAY, (), reason=asked)
    edit = Edit(comment.path, comment.erased.start, comment.erased.end, "")
    return finding, Fix("remove the comment", Applicability.SAFE, (edit,))
