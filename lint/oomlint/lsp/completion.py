"""Completion of keys and values, and of rules in ignore comments.

Values come ranked by what the run would need with them. A key that is looked at more closely shows
the same of its values, although it is not in the file yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lsprotocol import types
from msgspec import Struct

from oomlint.dialects.block import Block
from oomlint.dialects.table import Row
from oomlint.documents import JSON_SUFFIXES, TOML_SUFFIXES, YAML_SUFFIXES, kind_of
from oomlint.documents.text import Span
from oomlint.linting.engine import all_rules
from oomlint.lsp.candidates import Tables, joined, names, owners, tables_of
from oomlint.lsp.context import Context, context_at
from oomlint.lsp.help import sentences, spelled
from oomlint.lsp.hints import marked
from oomlint.lsp.offers import Offer, choices_of, offers
from oomlint.lsp.settings_file import complete_settings, is_settings
from oomlint.lsp.view import View
from oomlint.plan.fields import f
from oomlint.wording.amounts import gib

_REST = re.compile(r"[\w./-]*")
_MOST_ROWS = 12
_MOST_PROGRAMS = 3


class CompletionRequest(Struct, frozen=True):
    """What a list of completions was asked for: kept, to tell more of one of them later."""

    context: Context
    spot: Span
    tables: Tables


def complete(
    view: View, blocks: Sequence[Block], position: types.Position
) -> list[types.CompletionItem]:
    """What can be written at a place. ``blocks`` are those of the document as it was when it
    could last be read."""
    asked = _asked(view, blocks, position)
    if asked is None:
        return []
    name, context = view.analysis.name, asked.context
    range = view.positions(name).range(asked.spot)
    if context.kind == "rule":
        return list(_rules(view, range))
    if is_settings(name):
        text = view.positions(name).source.text
        return list(complete_settings(name, text, context, range))
    if context.kind == "value":
        return list(_values(view, asked, range))
    uri, at = view.uri(name), {"line": position.line, "character": position.character}
    return list(_keys(asked, range, _ending(name), {"uri": uri, "position": at}))


def describe(
    view: View, blocks: Sequence[Block], position: types.Position, key: str
) -> types.MarkupContent | None:
    """What a key that was offered at a place means, and what its values would cost."""
    asked = _asked(view, blocks, position)
    row = next((r for n, r in names(asked.tables) if n == key), None) if asked else None
    if asked is None or row is None:
        return None
    ending = _ending(view.analysis.name)
    label = key if asked.context.is_flat else key.rpartition(".")[2]
    found: list[Offer] = []
    if ending:  # elsewhere a key alone is not where its value goes
        quotes = kind_of(view.analysis.name) in TOML_SUFFIXES
        found = offers(view.analysis, row, asked.spot, "", before=label + ending, quotes=quotes)
    return _documentation(row, found)


def _asked(
    view: View, blocks: Sequence[Block], position: types.Position
) -> CompletionRequest | None:
    name = view.analysis.name
    positions = view.positions(name)
    source, offset = positions.source, positions.offset(position)
    context = context_at(source, offset)
    if context is None:
        return None
    start, end = offset - len(context.typed), offset
    if context.kind == "value":  # what is left of the old value goes with it
        rest = _REST.match(source.text, offset)
        end = rest.end() if rest is not None else offset
    tables = tables_of(blocks, name, source.text, context.typed)
    return CompletionRequest(context, Span(start, end), tables)


def _rules(view: View, range: types.Range) -> Iterator[types.CompletionItem]:
    for rule in all_rules(view.analysis.job.options.plugins):
        yield types.CompletionItem(
            rule.name,
            kind=types.CompletionItemKind.Value,
            detail=f"{rule.code} {rule.summary}",
            documentation=types.MarkupContent(types.MarkupKind.Markdown, rule.page()),
            text_edit=types.TextEdit(range, rule.name),
        )


def _keys(
    asked: CompletionRequest, range: types.Range, ending: str, place: dict[str, object]
) -> Iterator[types.CompletionItem]:
    context, seen = asked.context, set[str]()
    # While the file can be one of several programs', its keys say whose they are.
    whose = owners(asked.tables) if len({table.name for table, _ in asked.tables}) > 1 else {}
    for name, row in names(asked.tables):
        label = name if context.is_flat else _next(name, context.path)
        if not label or label in seen or (context.is_flat and not _is_option(label)):
            continue
        if whose and row is None:
            continue  # while anything is possible, what decides about memory is enough
        seen.add(label)
        is_whole = context.is_flat or joined(context.path, label) == name
        shown = row if is_whole else None
        programs = _named(whose[label]) if label in whose else None
        yield types.CompletionItem(
            label,
            # of the details alone VS Code shows those of the one item that is chosen
            label_details=types.CompletionItemLabelDetails(description=programs),
            kind=types.CompletionItemKind.Property if is_whole else types.CompletionItemKind.Module,
            detail=programs or _detail(shown),
            documentation=_documentation(shown),
            sort_text=_rank(row, is_new=bool(whose)) + label,
            text_edit=types.TextEdit(range, label + (ending if is_whole else ending.rstrip(" "))),
            data={**place, "key": name} if shown is not None else None,
        )


def _rank(row: Row | None, *, is_new: bool) -> str:
    """The model is the first thing that a new file says; keys that decide about memory come before those
    that are only legal."""
    if row is None:
        return "2"
    return "0" if is_new and row.field == f.model.id else "1"


def _named(programs: Sequence[str]) -> str:
    more = len(programs) - _MOST_PROGRAMS
    return ", ".join(programs[:_MOST_PROGRAMS]) + (f" and {more} more" if more > 0 else "")


def _is_option(name: str) -> bool:
    """Whether a name is one of a flag or a keyword: not a place's number, nor a variable of the
    environment."""
    return not name[:1].isdigit() and not name.isupper()


def _values(
    view: View, asked: CompletionRequest, range: types.Range
) -> Iterator[types.CompletionItem]:
    context, analysis = asked.context, view.analysis
    wanted = {context.path, context.path.replace("-", "_")}
    row = next((r for n, r in names(asked.tables) if r is not None and n in wanted), None)
    if row is None:
        return
    quoted = (*JSON_SUFFIXES, *TOML_SUFFIXES)
    quotes = kind_of(analysis.name) in quoted and not context.is_quoted
    found = offers(analysis, row, asked.spot, context.typed, quotes=quotes)
    for number, offer in enumerate(found):
        peak = marked(offer.forecast) if offer.forecast is not None else ""
        yield types.CompletionItem(
            offer.value,
            label_details=types.CompletionItemLabelDetails(description=_short(offer) or None),
            kind=types.CompletionItemKind.EnumMember,
            detail=", ".join(filter(None, (peak, "default" if offer.is_default else ""))) or None,
            documentation=_documentation(row),
            sort_text=f"{number:04}",
            filter_text=offer.written if quotes else None,
            text_edit=types.TextEdit(range, offer.written),
        )


def _short(offer: Offer) -> str:
    return gib(offer.peak) if offer.peak is not None else ""


def _next(name: str, path: str) -> str:
    """The part of a dotted name that comes below a path; nothing where it is elsewhere."""
    if not path:
        return name.partition(".")[0]
    return name[len(path) + 1 :].partition(".")[0] if name.startswith(f"{path}.") else ""


def _detail(row: Row | None) -> str | None:
    if row is None:
        return None
    schema = dict(row.kind.schema or {})
    kind = schema.get("type") or ("choice" if "enum" in schema else "")
    words = " or ".join(kind) if isinstance(kind, list) else str(kind)
    default = "" if row.default is None else f"default {spelled(row.default)}"
    return ", ".join(part for part in (words, default) if part) or None


def _documentation(row: Row | None, found: Sequence[Offer] = ()) -> types.MarkupContent | None:
    if row is None:
        return None
    known = [offer for offer in found if offer.forecast is not None and offer.peak is not None]
    lines = [f"| `{o.value}` | {marked(o.forecast)} |" for o in known[:_MOST_ROWS] if o.forecast]
    table = "\n".join(["| value | predicted peak |", "|---|---|", *lines]) if lines else ""
    choices = [f"`{spelled(choice)}`" for choice in choices_of(row.kind)]
    named = f"One of {', '.join(choices)}." if choices and not lines else ""
    text = "\n\n".join(part for part in (sentences(row), named, table) if part)
    return types.MarkupContent(types.MarkupKind.Markdown, text) if text else None


def _ending(path: str) -> str:
    """What follows a key in its language."""
    kind = kind_of(path)
    if kind in YAML_SUFFIXES:
        return ": "
    if kind in TOML_SUFFIXES:
        return " = "
    return ""
