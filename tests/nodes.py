"""Nodes of a document by the keys and positions that lead to them."""

from __future__ import annotations

from typing import Any, Protocol

from oomlint.documents.base import Mapping, Node, Scalar, Sequence


class HasRoots(Protocol):
    @property
    def roots(self) -> tuple[Node, ...]: ...


def at(document: HasRoots, *path: str | int, root: int = 0) -> Node:
    node = document.roots[root]
    for step in path:
        if isinstance(node, Mapping):
            node = node.entries[str(step)].value
        else:
            assert isinstance(node, Sequence)
            assert isinstance(step, int)
            node = node.items[step]
    return node


def mapping(document: HasRoots, *path: str | int) -> Mapping:
    node = at(document, *path)
    assert isinstance(node, Mapping)
    return node


def plain(node: Node) -> Any:
    """What Python has for it."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return {key: plain(entry.value) for key, entry in node.entries.items()}
