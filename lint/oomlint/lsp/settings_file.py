"""Completion and hover in ``oomlint.toml`` and ``[tool.oomlint]``: keys, cards, rules, choices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from lsprotocol import types

from oomlint.config.settings import FILE_NAMES, Settings
from oomlint.hardware import list_gpus, list_instances
from oomlint.linting.engine import all_rules
from oomlint.lsp.context import Context
from oomlint.validation.json_schema import schema_of

_RULES = ("select", "extend-select", "ignore", "per-file-ignores")
_PROFILE = re.compile(r"^[ \t]*\[(?:tool\.oomlint\.)?profiles\.([\w-]+)\]", re.MULTILINE)
_COUNT = re.compile(r"(?:\d+x){1,2}")
# How many cards a machine most often has; the number that is typed counts before them.
_USUAL_COUNTS = ("8x", "4x", "2x", "1x")


def is_settings(path: str) -> bool:
    return path.rpartition("/")[2] in FILE_NAMES


def key_within(path: str, context: str) -> str | None:
    """A dotted key of a settings file within the settings; ``None`` outside them."""
    if not path.endswith("pyproject.toml"):
        return context
    head, _, rest = context.partition("tool.oomlint")
    return None if head or not context.startswith("tool.oomlint") else rest.lstrip(".")


def complete_settings(
    path: str, text: str, context: Context, range: types.Range
) -> Iterator[types.CompletionItem]:
    """What can be written at a place of a settings file."""
    key = key_within(path, context.path)
    if key is None:
        return
    if context.kind == "key":
        yield from _keys(key, range)
        return
    name = "hardware" if key.startswith("profiles.") and key.endswith(".hardware") else key
    found = _values(name.partition(".")[0], context.typed, text)
    for number, (value, detail) in enumerate(found):
        is_text = not isinstance(value, bool) and not context.is_quoted
        written = (
            f'"{value}"'
            if is_text
            else str(value).lower()
            if value in (True, False)
            else str(value)
        )
        yield types.CompletionItem(
            str(value),
            kind=types.CompletionItemKind.Value,
            detail=detail,
            sort_text=f"{number:04}",
            filter_text=written if is_text else None,
            text_edit=types.TextEdit(range, written),
        )


def describe(key: str) -> str | None:
    """What a setting says, for people."""
    told = _properties().get(key.partition(".")[0])
    said = (told or {}).get("description")
    return f"**`{key}`** · setting of oomlint\n\n{said[:1].upper()}{said[1:]}." if said else None


def _keys(above: str, range: types.Range) -> Iterator[types.CompletionItem]:
    names = _properties() if not above else {}
    if above.startswith("profiles."):
        names = {name: _properties()[name] for name in ("hardware", "host-memory")}
    for name, told in names.items():
        yield types.CompletionItem(
            name,
            kind=types.CompletionItemKind.Property,
            documentation=told.get("description"),
            detail=None if told.get("default") in (None, [], {}) else f"default {told['default']}",
            text_edit=types.TextEdit(range, f"{name} = "),
        )


def _values(name: str, typed: str, text: str) -> Iterator[tuple[Any, str]]:
    if name == "hardware":
        yield from _hardware(typed, text)
    elif name in _RULES:
        for rule in all_rules():
            yield rule.name, f"{rule.code} {rule.summary}"
    else:
        yield from ((value, "") for value in _listed(_properties().get(name, {})))


def _hardware(typed: str, text: str) -> Iterator[tuple[str, str]]:
    for profile in _PROFILE.findall(text):
        yield profile, "a profile of this file"
    yield "auto", "the GPUs of this machine, as nvidia-smi has them"
    count = _COUNT.match(typed)
    counts = (count[0],) if count is not None else _USUAL_COUNTS
    for gpu in sorted((g for g in list_gpus() if not g.rare), key=lambda g: -g.total_bytes):
        for number in counts:
            yield f"{number}{gpu.name}", f"{gpu.total_bytes / 2**30:.1f} GiB each"
    for instance in list_instances():
        yield instance.name, "a cloud instance"


def _listed(schema: Mapping[str, Any]) -> Iterator[Any]:
    yield from (value for value in schema.get("enum", ()) if value is not None)
    if schema.get("type") == "boolean":
        yield from (True, False)
    for inner in schema.get("anyOf", ()):
        yield from _listed(inner)


@cache
def _properties() -> Mapping[str, Mapping[str, Any]]:
    found: Mapping[str, Mapping[str, Any]] = schema_of(Settings)["properties"]
    return found
