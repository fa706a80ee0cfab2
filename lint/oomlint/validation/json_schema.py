"""JSON Schemas out of the type hints of records: one source for the code and its documents."""

from __future__ import annotations

import types
from collections.abc import Mapping
from inspect import cleandoc
from typing import (
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from msgspec import Meta, Struct
from msgspec.structs import fields

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN: Mapping[Any, dict[str, Any]] = {
    Any: {},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    type(None): {"type": "null"},
}


def schema_of(hint: Any, title: str | None = None) -> dict[str, Any]:
    """The schema of a record, a TypedDict or any other type hint; unknown keys are errors.

    Keys are spelled as users write them, which is what a record's ``rename`` says.
    """
    definitions: dict[str, Any] = {}
    builder = _Builder(definitions)
    body = builder.record(hint) if _is_record(hint) else builder.hint(hint)
    schema = {"$schema": _DRAFT, **({"title": title} if title else {}), **body}
    if definitions:
        schema["$defs"] = dict(sorted(definitions.items()))
    return schema


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and (issubclass(hint, Struct) or is_typeddict(hint))


class _Builder:
    def __init__(self, definitions: dict[str, Any]) -> None:
        self._definitions = definitions

    def record(self, cls: type) -> dict[str, Any]:
        out: dict[str, Any] = {}
        if cls.__doc__:
            out["description"] = " ".join(cleandoc(cls.__doc__).split("\n\n")[0].split())
        if issubclass(cls, Struct):
            members = fields(cls)
            hints = {member.encode_name: member.type for member in members}
            required = [member.encode_name for member in members if member.required]
        else:
            hints = get_type_hints(cls, include_extras=True)
            must = getattr(cls, "__required_keys__", hints)
            required = [name for name in hints if name in must]
        properties = {name: self.hint(hint) for name, hint in hints.items()}
        out |= {"type": "object", "properties": properties, "additionalProperties": False}
        if required:
            out["required"] = required
        return out

    def hint(self, hint: Any) -> dict[str, Any]:
        if hint in _PLAIN:
            return dict(_PLAIN[hint])
        if _is_record(hint):
            name = hint.__name__
            if name not in self._definitions:
                self._definitions[name] = {}
                self._definitions[name] = self.record(hint)
            return {"$ref": f"#/$defs/{name}"}
        return self._generic(get_origin(hint), get_args(hint))

    def _generic(self, origin: Any, inner: tuple[Any, ...]) -> dict[str, Any]:
        if origin is Annotated:
            said = inner[1]
            if isinstance(said, Meta):
                return {"description": said.description, **self.hint(inner[0])}
            return self.hint(said)
        if origin is Literal:
            return {"enum": list(inner)}
        if origin in (Union, types.UnionType):
            return self._union(inner)
        if origin in (list, tuple):
            return {"type": "array", "items": self.hint(inner[0])}
        values = self.hint(inner[1])
        return {"type": "object", **({"additionalProperties": values} if values else {})}

    def _union(self, members: tuple[Any, ...]) -> dict[str, Any]:
        """Alternatives; ``X | None`` of plain types is one schema with two types."""
        schemas = [self.hint(member) for member in members]
        if all(set(schema) == {"type"} for schema in schemas):
            return {"type": [schema["type"] for schema in schemas]}
        return {"anyOf": schemas}
