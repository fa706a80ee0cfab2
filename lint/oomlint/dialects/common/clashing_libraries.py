"""Releases of two libraries of which one imports, as it is imported itself, what the other lacks.

Certain only where that holds of all releases that the project allows: of ``transformers==4.28.0`` beside PEFT from git, which
asks pip for no release of transformers (PEFT 0.21.2 ``METADATA``).
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from oomlint.dialects.blocks import facts_of
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.declared_ends import declare_end
from oomlint.dialects.library_tables import CALLED, reach_of
from oomlint.dialects.meaning import Meaning
from oomlint.dialects.surroundings import Ending
from oomlint.dialects.table import Block
from oomlint.documents.base import Fact
from oomlint.plan.library_changes import Release

clashing_libraries = Meaning()


class Import(Struct, frozen=True):
    """What a library imports of another, from a release on and up to another; and the releases of that one which have it."""

    by: str
    since: Release
    before: Release | None
    of: str
    name: str
    came: Release
    gone: Release | None
    source: str


_IMPORTS = (
    Import(
        "peft", (0, 14), None, "transformers", "EncoderDecoderCache", (4, 43), None,
        source="PEFT 0.13.2, 0.14.0 and 0.21.2 peft_model.py; transformers 4.42.4 and 4.43.4 __init__.py",
    ),
    Import(
        "peft", (0, 16), (0, 18), "transformers", "HybridCache", (4, 44), (5,),
        source="PEFT 0.15.2, 0.16.0, 0.17.1 and 0.18.0 peft_model.py; names of transformers 4.28 to 5.24",
    ),
)  # fmt: skip


def _first(run: Cells) -> Ending | None:
    return next(_clashes(run), None)


declare_end(clashing_libraries, _first, source="; ".join(each.source for each in _IMPORTS))


def _clashes(run: Cells) -> Iterator[Ending]:
    for fact in run.given.once(_taken):
        library = str(fact.detail["module"]).partition(".")[0]
        for each in _IMPORTS:
            why = _why(each, run) if each.by == library else None
            if why is not None:
                yield Ending(why, fact.location)


def _why(each: Import, run: Cells) -> str | None:
    by, of = reach_of(run, each.by), reach_of(run, each.of)
    if by is None or of is None:
        return None
    if by.oldest < each.since or (each.before is not None and by.newest >= each.before):
        return None
    until = "" if each.before is None else f", before {_written(each.before)},"
    imports = f"{CALLED[each.by]} from {_written(each.since)} on{until} imports {each.name}"
    if of.newest < each.came:
        return f"{imports}, new in {CALLED[each.of]} {_written(each.came)}"
    if each.gone is not None and of.oldest >= each.gone:
        return f"{imports}, gone from {CALLED[each.of]} {_written(each.gone)}"
    return None


def _written(release: Release) -> str:
    return ".".join(map(str, release))


def _taken(blocks: list[Block]) -> tuple[Fact, ...]:
    return tuple(facts_of(blocks, "takes-names"))
