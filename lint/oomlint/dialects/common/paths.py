"""Paths of models that begin with a variable."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec.structs import replace

from oomlint.documents.base import UNKNOWN, Document, Mapping, Scalar


def with_ends_of_paths(document: Document, words: Mapping, keys: Iterable[str]) -> Mapping:
    """A model's path may begin with a variable; its last part names the model all the same."""
    entries = dict(words.entries)
    for key in keys:
        entry = entries.get(key)
        if entry is None or not isinstance(entry.value, Scalar) or entry.value.value is not UNKNOWN:
            continue
        text = document.source.text[entry.value.span.start : entry.value.span.end].strip("\"'/")
        folder, slash, last = text.rpartition("/")
        if slash and folder and re.fullmatch(r"[\w.+-]+", last):
            entries[key] = replace(entry, value=replace(entry.value, value=last, plain=False))
    return replace(words, entries=entries)
