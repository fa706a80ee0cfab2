"""What a key means and what it costs, in words for people: for hover, completion and the schemas alike."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from msgspec import Struct, toml

from oomlint.dialects.table import Row


class Topic(Struct, frozen=True, forbid_unknown_fields=True):
    """One setting, whatever a framework calls it; see ``words.toml``."""

    fields: tuple[str, ...]
    means: str
    costs: str = ""

    @property
    def sentences(self) -> str:
        return f"{self.means} {self.costs}".rstrip()


def about(row: Row) -> Topic | None:
    """What is to be said of the keys of a row; ``None`` for a setting without a topic."""
    return _about(str(row.field))


@cache
def topics() -> tuple[Topic, ...]:
    class File(Struct):
        topic: tuple[Topic, ...]

    return toml.decode(Path(__file__).with_name("words.toml").read_bytes(), type=File).topic


@cache
def _about(field: str) -> Topic | None:
    """The topic that names a field in full before those that name it by a pattern."""
    return next(
        (topic for is_meant in (str.__eq__, fnmatchcase) for topic in _naming(field, is_meant)),
        None,
    )


def _naming(field: str, is_meant: object) -> Iterator[Topic]:
    assert callable(is_meant)
    return (topic for topic in topics() if any(is_meant(field, name) for name in topic.fields))
