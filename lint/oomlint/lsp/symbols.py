"""The outline of a document: its runs with their peaks, and the keys that count."""

from __future__ import annotations

from lsprotocol import types

from oomlint.documents.text import Location
from oomlint.judgement import judgement_of
from oomlint.lsp.help import in_words
from oomlint.lsp.hints import marked
from oomlint.lsp.keys import Key, keys_of
from oomlint.lsp.view import View
from oomlint.runs.run import Run

_MOST_CHARACTERS = 60


def symbols(view: View) -> list[types.DocumentSymbol]:
    """Each of one line: what spans lines is kept on top of the text by some editors."""
    analysis = view.analysis
    entries = {id(key.entry): key for run in analysis.runs for key in keys_of(run, analysis.name)}
    keys = sorted(entries.values(), key=lambda key: key.entry.span.start)
    return [*(_run(view, run) for run in analysis.runs), *(_key(view, key) for key in keys)]


def _key(view: View, key: Key) -> types.DocumentSymbol:
    value = in_words(key.block.value(key.entry.value))
    at = view.positions(view.analysis.name).range(key.entry.key_span)
    kind = types.SymbolKind.Property
    return types.DocumentSymbol(key.row.key, kind, at, at, detail=value[:_MOST_CHARACTERS])


def _run(view: View, run: Run) -> types.DocumentSymbol:
    at = run.anchor if isinstance(run.anchor, Location) else None
    start = types.Range(types.Position(0, 0), types.Position(0, 0))
    if at is not None and at.path == view.analysis.name:
        start = view.range(at)
    detail = marked(judgement_of(run).spoken)
    return types.DocumentSymbol(run.name, types.SymbolKind.Module, start, start, detail=detail)
