"""Which files a document names and where: links, definitions, and what a renamed file changes.

A name counts where it leads to a file of the document's runs, or, for a file that is renamed, to that
file: from the folder of the document that names it, or from where the run starts.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from lsprotocol import types
from msgspec import Struct

from oomlint.documents.text import Edit, Location, Source, Span
from oomlint.lsp.keys import keys_at
from oomlint.lsp.project import Analysis, Project
from oomlint.lsp.view import View

_PATH = r"(?<![\w.@:/~$}-])((?:[\w.~$@{}+-]*/)*)"


class NamedFile(Struct, frozen=True):
    """A file's name in a document: where it stands, how it is written, and the file."""

    span: Span
    written: str
    path: str


def names_in(source: Source, paths: Sequence[str]) -> Iterator[NamedFile]:
    """Where a text names files: by a path that ends in their name."""
    for path in paths:
        base = re.escape(path.rpartition("/")[2])
        for match in re.finditer(rf"{_PATH}{base}(?![\w/-]|\.\w)", source.text):
            yield NamedFile(Span(*match.span()), match[0], path)


def links(view: View) -> list[types.DocumentLink]:
    """The names of the run's other files in the document, as links."""
    positions = view.positions(view.analysis.name)
    return [
        types.DocumentLink(positions.range(name.span), view.uri(name.path), tooltip=name.path)
        for name in _named(view.analysis)
    ]


def definitions(view: View, position: types.Position) -> list[types.Location]:
    """Where a place leads: the file that is named there; the key that overrides the one there; of
    anything else, where other files name this one."""
    analysis = view.analysis
    offset = view.positions(analysis.name).offset(position)
    for name in _named(analysis):
        if name.span.start <= offset <= name.span.end:
            return [types.Location(view.uri(name.path), _START)]
    found = [
        origin.location
        for key in keys_at(analysis, offset)
        for origin in [
            setting.origin for setting in [key.run.settings.get(key.row.field)] if setting
        ]
        if origin.location is not None and origin.entry is not key.entry
    ]
    return [view.location(location) for location in dict.fromkeys(found)] or references(view)


def references(view: View) -> list[types.Location]:
    """Where the other files of the document's runs name it."""
    analysis = view.analysis
    return [
        view.location(Location(path, name.span))
        for path in analysis.files
        if path != analysis.name
        for name in names_in(analysis.source(path), [analysis.name])
    ]


def renaming(project: Project, sources: Sequence[Source], old: str, new: str) -> Iterator[Edit]:
    """The edits by which files that name ``old`` name it ``new``; a name that does not lead there
    stays."""
    for source in sources:
        folder = str(PurePosixPath(source.path).parent)
        for name in names_in(source, [old]):
            for base in dict.fromkeys((folder, ".")):
                if os.path.normpath(os.path.join(base, name.written)) == os.path.normpath(old):
                    written = os.path.relpath(new, base).replace(os.sep, "/")
                    if name.written.startswith("./"):
                        written = f"./{written}"
                    yield Edit(source.path, name.span.start, name.span.end, written)
                    break


_START = types.Range(types.Position(0, 0), types.Position(0, 0))


def _named(analysis: Analysis) -> Iterator[NamedFile]:
    others = [path for path in analysis.files if path != analysis.name]
    yield from names_in(analysis.source(analysis.name), others)
