"""What stands in a config file as a value of the script that loads it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from oomlint.documents.base import UNKNOWN, Entry, Mapping, Node, Scalar, Sequence
from oomlint.documents.python.configs.changes import POPPED
from oomlint.documents.python.configs.items import ConfigItems, is_open
from oomlint.documents.python.nodes import (
    Filed,
    FiledScalar,
    FiledSequence,
    PythonEntry,
    PythonMapping,
    loaded_value,
)
from oomlint.documents.text import Span

if TYPE_CHECKING:
    from oomlint.documents.python.values import Evaluator


def as_node(files: ConfigItems, filed: Filed, span: Span, home: Evaluator) -> Node:
    """What a section or a value of a config file is to the script, in the place ``span`` that takes it."""
    reason = f"it is read from {filed.file.path}"
    if filed.file.is_command:
        reason = "the command that starts the script says it"
    node = filed.node
    if isinstance(node, Scalar):
        return FiledScalar(span, filed.plain, locked=reason, filed=filed)
    if isinstance(node, Sequence):
        values = (loaded_value(item, filed.file.profile) for item in node.items)
        items = tuple(Scalar(span, value, locked=reason) for value in values)
        return FiledSequence(span, items, reason, filed=filed)
    return _as_mapping(files, filed, span, home, reason)


def _as_mapping(files: ConfigItems, filed: Filed, span: Span, home: Evaluator, reason: str) -> Node:
    """All items of an object, for what unpacks it: those that the script changes are unknown."""
    changed = files.changes(home) | files.in_loaders
    below = {
        place[len(filed.path)]: place[-1] is POPPED
        for path, place in changed
        if path in (filed.file.path, filed.object)
        and len(place) > len(filed.path)
        and place[: len(filed.path)] == filed.path
    }
    entries: dict[str, Entry] = {}
    layers = [filed]
    while layers[0].under is not None:
        layers.insert(0, layers[0].under)
    keys = [
        key
        for layer in layers
        for key in (layer.node.entries if isinstance(layer.node, Mapping) else ())
    ]
    for key in dict.fromkeys((*keys, *below)):
        if below.get(key):
            continue
        inner = files.item(filed, key, home)
        value = (
            Scalar(span, UNKNOWN, locked=reason)
            if inner is None
            else as_node(files, inner, span, home)
        )
        entries[key] = PythonEntry(key, span, value, span, owner_kind="file", locked=reason)
    # As it stands in the file: of what it interpolates that says nothing.
    is_whole = not below and len(layers) == 1 and not filed.file.is_command
    is_whole = is_whole and not any(map(_interpolates, _values_of(filed.node)))
    return PythonMapping(
        span, entries, locked=reason, kind="dict", filed=filed if is_whole else None,
        open_ended=any(is_open(layer.node) for layer in layers),
    )  # fmt: skip


def _values_of(node: Node) -> Iterator[Node]:
    if isinstance(node, Mapping):
        yield from (entry.value for entry in node.entries.values())


def _interpolates(node: Node) -> bool:
    return isinstance(node, Scalar) and "${" in str(node.value)
