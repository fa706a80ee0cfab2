"""Notebooks that a client has open cell by cell: put together as the file would be, and taken apart again
where there is something to say of a cell."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import attrs
from lsprotocol import types
from msgspec import Struct

from oomlint.documents.notebook import Cell, code_cells
from oomlint.documents.text import Span
from oomlint.errors import ParseError
from oomlint.lsp.positions import Positions
from oomlint.lsp.view import View


class OpenCell(Struct, frozen=True):
    """A cell as the client has it; only the text of code is of interest."""

    uri: str
    code: str | None


def as_file(cells: Sequence[OpenCell]) -> str:
    """The notebook as Jupyter would write it, without outputs."""
    written = [
        {"cell_type": "markdown" if cell.code is None else "code", "source": cell.code or ""}
        for cell in cells
    ]
    book = {"cells": written, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, ensure_ascii=False)


def in_cells(
    view: View, cells: Sequence[str], found: Sequence[types.Diagnostic]
) -> Mapping[str, list[types.Diagnostic]]:
    """The diagnostics of a notebook by the URIs of its cells, at the places in these; what belongs to
    no cell stands at the first."""
    name = view.analysis.name
    try:
        code = code_cells(view.positions(name).source)
    except ParseError:
        code = []
    places = _Places(view, cells, code)
    out: dict[str, list[types.Diagnostic]] = {uri: [] for uri in cells}
    for diagnostic in found:
        uri, range = places.of(diagnostic.range)
        related = [
            attrs.evolve(info, location=types.Location(*places.of(info.location.range)))
            if info.location.uri == view.uri(name)
            else info
            for info in diagnostic.related_information or ()
        ]
        moved = attrs.evolve(diagnostic, range=range, related_information=related or None)
        out.setdefault(uri, []).append(moved)
    return out


class _Places:
    """Places in the file as places in its cells."""

    def __init__(self, view: View, uris: Sequence[str], code: Sequence[Cell]) -> None:
        self._positions = view.positions(view.analysis.name)
        self._encoding = view.client.encoding
        self._first = uris[0] if uris else view.uri(view.analysis.name)
        self._cells = [(uris[cell.number - 1], cell) for cell in code if cell.number <= len(uris)]

    def of(self, range: types.Range) -> tuple[str, types.Range]:
        span = self._positions.span(range)
        for uri, cell in self._cells:
            if cell.span.start <= span.start <= cell.span.end:
                inside = cell.code.inside(Span(span.start, min(span.end, cell.span.end)))
                return uri, Positions(cell.code.source, self._encoding).range(inside)
        start = types.Position(0, 0)
        return self._first, types.Range(start, start)
