"""Proof by reading back: what an edit changed in a document besides what it was meant to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence as SequenceABC
from typing import Any, TypeAlias

from oomlint.documents.base import UNKNOWN, DataDocument, Mapping, Node, Scalar
from oomlint.documents.text import Edit, Span

Path: TypeAlias = tuple[str | int, ...]
"""Index of the document in the file (0 for the only one), then keys and indices."""

Leaf: TypeAlias = tuple[str, Any, bool]
"""Kind (a type name, ``empty mapping`` …), raw value, whether it is a plain YAML scalar."""


def prove_edit(before: DataDocument, after: DataDocument, changed: Collection[Path]) -> str | None:
    """Say in words what differs outside of ``changed``; ``None`` if nothing does.

    A path in ``changed`` stands for itself and all below it. A mapping or list above it may
    become empty or cease to be.
    """
    return compare(leaves(before), leaves(after), changed)


def compare(
    before: dict[Path, Leaf], after: dict[Path, Leaf], changed: Collection[Path]
) -> str | None:
    """:func:`prove_edit` for leaves that are at hand already."""
    meant = set(changed)
    above = {path[:length] for path in meant for length in range(len(path))}
    for path in before.keys() | after.keys():
        was, now = before.get(path), after.get(path)
        if was == now or any(path[:length] in meant for length in range(len(path) + 1)):
            continue
        if path in above and _is_empty_or_gone(was) and _is_empty_or_gone(now):
            continue
        return _describe(path, was, now)
    return None


def prove_edits(before: DataDocument, after: DataDocument, edits: Collection[Edit]) -> str | None:
    """Say in words what changed although its text was not edited; ``None`` if nothing did.

    ``after`` is ``before`` with ``edits`` spliced in. What an edit may change is exactly the
    keys and values that it replaces or writes.
    """
    replaced = [Span(edit.start, edit.end) for edit in edits]
    written: list[Span] = []
    shift = 0
    for edit in sorted(edits):
        start = edit.start + shift
        written.append(Span(start, start + len(edit.replacement)))
        shift += len(edit.replacement) - (edit.end - edit.start)
    changed = {*_touched(before, replaced), *_touched(after, written)}
    return prove_edit(before, after, changed)


def _touched(document: DataDocument, spans: SequenceABC[Span]) -> Iterator[Path]:
    for index, root in enumerate(document.roots):
        yield from _touched_below((index,), root, spans)


def _touched_below(path: Path, node: Node, spans: SequenceABC[Span]) -> Iterator[Path]:
    whole = any(span.start <= node.span.start and node.span.end <= span.end for span in spans)
    if whole or (_is_leaf(node) and any(_meet(node.span, span) for span in spans)):
        yield path
    elif isinstance(node, Mapping):
        for key, entry in node.entries.items():
            if any(_meet(entry.key_span, span) for span in spans):
                yield (*path, key)
            else:
                yield from _touched_below((*path, key), entry.value, spans)
    elif not isinstance(node, Scalar):
        for index, item in enumerate(node.items):
            yield from _touched_below((*path, index), item, spans)


def _is_leaf(node: Node) -> bool:
    if isinstance(node, Scalar):
        return True
    return not (node.entries if isinstance(node, Mapping) else node.items)


def _meet(one: Span, other: Span) -> bool:
    """Whether two spans share text; an insertion counts inside, not beside what it meets, and an
    empty value is met by what is written in its place."""
    if one.start == one.end:
        return other.start <= one.start <= other.end
    return one.start < other.end and other.start < one.end


def leaves(document: DataDocument) -> dict[Path, Leaf]:
    """Every scalar and every empty collection of a document, by path."""
    text = document.source.text
    return {
        path: leaf
        for index, root in enumerate(document.roots)
        for path, leaf in _walk((index,), root, text)
    }


def _walk(path: Path, node: Node, text: str) -> Iterator[tuple[Path, Leaf]]:
    if isinstance(node, Scalar):
        yield path, _leaf(node, text)
    elif isinstance(node, Mapping):
        if not node.entries:
            yield path, ("empty mapping", None, False)
        for key, entry in node.entries.items():
            yield from _walk((*path, key), entry.value, text)
        for count, entry in enumerate(node.duplicates):
            yield from _walk((*path, entry.key, f"duplicate {count + 1}"), entry.value, text)
    else:
        if not node.items:
            yield path, ("empty list", None, False)
        for index, item in enumerate(node.items):
            yield from _walk((*path, index), item, text)


def _leaf(node: Scalar, text: str) -> Leaf:
    value = node.value
    if value is UNKNOWN:
        return "unknown", text[node.span.start : node.span.end], node.plain
    if isinstance(value, float):
        return "float", repr(value), node.plain  # NaN is not equal to itself, its spelling is
    return type(value).__name__, value, node.plain


def _is_empty_or_gone(leaf: Leaf | None) -> bool:
    return leaf is None or leaf[0] in ("empty mapping", "empty list")


def _describe(path: Path, was: Leaf | None, now: Leaf | None) -> str:
    where = ".".join(str(step) for step in path[1:]) or "the document"
    if was is None:
        return f"{where} appeared"
    if now is None:
        return f"{where} disappeared"
    return f"{where} changed from {_show(was)} to {_show(now)}"


def _show(leaf: Leaf) -> str:
    kind, value, plain = leaf
    if kind.startswith("empty"):
        return kind
    return str(value)[:60] if plain or kind in ("float", "unknown") else repr(value)[:60]
