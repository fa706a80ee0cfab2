"""The outline of a document: its runs with their verdicts, and below each the keys that count."""

from __future__ import annotations

from lsprotocol import types

from oomlint.documents.text import Location, Span
from oomlint.judgement import judgement_of
from oomlint.lsp.help import in_words
from oomlint.lsp.hints import marked
from oomlint.lsp.keys import keys_of
from oomlint.lsp.view import View
from oomlint.run import Run

_MOST_CHARACTERS = 60


def symbols(view: View) -> list[types.DocumentSymbol]:
    return [_run(view, run) for run in view.analysis.runs]


def _run(view: View, run: Run) -> types.DocumentSymbol:
    name = view.analysis.name
    positions = view.positions(name)
    entries = {id(key.entry): key for key in keys_of(run, name)}
    keys = [
        types.DocumentSymbol(
            key.row.key,
            types.SymbolKind.Property,
            positions.range(key.entry.span),
            positions.range(key.entry.key_span),
            detail=in_words(key.block.value(key.entry.value))[:_MOST_CHARACTERS],
        )
        for key in sorted(entries.values(), key=lambda key: key.entry.span.start)
    ]
    whole = positions.range(Span(0, len(positions.source.text)))
    at = run.anchor if isinstance(run.anchor, Location) and run.anchor.path == name else None
    start = view.range(at) if at is not None else types.Range(whole.start, whole.start)
    detail = marked(judgement_of(run).spoken)
    kind = types.SymbolKind.Module
    return types.DocumentSymbol(run.name, kind, whole, start, detail=detail, children=keys)
