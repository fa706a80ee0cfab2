"""JSON Schemas of the frameworks' own config files, made from the tables of the dialects.

One source serves the linter and the editor: a key that ``unknown-key-ignored`` or ``renamed-key``
speaks of is one that the schema does not know or calls deprecated. Only words of JSON Schema are
used that mean the same from draft 7 to 2020-12, which is what editors understand of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from oomlint.dialects.config_files import CONFIGS, Config
from oomlint.dialects.table import Renaming, Row, Table
from oomlint.dialects.words import about
from oomlint.errors import CannotEdit
from oomlint.wording.addresses import SCHEMAS

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def config_schemas() -> dict[str, dict[str, Any]]:
    """Schema by name of every config in :data:`CONFIGS`."""
    return {config.name: schema_of_config(config) for config in CONFIGS}


def schema_of_config(config: Config) -> dict[str, Any]:
    builder = _Builder(config)
    body = builder.table(config.load())
    return {
        "$schema": _DRAFT,
        "$id": f"{SCHEMAS}{config.name}.schema.json",
        "title": f"{config.title} config",
        "description": f"Keys of {config.title} that oomlint knows; from `python -m oomlint_schemas`.",
        **body,
        "$defs": dict(sorted(builder.definitions.items())),
    }


def catalogue() -> dict[str, Any]:
    """The schemas as a catalogue of the kind that SchemaStore serves and Taplo reads."""
    return {
        "$schema": "https://json.schemastore.org/schema-catalog.json",
        "version": 1,
        "schemas": [
            {
                "name": f"{config.title} config",
                "description": f"Training config of {config.title}",
                "fileMatch": list(config.files),
                "url": f"{SCHEMAS}{config.name}.schema.json",
            }
            for config in CONFIGS
        ],
    }


# -- values ------------------------------------------------------------------------------

# What a loader leaves to be filled in: OmegaConf's ${...}, a template's {{...}}.
_OPEN = r"\$\{|\{\{"
_DEFINITIONS: Mapping[str, Any] = {
    "integer": {
        "anyOf": [
            {"type": ["integer", "null"]},
            {"type": "string", "pattern": rf"^[-+]?[0-9][0-9_]*(\.0*)?([eE]\+?[0-9]+)?$|{_OPEN}"},
        ],
    },
    "number": {
        "anyOf": [
            {"type": ["number", "null"]},
            {"type": "string", "pattern": rf"^[-+]?([0-9][0-9_]*)?\.?[0-9]*([eE][-+]?[0-9]+)?$|{_OPEN}"},
        ],
    },
    "boolean": {
        "anyOf": [
            {"type": ["boolean", "null"]},
            {"enum": [0, 1]},
            {"type": "string", "pattern": rf"^([Tt]rue|TRUE|[Ff]alse|FALSE|[Yy]es|[Nn]o|[Oo]n|[Oo]ff|[01])$|{_OPEN}"},
        ],
    },
    "text": {"type": ["string", "number", "boolean", "null"]},
    "list": {
        "anyOf": [{"type": "array"}, {"type": ["string", "null"]}],
    },
    "open": {"type": "string", "pattern": _OPEN},
}  # fmt: skip

# What stands where keys would be none of ours: a path, a list, nothing.
_NO_MAPPING: dict[str, Any] = {"not": {"type": "object"}}

_PLAIN = {"integer": "integer", "number": "number", "boolean": "boolean", "string": "text"}


class _Node(Struct):
    """A key, and the keys below it."""

    rows: list[Row] = field(default_factory=list)
    alias_of: str = ""
    renaming: Renaming | None = None
    is_known: bool = False
    is_open: bool = False
    open_patterns: list[str] = field(default_factory=list)
    inner: dict[str, _Node] = field(default_factory=dict)

    def at(self, path: str) -> _Node:
        node = self
        for part in path.split("."):
            node = node.inner.setdefault(part, _Node())
        return node


class _Builder:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.definitions: dict[str, Any] = {}

    def table(self, table: Table) -> dict[str, Any]:
        """The schema of a mapping that is read with a table."""
        out = self._mapping(_tree(table), is_open=table.ignores_unknown is None)
        if self.config.dashes:
            keys = out["properties"]
            dashed = {key.replace("_", "-"): value for key, value in keys.items() if "_" in key}
            out["properties"] = dict(sorted({**keys, **dashed}.items()))
        return out

    def _mapping(self, node: _Node, *, is_open: bool) -> dict[str, Any]:
        out: dict[str, Any] = {
            "type": "object",
            "properties": {
                key: self._key(inner, is_open=is_open or inner.is_open)
                for key, inner in sorted(node.inner.items())
            },
        }
        if node.open_patterns:
            out["patternProperties"] = {
                f"^{re.escape(start)}": {} for start in sorted(node.open_patterns)
            }
        if not is_open and not node.is_open:
            out["additionalProperties"] = False
        return out

    def _key(self, node: _Node, *, is_open: bool) -> dict[str, Any]:
        values = [self._value(row) for row in node.rows]
        ways = [way for number, way in enumerate(values) if way not in values[:number]]
        if {} in ways:  # anything goes, as for a key that is merely known
            ways = []
        if node.inner:
            ways = [self._mapping(node, is_open=is_open), *(ways or [_NO_MAPPING])]
        out = self._notes(node)
        if len(ways) == 1:
            # Tools that go by draft 7 pass over what stands beside a reference.
            only = {"allOf": ways} if "$ref" in ways[0] else ways[0]
            return {**out, **only}
        return {**out, "anyOf": ways} if ways else out

    def _value(self, row: Row) -> dict[str, Any]:
        """What the file may say: as lenient as the framework's loader and parser are."""
        plain = self._lenient(row.kind.schema or {})
        if row.table is None:
            return plain
        name = row.table.name
        if name not in self.definitions:
            self.definitions[name] = {}
            self.definitions[name] = self.table(row.table)
        return {"anyOf": [{"$ref": f"#/$defs/{_pointer(name)}"}, plain or _NO_MAPPING]}

    def _lenient(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        kind = schema.get("type")
        several = schema.get("anyOf", [{**schema, "type": one} for one in kind]
                             if isinstance(kind, list) else ())  # fmt: skip
        if several:
            ways = [self._lenient(way) for way in several]
            return {} if {} in ways else {"anyOf": ways}
        if "enum" in schema:
            values = [value for value in schema["enum"] if value is not None]
            return {"anyOf": [{"enum": [*values, None]}, self._ref("open")]}
        if "const" in schema:
            return dict(schema)
        if kind == "array":
            return self._ref("list")
        if kind in _PLAIN:
            out = self._ref(_PLAIN[kind])
            least = {"minimum": schema["minimum"]} if "minimum" in schema else {}
            return {"allOf": [out], **least} if least else out
        return {}

    def _ref(self, name: str) -> dict[str, Any]:
        self.definitions.setdefault(name, _DEFINITIONS[name])
        return {"$ref": f"#/$defs/{name}"}

    # -- what an editor shows ------------------------------------------------------------

    def _notes(self, node: _Node) -> dict[str, Any]:
        """Description, default and whether the key is deprecated."""
        words: list[str] = []
        out: dict[str, Any] = {}
        words += dict.fromkeys(
            topic.sentences for row in node.rows if (topic := about(row)) is not None
        )
        if node.is_known and not node.rows:
            words.append(f"{self.config.title} takes it; it moves no memory that oomlint predicts.")
        if node.is_open and not words:
            words.append("Others read it: oomlint does not look inside.")
        if node.alias_of:
            words.append(f"Another spelling of {node.alias_of}.")
        words += dict.fromkeys(
            f"Source: {self.config.spelled_out(row.source)}." for row in node.rows if row.source
        )
        if node.renaming is not None:
            out["deprecated"] = True
            out["deprecationMessage"] = _advice(node.renaming)
            words.insert(0, _advice(node.renaming))
        if words:
            out["description"] = " ".join(words)
        default = next((d for row in node.rows if (d := _default(row)) is not None), None)
        if default is not None and not node.alias_of:
            out["default"] = default
        return out


def _tree(table: Table) -> _Node:
    root = _Node()
    for row in table.rows:
        for name in (row.key, *row.aliases):
            for spelling in _spellings(table, name):
                node = root.at(spelling)
                node.rows.append(row)
                node.alias_of = row.key if name != row.key and len(node.rows) == 1 else ""
    for key in table.known:
        for spelling in _spellings(table, key):
            root.at(spelling).is_known = True
    for renaming in table.renamed:
        root.at(renaming.old).renaming = renaming
    for prefix in table.known_prefixes:
        _open(root, prefix)
    return root


def _spellings(table: Table, key: str) -> Iterable[str]:
    yield key
    if table.strip_prefix:
        yield table.strip_prefix + key


def _open(root: _Node, prefix: str) -> None:
    """Let in every key that starts with a prefix: ``model.``, ``optim``, or all with none."""
    holder, _, start = prefix.rpartition(".")
    node = root.at(holder) if holder else root
    if start:
        node.open_patterns.append(start)
    else:
        node.is_open = True


def _default(row: Row) -> Any:
    """The default as the file would spell it."""
    if row.default is None:
        return None
    try:
        spelled = row.kind.write(row.default)
    except CannotEdit:
        return None
    return spelled if isinstance(spelled, (bool, int, float, str)) else None


def _advice(renaming: Renaming) -> str:
    """What became of a key: refused or ignored since when, and what to write."""
    effect = f"{renaming.effect.capitalize()} since {renaming.since}"
    better = f"write {renaming.new}" if renaming.new else ""
    return f"{'; '.join(part for part in (effect, better, renaming.advice) if part)}."


def _pointer(name: str) -> str:
    """A name as part of a JSON pointer in a URI fragment."""
    return name.replace("~", "~0").replace("/", "~1").replace(" ", "%20")
