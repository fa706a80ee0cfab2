"""What programs of others send (the answers of a forge, the options of an editor), as models that
pydantic checks.

Only a command that receives something imports this: to load pydantic is time that every start would
pay. The words for what is wrong are those of settings and plans, by the model's own schema.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

T = TypeVar("T")


class Received(BaseModel):
    """A model of what somebody else wrote: "8" is no number in it and 1 is no boolean."""

    model_config = ConfigDict(frozen=True, strict=True)


class Unexpected(ValueError):
    """A value is not what was agreed on. ``faults``: where, by the keys that lead there, and what
    should be there, for each thing that is wrong."""

    def __init__(self, faults: tuple[tuple[tuple[str, ...], str], ...]) -> None:
        path, message = faults[0]
        super().__init__(f"{'.'.join(path)}: {message}" if path else message)
        self.faults = faults


def read(kind: type[T], value: object) -> T:
    """``value``, which came as JSON, as a model or a list of them.

    Raises:
        Unexpected: it is something else.
    """
    try:
        found: T = _adapter(cast("Any", kind)).validate_python(value)
    except ValidationError as error:
        raise Unexpected(_faults(kind, value, error)) from None
    return found


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _faults(
    kind: Any, value: object, error: ValidationError
) -> tuple[tuple[tuple[str, ...], str], ...]:
    from oomlint_schemas.validation import faults

    found = faults(_adapter(kind).json_schema(), value)
    said = tuple((tuple(map(str, path)), message) for path, message in found)
    if said:
        return said
    # What no schema can say, such as half a pair of surrogates in a text.
    first = error.errors(include_url=False, include_input=False)[0]
    return ((tuple(map(str, first["loc"])), _lower(first["msg"])),)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
