"""What is known of published figures beside their rows: data, read from ``facts.toml``.

A row of the measured sets says framework, model and settings as its publisher printed them. Which releases ran, in
which language the publisher said it, and what its own program does where no file says so, stands in ``facts.toml``,
each entry with its source; an entry holds for the rows whose fields fit its patterns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct, convert, field

from oomlint.validation.toml import loads

Row = Mapping[str, Any]

_FILE = Path(__file__).with_name("facts.toml")


class Fact(Struct, frozen=True, forbid_unknown_fields=True):
    """What holds for the rows whose fields all fit ``where``, each its pattern or one of its patterns.

    ``language``: how the run was said (a name of :data:`benchmarks.accuracy.languages.LANGUAGES`). ``said``: what the
    publisher says elsewhere, laid over the row. ``versions``: releases of libraries. ``plan``: what its own program
    does, as fields of a plan. ``context_mib``: what it read of its card before any tensor was there. ``source``:
    where all of this was read.
    """

    where: dict[str, str | tuple[str, ...]]
    source: str
    language: str = ""
    said: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    context_mib: int | None = None


class LeftOut(Struct, frozen=True, forbid_unknown_fields=True):
    """A row that is planned and not scored; ``why`` can be checked without oomlint."""

    id: str
    why: str


class Known(Struct, frozen=True):
    """All that is known of one row."""

    language: str
    said: dict[str, Any]
    versions: dict[str, str]
    plan: dict[str, Any]
    context_mib: int | None


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    facts: tuple[Fact, ...]
    left_out: tuple[LeftOut, ...]


@cache
def read() -> _File:
    return convert(loads(_FILE.read_text(encoding="utf-8")), _File)


def known_of(row: Row) -> Known:
    """All entries that hold for a row, of which a later one counts more."""
    language, context = "", None
    said: dict[str, Any] = {}
    versions: dict[str, str] = {}
    plan: dict[str, Any] = {}
    for fact in holding(row):
        language = fact.language or language
        context = fact.context_mib or context
        said |= fact.said
        versions |= fact.versions
        plan |= {name: tuple(v) if isinstance(v, list) else v for name, v in fact.plan.items()}
    return Known(language, said, versions, plan, context)


def holding(row: Row) -> Iterator[Fact]:
    return (fact for fact in read().facts if _fits(fact.where, row))


def left_out() -> Mapping[str, str]:
    """Rows that are not scored, with the reason."""
    return {each.id: each.why for each in read().left_out}


def _fits(where: Mapping[str, str | tuple[str, ...]], row: Row) -> bool:
    return all(
        any(fnmatchcase(_text(row, key), pattern) for pattern in _patterns(said))
        for key, said in where.items()
    )


def _patterns(said: str | tuple[str, ...]) -> tuple[str, ...]:
    return (said,) if isinstance(said, str) else said


def _text(row: Row, key: str) -> str:
    """A field of a row as text, ``a.b`` for what stands in a field that holds several; nothing where it is not said."""
    value: Any = row
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)
