"""Edits of documents, each as a function of the document that it changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tests.nodes import at, mapping

from oomlint.documents.base import DataDocument, Sequence
from oomlint.documents.text import Edit

Act: TypeAlias = Callable[[DataDocument], list[Edit]]


def set_to(value: Any, *path: str | int) -> Act:
    return lambda document: document.set_value(at(document, *path), value)


def add(key: str, value: Any, *path: str | int, after: str | None = None) -> Act:
    return lambda document: document.add_entry(mapping(document, *path), key, value, after=after)


def remove(key: str, *path: str | int) -> Act:
    return lambda document: document.remove_entry(mapping(document, *path), key)


def rename(key: str, new: str, *path: str | int) -> Act:
    return lambda document: document.rename_entry(mapping(document, *path), key, new)


def append(value: Any, *path: str | int) -> Act:
    def act(document: DataDocument) -> list[Edit]:
        node = at(document, *path)
        assert isinstance(node, Sequence)
        return document.append_item(node, value)

    return act
