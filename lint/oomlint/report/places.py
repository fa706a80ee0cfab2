"""Where findings stand, in the units that the output formats want."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from oomlint.documents import HELD_LANGUAGES, kind_of
from oomlint.documents.base import HeldCode
from oomlint.documents.text import Edit, Location, Source, Span
from oomlint.errors import FileError
from oomlint.linting.engine import Results, Told
from oomlint.linting.rule import Rule
from oomlint.report.paint import visible
from oomlint.wording.addresses import DOCUMENTATION

if TYPE_CHECKING:
    from oomlint.report.shapes import PointShape, RangeShape


def url(rule: type[Rule]) -> str:
    """The page of a rule; of a plug-in's that has none on the web, the page on plug-ins."""
    page = "plugins.md" if rule.origin else f"rules/{rule.name}.md"
    return rule.url or DOCUMENTATION + page


class LineColumn(Struct, frozen=True):
    """One offset: 1-based line; column counted in three units, each 1-based."""

    offset: int
    line: int
    column: int
    utf16_column: int
    utf8_column: int


class LineIndex:
    """Turns offsets into lines and columns, reading each file once.

    A file that cannot be read or decoded has one place: its first character.
    """

    def __init__(self, report: Results) -> None:
        self._workspace = report.workspace
        self._sources: dict[str, Source] = {}

    def source(self, path: str) -> Source:
        if path not in self._sources:
            try:
                source = Source.from_bytes(path, self._workspace.read(path))
            except FileError:
                source = Source(path, "")
            self._sources[path] = source
        return self._sources[path]

    def at(self, path: str, offset: int) -> LineColumn:
        source = self.source(path)
        offset = min(offset, len(source.text))
        line, column = source.position(offset)
        before = source.text[offset - column + 1 : offset]
        return LineColumn(
            offset,
            line,
            column,
            len(before.encode("utf-16-le", "surrogatepass")) // 2 + 1,
            len(before.encode("utf-8", "surrogatepass")) + 1,
        )

    def start(self, location: Location) -> LineColumn:
        return self.at(location.path, location.span.start)

    def end(self, location: Location) -> LineColumn:
        """The place just behind the span."""
        return self.at(location.path, location.span.end)

    def head(self, location: Location) -> str:
        """``path:line:column``"""
        place = self.start(location)
        return f"{visible(location.path)}:{place.line}:{place.column}"

    def also(self, location: Location) -> str:
        """`` (cell 4, line 7)`` in a notebook, whose readers see no lines of the file."""
        if kind_of(location.path) not in HELD_LANGUAGES:
            return ""
        try:
            document = self._workspace.document(location.path)
        except FileError:
            return ""
        if not isinstance(document, HeldCode):
            return ""
        words = document.place_of(location.span.start)
        return f" ({words})" if words else ""

    def range(self, location: Location) -> RangeShape:
        """The range as the JSON of reports has it."""
        return {"start": _point(self.start(location)), "end": _point(self.end(location))}

    def of_edit(self, edit: Edit) -> Location:
        return Location(edit.path, Span(edit.start, edit.end))


def _point(place: LineColumn) -> PointShape:
    return {"line": place.line, "column": place.column, "offset": place.offset}


class Fingerprints:
    """A fingerprint per diagnosis, unique in the report: the n-th equal one says so."""

    def __init__(self, report: Results) -> None:
        self._report = report

    @cached_property
    def _by_id(self) -> dict[int, str]:
        seen: Counter[str] = Counter()
        out = {}
        for diagnosis in self._report.diagnoses:
            base = diagnosis.fingerprint
            seen[base] += 1
            count = seen[base]
            out[id(diagnosis)] = base if count == 1 else f"{base}-{count}"
        return out

    def of(self, diagnosis: Told) -> str:
        return self._by_id[id(diagnosis)]
