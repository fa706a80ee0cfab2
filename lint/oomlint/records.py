"""Plain values (of JSON and TOML) to frozen records, checked against their type hints.

Pydantic does the checking; it is imported on the first call, since most invocations read
neither a settings file nor a plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args, get_type_hints

from oomlint.errors import UsageError

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

T = TypeVar("T")


class RecordError(UsageError):
    """A value does not fit its record. ``path`` leads to the offending key."""

    def __init__(self, path: tuple[str, ...], message: str) -> None:
        super().__init__(f"{'.'.join(path)}: {message}" if path else message)
        self.path = path
        self.message = message


def public_name(field: str, *, kebab: bool = False) -> str:
    """A field as users write it: ``global_`` is ``global``, and kebab case where asked for."""
    name = field.rstrip("_")
    return name.replace("_", "-") if kebab else name


def record(cls: type[T], value: object, *, kebab: bool = False) -> T:
    """``value`` as an instance of the dataclass ``cls``, nested dataclasses included.

    Raises:
        RecordError: a key is unknown (with the nearest name), or a value has the wrong type.
    """
    from pydantic import ValidationError

    try:
        # Strict JSON rules: a list is a tuple, but "8" is no number and 1 is no boolean.
        text = json.dumps(value, default=str)
        found: T = _adapter(cast("Any", cls), kebab).validate_json(text, strict=True)
        return found
    except ValidationError as error:
        raise _explain(cls, value, error.errors(include_url=False)[0], kebab) from None
    except (RecursionError, ValueError, TypeError):
        raise RecordError((), "is nested too deeply or is not made of plain values") from None


def leaf(hint: Any, value: object) -> Any:
    """``value`` checked against one type hint.

    Raises:
        ValueError: with what was expected.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(hint).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        raise ValueError(_expected(error.errors(include_url=False)[0])) from None


@cache
def _adapter(cls: type, kebab: bool) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    def alias(name: str) -> str:
        return public_name(name, kebab=kebab)

    for kind in dataclasses_in(cls):
        # Where pydantic looks up how to treat a standard dataclass.
        kind.__pydantic_config__ = {  # type: ignore[attr-defined]
            "extra": "forbid",
            "alias_generator": alias,
            "allow_inf_nan": False,
        }
    return TypeAdapter(cls)


def dataclasses_in(cls: type) -> Iterator[type]:
    """``cls`` and every dataclass that its fields hold."""
    yield cls
    for hint in get_type_hints(cls).values():
        for kind in (hint, *get_args(hint)):
            if isinstance(kind, type) and is_dataclass(kind):
                yield from dataclasses_in(kind)


def _explain(cls: type, value: object, error: ErrorDetails, kebab: bool) -> RecordError:
    path = tuple(_path_in(value, error["loc"]))
    if error["type"] != "unexpected_keyword_argument":
        return RecordError(path, _expected(error))
    from difflib import get_close_matches

    *parents, key = path
    known = _keys_at(cls, parents, kebab)
    nearest = get_close_matches(key, known, n=1, cutoff=0.6)
    hint = f"did you mean {nearest[0]}?" if nearest else f"known here: {', '.join(sorted(known))}"
    return RecordError(path, f"unknown key {key!r}; {hint}")


def _path_in(value: Any, steps: tuple[int | str, ...]) -> Iterator[str]:
    """The steps that are keys of the value; pydantic adds names of union members to them."""
    inner = value
    for step in steps:
        try:
            inner = inner[step]
        except (KeyError, IndexError, TypeError):
            return
        yield str(step)


def _keys_at(cls: type, parents: list[str], kebab: bool) -> list[str]:
    kind: type = cls
    for name in parents:
        hints = {public_name(f, kebab=kebab): hint for f, hint in get_type_hints(kind).items()}
        inner = [hints[name], *get_args(hints[name])] if name in hints else [kind]
        kind = next((t for t in inner if isinstance(t, type) and is_dataclass(t)), kind)
    return [public_name(f.name, kebab=kebab) for f in fields(kind)]


def _expected(error: ErrorDetails) -> str:
    found = json.dumps(error["input"], default=str)
    found = found if len(found) <= 60 else found[:57] + "..."
    message = error["msg"].removeprefix("Input should be ")
    return f"should be {message}, not {found}"
