"""JSON Schemas out of the type hints of records: one source for the code and its documents."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
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

from oomlint.records import public_name

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN: Mapping[Any, dict[str, Any]] = {
    Any: {},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    type(None): {"type": "null"},
}


def schema_of(cls: type, title: str, *, kebab: bool = False) -> dict[str, Any]:
    """The schema of a dataclass or TypedDict; unknown keys are errors.

    Keys are spelled as users write them, in kebab case if ``kebab``. A dataclass field's
    ``metadata["help"]`` becomes its description.
    """
    definitions: dict[str, Any] = {}
    body = _Builder(definitions, kebab).record(cls)
    schema = {"$schema": _DRAFT, "title": title, **body}
    if definitions:
        schema["$defs"] = dict(sorted(definitions.items()))
    return schema


class _Builder:
    def __init__(self, definitions: dict[str, Any], kebab: bool) -> None:
        self._definitions = definitions
        self._kebab = kebab

    def record(self, cls: type) -> dict[str, Any]:
        out: dict[str, Any] = {}
        # Of a dataclass without one, Python makes a docstring out of its signature.
        doc = cls.__doc__ or ""
        if doc and not doc.startswith(f"{cls.__name__}("):
            out["description"] = " ".join(cleandoc(doc).split("\n\n")[0].split())
        hints = get_type_hints(cls, include_extras=True)
        if is_dataclass(cls):
            helps = {f.name: f.metadata.get("help") for f in fields(cls)}
            required = [
                f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING
            ]
        else:
            must = getattr(cls, "__required_keys__", hints)
            helps, required = {}, [name for name in hints if name in must]
        properties = {}
        for name, hint in hints.items():
            schema = self.hint(hint)
            if helps.get(name):
                schema = {"description": helps[name], **schema}
            properties[self._name(name)] = schema
        out |= {"type": "object", "properties": properties, "additionalProperties": False}
        if required:
            out["required"] = [self._name(name) for name in required]
        return out

    def _name(self, field: Any) -> str:
        return public_name(field, kebab=self._kebab)

    def hint(self, hint: Any) -> dict[str, Any]:
        if hint in _PLAIN:
            return dict(_PLAIN[hint])
        if isinstance(hint, type) and (is_dataclass(hint) or is_typeddict(hint)):
            name = hint.__name__
            if name not in self._definitions:
                self._definitions[name] = {}
                self._definitions[name] = self.record(hint)
            return {"$ref": f"#/$defs/{name}"}
        return self._generic(get_origin(hint), get_args(hint))

    def _generic(self, origin: Any, inner: tuple[Any, ...]) -> dict[str, Any]:
        if origin is Annotated:
            return self.hint(inner[1])
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
