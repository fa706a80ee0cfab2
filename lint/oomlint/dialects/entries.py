"""What stands in a mapping of a document: entries by their dotted keys or their places, and what a loader makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oomlint.documents.base import UNKNOWN, Entry, Mapping, Node, Scalar, Sequence
from oomlint.documents.python.nodes import PythonMapping
from oomlint.documents.text import Span

if TYPE_CHECKING:
    from oomlint.dialects.table import Loader


def holder_of(mapping: Mapping, entry: Entry) -> Mapping:
    """The mapping, this one or one inside it, in which an entry stands."""
    if mapping.entries.get(entry.key) is entry:
        return mapping
    for inner in mapping.entries.values():
        if isinstance(inner.value, Mapping) and _within(inner.value.span, entry.span):
            return holder_of(inner.value, entry)
    return mapping


def value_at(mapping: Mapping, span: Span) -> Node | None:
    """The value that stands at a place, or is named there."""
    for entry in mapping.entries.values():
        if span == entry.value.span or (
            isinstance(entry.value, Scalar) and span == entry.value.via
        ):
            return entry.value
        if isinstance(entry.value, Mapping):
            found = value_at(entry.value, span)
            if found is not None:
                return found
    return None


def _within(outer: Span, inner: Span) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end


def find_entry(mapping: Mapping, key: str, prefix: str) -> Entry | None:
    """The entry at a dotted key, written nested or flat, with or without a prefix."""
    entry = mapping.entries.get(key)
    if entry is None and prefix:
        entry = mapping.entries.get(prefix + key)
    if entry is not None:
        return entry
    head, dot, tail = key.partition(".")
    while dot:
        outer = mapping.entries.get(head)
        if outer is not None and isinstance(outer.value, Mapping):
            found = find_entry(outer.value, tail, "")
            if found is not None:
                return found
        more, dot, tail = tail.partition(".")
        head = f"{head}.{more}"
    return None


def is_unknown(raw: Any) -> bool:
    """Whether a plain value, or an item of a list, cannot be known without running the program."""
    return raw is UNKNOWN or (isinstance(raw, list) and any(item is UNKNOWN for item in raw))


def is_returned(node: Node) -> bool:
    """Whether a value is what a call in Python code returns, or a list of such values: its arguments do not say it."""
    if isinstance(node, Sequence):
        return any(map(is_returned, node.items))
    return isinstance(node, PythonMapping) and node.kind == "call"


def may_differ(node: Node) -> bool:
    """Whether the program may have another value than the one that stands there."""
    return isinstance(node, Scalar) and node.may_differ


def plain_value(node: Node, loader: Loader) -> Any:
    """The plain Python value of a node as ``loader`` would yield it; ``UNKNOWN`` in parts or whole."""
    if isinstance(node, Scalar):
        if not node.plain:
            return node.value
        if "${" in node.value or "{{" in node.value:
            return UNKNOWN
        from oomlint.documents.scalars import resolve

        return resolve(node.value, loader)
    if isinstance(node, Sequence):
        return [plain_value(item, loader) for item in node.items]
    return {key: plain_value(entry.value, loader) for key, entry in node.entries.items()}
