"""Releases of two libraries of which one imports, as it is imported itself, what the other lacks.

``keys/imports`` is read from the libraries' wheels (:mod:`benchmarks.wheel_imports`). Certain only where all releases of the one
that the project allows import it and none of the other has it: of ``transformers==4.37.2`` beside ``peft>=0.14``, which asks
pip for no release of transformers (PEFT 0.21.2 ``METADATA``). Where nobody says which release of the one, or its repository is
named without a commit, it is the newest that an installation of today gets, and another on another day.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from msgspec import Struct

from oomlint.dialects.block import Block
from oomlint.dialects.blocks import facts_of
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.declared_ends import declare_end
from oomlint.dialects.ending import Ending, When
from oomlint.dialects.library_tables import CALLED, Reach, beginning, library_of, reach_of
from oomlint.dialects.meaning import Meaning
from oomlint.documents.base import Fact
from oomlint.plan.library_changes import Release, release_of

clashing_libraries = Meaning()

_FOLDER = Path(__file__).parents[1] / "keys" / "imports"
_LIBRARIES = ("peft",)
_ANY = "-"
# What the library takes of another whatever it is asked for.
_ALL = "*"


class Import(Struct, frozen=True):
    """What a library imports of another where it is asked for a name, from a release on and up to another; and the
    releases of the other: the last that was read without it, the first with it, and the first without it again. An
    empty release is none."""

    by: str
    asked: str
    taken: str
    since: Release
    before: Release
    lacking: Release
    came: Release
    gone: Release

    @property
    def of(self) -> str:
        return library_of(self.taken)

    def takes(self, release: Release) -> bool:
        """Whether a release of the library imports it."""
        return self.since <= release and (not self.before or release < self.before)


def _first(run: Cells) -> Ending | None:
    return next(_clashes(run, lately=False), None)


def _first_lately(run: Cells) -> Ending | None:
    return next(_clashes(run, lately=True), None)


_SOURCE = "what libraries import of one another, release by release"
declare_end(clashing_libraries, _first, source=_SOURCE)
declare_end(clashing_libraries, _first_lately, source=_SOURCE, lately=True)


def _clashes(run: Cells, *, lately: bool) -> Iterator[Ending]:
    for fact in run.once(_taken):
        library = library_of(str(fact.detail["module"]))
        by = reach_of(run, library) if library in _LIBRARIES else None
        if by is None:
            continue
        asked = (each for each in _imports(library) if each.asked in (_ALL, *fact.detail["names"]))
        failing = [each for each in asked if _why_not(each, run)]
        first = next((each for each in failing if _is_newest(each, by)), None)
        if not lately:
            first = next((each for each in failing if each.takes(by.oldest)), None)
            first = first if _covers(failing, by) else None
        if first is not None:
            yield Ending(_said(first, run), fact.location, When.SETTINGS)


def _covers(failing: Sequence[Import], by: Reach) -> bool:
    """Whether each release that may run imports something that is not there."""
    release = by.oldest
    while True:
        beyond = [each.before for each in failing if each.takes(release)]
        if not beyond:
            return False
        if () in beyond or max(beyond) > by.newest:
            return True
        release = max(beyond)


def _is_newest(each: Import, by: Reach) -> bool:
    """Whether the newest release imports it, which nothing keeps from running."""
    return by.is_open and not each.before


def _why_not(each: Import, run: Cells) -> str:
    """Why no release of the other library that may run has it, in words; empty where one may."""
    of = reach_of(run, each.of)
    if of is not None and each.lacking and of.newest <= each.lacking:
        return f"new in {CALLED[each.of]} {_written(each.came)}"
    if of is not None and each.gone and of.oldest >= each.gone:
        return f"gone from {CALLED[each.of]} {_written(each.gone)}"
    return ""


def _said(each: Import, run: Cells) -> str:
    until = f", before {_written(each.before)}," if each.before else ""
    since = f" from {_written(each.since)} on{until}" if each.since else until
    name = each.taken.rpartition(".")[2]
    return f"{CALLED[each.by]}{since} imports {name}, {_why_not(each, run)}"


def _written(release: Release) -> str:
    return ".".join(map(str, (*release, 0)[: max(2, len(release))]))


@cache
def _imports(library: str) -> tuple[Import, ...]:
    text = (_FOLDER / f"{library}.txt").read_text("utf-8")
    lines = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return tuple(
        Import(library, asked, taken, *(_release(word) for word in releases))
        for asked, taken, *releases in lines
    )


def _release(word: str) -> Release:
    return () if word == _ANY else beginning(release_of(word))


def _taken(blocks: list[Block]) -> tuple[Fact, ...]:
    return tuple(facts_of(blocks, "takes-names"))
