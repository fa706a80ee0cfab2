"""What ends a run before its first step, whatever memory there is: the one place where that is decided.

It is found where its facts lie. What ends a program by its code, its command or the libraries that run is declared by the
dialects (:mod:`oomlint.dialects.common.declared_ends`) and read of the run's cells. What a setting ends is a rule's to know:
the rules that may find such a thing are asked (``Parts.find_endings``), and what they are sure of counts. Whoever tells of
an ending, a rule beside it or a surface, asks here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from oomlint.dialects.common.fields import shared
from oomlint.dialects.ending import Ending, When
from oomlint.judgement.contradicted import outlived, place_of_end
from oomlint.plan.evidence import Level

if TYPE_CHECKING:
    from oomlint.runs.run import Run

# The rule that tells of what is declared as an error of its own.
_TELLS = ("OOM905", "ends-before-training")


def endings_of(run: Run) -> tuple[Ending, ...]:
    """What is sure to end a run before its first step, in the order in which it gets there; looked for once."""
    known: tuple[Ending, ...] | None = run.remembered.get("endings")
    if known is None:
        told = (*declared(run).values(), *run.parts.find_endings(run))
        found = {each.why: each for each in told}
        placed = (replace(each, line=run.line_of(each.at)) for each in found.values())
        known = run.remembered["endings"] = tuple(sorted(placed, key=_order))
    return known


def _order(ending: Ending) -> int:
    """Of what it is not known when it ends the run, the earliest is taken."""
    return 0 if ending.when is None else ending.when


def declared(run: Run) -> Mapping[Any, Ending]:
    """Field by which it is declared that the program is sure to end → what ends it. Nothing of ``refused``, which one rule
    tells of as an error, where the program's own outputs show that it got further."""
    found: dict[Any, Ending] = {}
    refused, stops = run.settings.get(shared.refused), run.settings.get(shared.stops)
    if refused is not None and run.level(shared.refused) <= Level.DEFAULT and not outlived(run):
        at = place_of_end(run) or run.location(shared.refused)
        when, (code, name) = run.cells[shared.refused_when], _TELLS
        found[shared.refused] = Ending(named(str(refused.value)), at, when, code=code, name=name)
    if stops is not None and run.level(shared.stops) <= Level.DEFAULT:
        found[shared.stops] = Ending(str(stops.value), run.location(shared.stops), When.LOADED)
    return found


def named(why: str) -> str:
    """A reason with files by their names alone."""
    return " ".join(word.rpartition("/")[2] or word for word in why.split())
