"""Arguments that a script makes training arguments with and that only later releases of their class have.

Certain only where no release that the project allows has them (:mod:`oomlint.dialects.library_tables`). Of what newer
releases lack, and of names that no release has, other rules tell.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomlint.dialects.blocks import facts_of
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.declared_ends import declare_end
from oomlint.dialects.library_tables import CALLED, first_release_with, reach_of
from oomlint.dialects.meaning import Meaning
from oomlint.dialects.surroundings import Ending
from oomlint.dialects.table import Block
from oomlint.documents.base import Fact

early_arguments = Meaning()


def _first(run: Cells) -> Ending | None:
    """``TrainingArguments(eval_strategy="no")`` under transformers 4.38."""
    return next(_early(run), None)


declare_end(
    early_arguments,
    _first,
    source="fields of the libraries' classes of arguments, release by release",
)


def _early(run: Cells) -> Iterator[Ending]:
    for fact in _made_here(run):
        qualified = fact.detail["of"]
        for argument, at in fact.detail["arguments"].items():
            found = first_release_with(qualified, argument, run, reach_of)
            if found is not None:
                package, release = found
                yield Ending(_why(qualified, argument, f"{CALLED[package]} before {release}"), at)


def _why(qualified: str, argument: str, before: str) -> str:
    from oomlint.dialects.trainer.arguments import RENAMED_ARGUMENTS  # most runs ask for none

    former = next((each.old for each in RENAMED_ARGUMENTS if each.new == argument), None)
    if former is not None:
        return f"{before} calls {argument} {former}"
    return f"{qualified.rpartition('.')[2]} of {before} has no {argument}"


def _made_here(run: Cells) -> Iterator[Fact]:
    """Where the switches surely lead."""
    made = run.given.once(_made)
    if not made:
        return
    from oomlint.dialects.trainer.reaching import is_on
    from oomlint.dialects.trainer.statements import switches_of

    switches = switches_of(run.given.blocks)
    for fact in made:
        guards = fact.detail["guards"]
        if all(name in switches and is_on(name, switches) == on for name, on in guards):
            yield fact


def _made(blocks: list[Block]) -> tuple[Fact, ...]:
    return tuple(facts_of(blocks, "makes-arguments"))
