"""What a key means and what it costs, as Markdown: the same for hover and completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomlint.dialects.table import Row
from oomlint.dialects.words import about

_MOST_ITEMS = 3


def sentences(row: Row) -> str:
    """What the key of a row means and costs; empty where nothing is to be said."""
    topic = about(row)
    return topic.sentences if topic is not None else ""


def spelled(value: Any) -> str:
    """A value as a config would say it: ``true``, not ``True``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def in_words(value: Any) -> str:
    """A value for people: the items of a list, the keys of a mapping."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {in_words(inner)}" for key, inner in value.items())
    if isinstance(value, (tuple, list)):
        nested = any(isinstance(item, (Mapping, tuple, list)) for item in value)
        shown = [in_words(item) for item in (value[:_MOST_ITEMS] if nested else value)]
        more = len(value) - len(shown)
        return ("; " if nested else ", ").join([*shown, *([f"and {more} more"] if more else [])])
    return spelled(value)
