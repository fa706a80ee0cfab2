"""From what ``--fix`` makes of the files to suggestions: whole lines, inside one hunk each.

Changes that only help together are one :class:`Remedy`: all of it can be suggested, or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from oomlint.documents.difference import difference
from oomlint.documents.text import Edit, Source, Span, by_path
from oomlint.fix.apply import FixResult
from oomlint.linting.engine import Diagnosis
from oomlint.review.diff import Hunks
from oomlint.review.forge import Style

# Changes of one remedy with no more lines between them are easier to take, and to read, as one.
_NEAR = 3


class Remedy(Struct, frozen=True, eq=False):
    """Changes that belong together, as edits of whole lines: fixes, or lines put back."""

    fixes: tuple[Diagnosis, ...]
    edits: tuple[Edit, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(edit.path for edit in self.edits))


class Suggestion(Struct, frozen=True):
    """Put ``lines`` in place of the lines from ``first`` to ``last`` (1-based, inclusive)."""

    path: str
    first: int
    last: int
    lines: tuple[str, ...]


def remedies(result: FixResult, undone: Iterable[Edit]) -> list[Remedy]:
    """The changes of a fixpoint in groups, as edits of the files as they are, of which the fixpoint found
    some lines ``undone``; what would change these again is left out."""
    back = by_path(tuple(undone))
    found = []
    for remedy in _grouped(result):
        moved = [_before(edit, back.get(edit.path, ())) for edit in remedy.edits]
        edits = tuple(edit for edit in moved if edit is not None)
        if len(edits) == len(moved):
            found.append(Remedy(remedy.fixes, edits))
    return found


def _before(edit: Edit, undone: Iterable[Edit]) -> Edit | None:
    """An edit of a text after others as one of the text before them; ``None`` where they meet."""
    shift = 0
    for each in sorted(undone):
        begin = each.start + shift
        end = begin + len(each.replacement)
        if edit.end <= begin:
            break
        if edit.start < end:
            return None
        shift += len(each.replacement) - (each.end - each.start)
    return replace(edit, start=edit.start - shift, end=edit.end - shift)


def _grouped(result: FixResult) -> list[Remedy]:
    """Two lines that one fix changed are in one group."""
    edits = list(_edits(result))
    applied = [d for d in result.report.applied if d.fix is not None]
    touched = [_touched(diagnosis, edits, result) for diagnosis in applied]
    for number, edit in enumerate(edits):
        if not any(number in numbers for numbers in touched):
            # Text that later fixes have moved about: all that concerned the file belongs to it.
            for diagnosis, numbers in zip(applied, touched, strict=True):
                if any(e.path == edit.path for e in _fix_edits(diagnosis)):
                    numbers.add(number)
    groups: list[tuple[list[Diagnosis], set[int]]] = []
    for diagnosis, numbers in zip(applied, touched, strict=True):
        members = [diagnosis]
        for group in [g for g in groups if g[1] & numbers]:
            groups.remove(group)
            members, numbers = [*group[0], *members], numbers | group[1]
        groups.append((members, numbers))
    return [Remedy(tuple(fixes), tuple(edits[n] for n in sorted(ns))) for fixes, ns in groups if ns]


def _edits(result: FixResult) -> Iterator[Edit]:
    for path, data in sorted(result.texts.items()):
        before = result.originals[path]
        after = Source.from_bytes(path, data)
        if before is None:
            yield Edit(path, 0, 0, after.text, creates=True)
        else:
            yield from difference(Source.from_bytes(path, before), after)


def _fix_edits(diagnosis: Diagnosis) -> tuple[Edit, ...]:
    return diagnosis.fix.edits if diagnosis.fix is not None else ()


def _touched(diagnosis: Diagnosis, edits: Sequence[Edit], result: FixResult) -> set[int]:
    """The numbers of the edits that a fix had a part in."""
    found: set[int] = set()
    for path in {edit.path for edit in _fix_edits(diagnosis)}:
        own = [edit for edit in _fix_edits(diagnosis) if edit.path == path]
        before = result.originals.get(path)
        spans: list[Span] | None = None
        if before is not None:
            original = Source.from_bytes(path, before)
            moved = difference(original, _seen(diagnosis, path) or original)
            spans = [_moved_back(Span(edit.start, edit.end), moved) for edit in own]
        for number, edit in enumerate(edits):
            if edit.path == path and (spans is None or any(_meet(edit, span) for span in spans)):
                found.add(number)
    return found


def _seen(diagnosis: Diagnosis, path: str) -> Source | None:
    """A file's text when the fix was made: others may have been applied before."""
    run = diagnosis.run
    documents = [] if run is None else [claim.document for claim in run.claims]
    documents += [] if run is None else [block.document for block, _ in run.parts.blocks]
    return next((d.source for d in documents if d.source.path == path), None)


def _meet(edit: Edit, span: Span) -> bool:
    return span.start <= edit.end and edit.start <= span.end


def _moved_back(span: Span, edits: Iterable[Edit]) -> Span:
    """Where a span of the text after ``edits`` stood before them."""
    start, end, shift = span.start, span.end, 0
    first = last = None
    for edit in edits:
        begin, finish = edit.start + shift, edit.start + shift + len(edit.replacement)
        if first is None and start <= finish:
            first = start - shift if start < begin else edit.start
        if last is None and end <= finish:
            last = end - shift if end < begin else edit.end
        shift += len(edit.replacement) - (edit.end - edit.start)
    return Span(start - shift if first is None else first, end - shift if last is None else last)


# -- placing ----------------------------------------------------------------------------


def placed(
    found: Sequence[Remedy],
    sources: Mapping[str, Source],
    hunks: Mapping[str, Hunks],
    style: Style,
) -> list[tuple[Remedy, tuple[Suggestion, ...]]]:
    """Each remedy with its suggestions; with none where it cannot be suggested as a whole.

    Remedies whose lines meet become one, since two suggestions for a line exclude one another.
    """
    out: list[tuple[Remedy, tuple[Suggestion, ...]]] = []
    todo = list(found)
    while todo:
        remedy = todo.pop(0)
        suggestions = _suggestions(remedy, sources, hunks, style)
        rival = next((o for o in out if _clash(o[1], suggestions)), None)
        if rival is None:
            out.append((remedy, suggestions))
        else:
            out.remove(rival)
            joined = dict.fromkeys((*rival[0].fixes, *remedy.fixes))
            edits = sorted({*rival[0].edits, *remedy.edits})
            todo.insert(0, Remedy(tuple(joined), tuple(edits)))
    return out


def _clash(some: Iterable[Suggestion], others: Sequence[Suggestion]) -> bool:
    return any(
        a.path == b.path and a.first <= b.last and b.first <= a.last for a in some for b in others
    )


def _suggestions(
    remedy: Remedy, sources: Mapping[str, Source], hunks: Mapping[str, Hunks], style: Style
) -> tuple[Suggestion, ...]:
    out: list[Suggestion] = []
    for path in remedy.paths:
        source, shown = sources.get(path), hunks.get(path)
        edits = [edit for edit in remedy.edits if edit.path == path]
        if source is None or shown is None or any(edit.creates for edit in edits):
            return ()
        for edit in _joined(source, [_widened(source, shown, edit) for edit in edits], shown):
            suggestion = _suggestion(source, edit)
            if suggestion is None or not _is_shown(suggestion, shown, style):
                return ()
            if style.feeds_within and not _survives_feeds(suggestion, source):
                return ()
            out.append(suggestion)
    return tuple(out)


def _is_shown(suggestion: Suggestion, shown: Hunks, style: Style) -> bool:
    most = style.most_suggested_lines
    if most is not None and suggestion.last - suggestion.first >= most:
        return False
    return shown.around(suggestion.first, suggestion.last) is not None


def _survives_feeds(suggestion: Suggestion, source: Source) -> bool:
    """Whether a suggestion stays itself where its lines are joined by line feeds, and where one
    of blanks alone takes lines away."""
    lines = suggestion.lines
    if lines and not "".join(lines).strip():
        return False
    return len(lines) < 2 or source.newline == "\n"


def _lines_of(source: Source, edit: Edit) -> tuple[int, int]:
    """The first and last line that an edit of whole lines replaces, counted as git counts them."""
    first = source.text.count("\n", 0, edit.start) + 1
    replaced = source.text[edit.start : edit.end]
    return first, first + replaced.count("\n") - (1 if replaced.endswith("\n") else 0)


def _widened(source: Source, shown: Hunks, edit: Edit) -> Edit:
    """An insertion with the line before it, or else the one behind: a suggestion replaces lines."""
    if edit.start < edit.end:
        return edit
    text, line = source.text, source.text.count("\n", 0, edit.start) + 1
    if line > 1 and (shown.around(line - 1, line - 1) or edit.end == len(text)):
        start = text.rfind("\n", 0, edit.start - 1) + 1
        return replace(edit, start=start, replacement=text[start : edit.start] + edit.replacement)
    end = text.find("\n", edit.end) + 1 or len(text)
    return replace(edit, end=end, replacement=edit.replacement + text[edit.end : end])


def _joined(source: Source, edits: Iterable[Edit], shown: Hunks) -> list[Edit]:
    """The edits, which are in order, with those that stand close together in one hunk as one."""
    out: list[Edit] = []
    for edit in edits:
        first, last = _lines_of(source, edit)
        if out:
            before_first, before_last = _lines_of(source, out[-1])
            if first - before_last - 1 <= _NEAR and shown.around(before_first, last):
                before = out.pop()
                between = source.text[before.end : edit.start]
                # Widening may have taken in the same line twice.
                own = edit.replacement[max(0, before.end - edit.start) :]
                edit = Edit(edit.path, before.start, edit.end, before.replacement + between + own)
        out.append(edit)
    return out


def _suggestion(source: Source, edit: Edit) -> Suggestion | None:
    """The edit as a suggestion; ``None`` where that could not bring about the same bytes.

    A forge keeps the line ends that it finds and knows none but ``\\n`` and ``\\r\\n``; it adds
    and takes away no final one.
    """
    first, last = _lines_of(source, edit)
    old = source.text[edit.start : edit.end]
    new, newline = edit.replacement, source.newline
    if (source.has_bom and first == 1) or not old:
        return None
    if bool(new) and old.endswith(newline) != new.endswith(newline):
        return None
    if not new and not old.endswith(newline):
        return None
    for text in (old, new):
        if any("\r" in line or "\n" in line for line in text.split(newline)):
            return None
    lines = new.removesuffix(newline).split(newline) if new else []
    return Suggestion(edit.path, first, last, tuple(lines))


def change_of(
    remedy: Remedy, sources: Mapping[str, Source]
) -> dict[str, tuple[bytes | None, bytes]]:
    """Path → bytes before and after the remedy alone."""
    out: dict[str, tuple[bytes | None, bytes]] = {}
    for path in remedy.paths:
        edits = [edit for edit in remedy.edits if edit.path == path]
        if edits[0].creates:
            out[path] = None, Source(path, edits[0].replacement).to_bytes()
            continue
        source = sources[path]
        out[path] = source.to_bytes(), source.edited(edits).to_bytes()
    return out
