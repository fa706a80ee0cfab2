"""Plain values (of JSON and TOML) to records, checked by msgspec against their type hints.

A whole number is a number, but "8" is none and 1 is no boolean. What is wrong with a value is
worked out once something is, by the schema that the same type hints make.
"""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import ValidationError, convert

from oomlint.errors import UsageError

T = TypeVar("T")


class RecordError(UsageError):
    """A value does not fit its record. ``path`` leads to the offending key."""

    def __init__(self, path: tuple[str, ...], message: str) -> None:
        super().__init__(f"{'.'.join(path)}: {message}" if path else message)
        self.path = path
        self.message = message


def record(cls: type[T], value: object) -> T:
    """``value`` as an instance of the record ``cls``, those that it holds included.

    Raises:
        RecordError: a key is unknown (with the nearest name), or a value has the wrong type.
    """
    try:
        return convert(value, cls)
    except ValidationError as error:
        raise _fault(cls, value, error) from None
    except RecursionError:
        raise RecordError((), "is nested too deeply") from None


def leaf(hint: Any, value: object) -> Any:
    """``value`` checked against one type hint.

    Raises:
        ValueError: with what was expected.
    """
    try:
        return convert(value, hint)
    except ValidationError as error:
        raise ValueError(_fault(hint, value, error).message) from None


def _fault(hint: Any, value: object, error: ValidationError) -> RecordError:
    """The first thing that is wrong."""
    from oomlint.validation.json_schema import schema_of
    from oomlint_schemas.validation import faults

    for path, message in faults(schema_of(hint), value):
        return RecordError(tuple(map(str, path)), message)
    return RecordError((), str(error))
