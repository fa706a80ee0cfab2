"""Which tables the keys of a document are looked up in, also while nobody can tell what it is.

A file that was read once has its blocks. A new one, or one whose text makes no sense yet, has its
name and the keys that stand in it already.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import TypeAlias

from oomlint.dialects.block import Block
from oomlint.dialects.config_files import CONFIGS, Config
from oomlint.dialects.table import Row, Table
from oomlint.documents import JSON_SUFFIXES, TOML_SUFFIXES, YAML_SUFFIXES, kind_of

Tables: TypeAlias = Sequence[tuple[Table, str]]
"""Tables, each with the dotted path that its keys stand below."""

_YAML_KEY = re.compile(r"^([\w-]+)[ ]*:", re.MULTILINE)
_JSON_KEY = re.compile(r'"([\w-]+)"[ \t\r\n]*:')
_TOML_KEY = re.compile(r"^[ \t]*\[?([\w-]+)[.\w-]*(?:\][ \t]*$|[ \t]*=)", re.MULTILINE)
_LANGUAGES = ((YAML_SUFFIXES, _YAML_KEY), (JSON_SUFFIXES, _JSON_KEY), (TOML_SUFFIXES, _TOML_KEY))


def tables_of(blocks: Sequence[Block], path: str, text: str, typed: str = "") -> Tables:
    """The tables of a document: of its own blocks, else of those that it belongs to, else of the
    kinds of files that it can be one of. ``typed`` is the beginning of a key, and says nothing."""
    near = [block for block in blocks if block.path == path] or list(blocks)
    found = {(id(block.table), block.prefix): block for block in near}
    if found:
        return [(block.table, block.prefix) for block in found.values()]
    return [(config.load(), "") for config in _configs(path, text, typed)]


def names(tables: Tables) -> Iterator[tuple[str, Row | None]]:
    """Every key that the tables know, in full, those with a meaning for memory first."""
    for table, prefix in tables:
        for name, row in table.names.items():
            yield joined(prefix, name), row
            if row.table is not None:
                for inner, inner_row in row.table.names.items():
                    yield joined(prefix, f"{name}.{inner}"), inner_row
    for table, prefix in tables:
        for name in sorted(table.known):
            yield joined(prefix, name), None


def owners(tables: Tables) -> dict[str, list[str]]:
    """Every key with a meaning for memory, by its first part, and the programs that have it."""
    found: dict[str, list[str]] = {}
    titles = {id(config.load()): config.title for config in CONFIGS}
    for table, _ in tables:
        for head in table.by_head:
            found.setdefault(head, []).append(titles.get(id(table), table.name))
    return found


def joined(above: str, key: str) -> str:
    return f"{above}.{key}" if above else key


def _configs(path: str, text: str, typed: str) -> list[Config]:
    suffix = kind_of(path)
    if any(part.startswith(".") and part.strip(".") for part in PurePosixPath(path).parts):
        return []  # of tools: .github, .vscode
    same = [c for c in CONFIGS if any(PurePosixPath(file).suffix == suffix for file in c.files)]
    named = [c for c in same if any(_is_called(path, file) for file in c.files)]
    if named:
        return named[-1:]  # the later one counts, as it does for schemas
    keys = {key for language, pattern in _LANGUAGES if suffix in language
            for key in pattern.findall(text)} - {typed}  # fmt: skip
    if not keys:
        if suffix in JSON_SUFFIXES:
            return []
        return [c for c in same if _is_after(path, c.name)] or same
    known = {c.name: sum(k in c.load().legal_keys for k in keys) for c in same}
    most = max(known.values(), default=0)
    return [c for c in same if known[c.name] == most] if 2 * most >= len(keys) else []


def _is_after(path: str, name: str) -> bool:
    """Whether a file has the name of a program in its own, as a word: ``my_llama-factory_run.yaml``, not
    ``control.yaml`` for TRL."""
    words = re.escape(name).replace(r"\-", "[-_ ]?")
    stem = path.rpartition("/")[2].lower()
    return re.search(rf"(?<![a-z]){words}(?![a-z])", stem) is not None


def _is_called(path: str, pattern: str) -> bool:
    """Whether a path matches a pattern of a catalogue: ``**/axolotl/**/*.yaml``; one without a folder
    is of the name alone."""
    called = path if "/" in pattern else path.rpartition("/")[2]
    parts = re.split(r"(\*\*/|\*|\[[^\]]+\])", pattern)
    meant = {"**/": "(?:.*/)?", "*": "[^/]*"}
    expression = "".join(
        meant.get(part) or (part if part.startswith("[") else re.escape(part)) for part in parts
    )
    return re.fullmatch(expression, called) is not None
