"""Arguments that a script makes training arguments with and that no release has which may run: Python raises a ``TypeError``.

Certain only where no release that the project allows has them (:mod:`oomlint.dialects.library_tables`), among those that its
class only has in later releases, had in earlier ones, or never had. A key that a table does not know at all is a stray one,
of which another rule tells.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomlint.dialects.block import Block
from oomlint.dialects.blocks import facts_of, scripts_of
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.declared_ends import declare_end
from oomlint.dialects.ending import Ending, When
from oomlint.dialects.library_tables import (
    CALLED,
    first_release_with,
    reach_of,
    why_no_field,
)
from oomlint.dialects.meaning import Meaning
from oomlint.documents.base import Fact

refused_arguments = Meaning()

# Importing it puts classes with further arguments in the place of TRL's (unsloth 2025.6.1 models/rl.py:119).
_PATCHES = "unsloth"


def _first(run: Cells) -> Ending | None:
    """``TrainingArguments(eval_strategy="no")`` under transformers 4.38, ``GRPOConfig(max_new_tokens=64)``."""
    return next(_refused(run), None)


declare_end(
    refused_arguments,
    _first,
    source="fields of the libraries' classes of arguments, release by release",
)


def _refused(run: Cells) -> Iterator[Ending]:
    for fact in _made_here(run):
        qualified = fact.detail["of"]
        for argument, at in fact.detail["arguments"].items():
            found = first_release_with(qualified, argument, run, reach_of)
            if found is not None:
                package, release = found
                yield Ending(
                    _early(qualified, argument, f"{CALLED[package]} before {release}"),
                    at,
                    When.SETTINGS,
                )
            elif not _is_told(run, fact, argument):
                why = why_no_field(qualified, argument, run)
                if why is not None:
                    yield Ending(why, at, When.SETTINGS)


def _early(qualified: str, argument: str, before: str) -> str:
    from oomlint.dialects.trainer.arguments import RENAMED_ARGUMENTS  # most runs ask for none

    former = next((each.old for each in RENAMED_ARGUMENTS if each.new == argument), None)
    if former is not None:
        return f"{before} calls {argument} {former}"
    return f"{qualified.rpartition('.')[2]} of {before} has no {argument}"


def _is_told(run: Cells, fact: Fact, argument: str) -> bool:
    """Whether another rule tells of the argument, or what the script imports may give the class further ones."""
    if run.once(_are_patched):
        return True
    call = fact.location
    return any(
        stray.is_refused
        and stray.path == argument
        and stray.block.path == call.path
        and call.span.start <= stray.entry.key_span.start < call.span.end
        for stray in run.strays
    )


def _made_here(run: Cells) -> Iterator[Fact]:
    """Where the switches surely lead."""
    made = run.once(_made)
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


def _are_patched(blocks: list[Block]) -> bool:
    return any(_PATCHES in each.source.text for each in scripts_of(blocks))
