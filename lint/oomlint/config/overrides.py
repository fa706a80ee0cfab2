"""Fields of the canonical plan that a user sets, as ``--set KEY=VALUE``: each value read by its type."""

from __future__ import annotations

from typing import Any, get_args

from msgspec import Struct
from msgspec.structs import fields

from oomlint.plan import Plan, leaf_paths
from oomlint.validation.records import leaf


def read_pair(text: str) -> tuple[str, Any]:
    """``"seq.max_len=8192"`` → ``("seq.max_len", 8192)``.

    Raises:
        ValueError: the key is no field (with the nearest one), or the value does not fit it.
    """
    key, equals, written = text.partition("=")
    key, written = key.strip(), written.strip()
    if not equals or not written:
        raise ValueError(f"{text!r} should be KEY=VALUE")
    return key, read_value(key, written)


def read_value(key: str, given: Any) -> Any:
    """The value of a field of the plan: text as ``--set`` has it, or a plain value of its type.

    Raises:
        ValueError: the key is no field (with the nearest one), or the value does not fit it.
    """
    value = _written(key, given) if isinstance(given, str) else _plain_value(key, given)
    if isinstance(value, (int, float)) and value < 0:
        raise ValueError(f"{key}: {value} is negative")
    return value


def _plain_value(key: str, value: Any) -> Any:
    hint = _hint(key)
    try:
        return leaf(hint, value)
    except ValueError as error:
        raise ValueError(f"{key} {error}") from None


def _written(key: str, written: str) -> Any:
    hint = _hint(key)
    try:
        return leaf(hint, _plain(written))
    except ValueError as first:
        # 2.0 may be meant as text, and a bare word never is JSON.
        for other in ([word.strip() for word in written.split(",")], written):
            try:
                return leaf(hint, other)
            except ValueError:
                continue
        raise ValueError(f"{key} {first}") from None


def _plain(written: str) -> Any:
    import json

    try:
        return json.loads(written)
    except (ValueError, RecursionError):
        return {"True": True, "False": False}.get(written, written)


def _hint(key: str) -> Any:
    if key.startswith("versions.") and key != "versions.":
        return str  # one library's version
    kind: Any = Plan
    path = ""
    for part in key.split("."):
        owner = _record(kind)
        hints = {m.encode_name: m.type for m in fields(owner)} if owner else {}
        if part not in hints:
            raise ValueError(_unknown(key, [path + name for name in hints]))
        kind = hints[part]
        path += part + "."
    group = _record(kind)
    if group is not None:
        members = ", ".join(group.__struct_encode_fields__)
        raise ValueError(f"{key} is a group of fields; name one of them: {members}")
    return kind


def _record(hint: Any) -> type[Struct] | None:
    """The record in a hint such as ``ModelDims | None``."""
    kinds = (hint, *get_args(hint))
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, Struct)), None)


def _unknown(key: str, beside: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(key, sorted({*leaf_paths(), *beside}), n=1)
    hint = f"; did you mean {near[0]}?" if near else "; see schemas/plan.schema.json"
    return f"the plan has no field {key!r}{hint}"
