"""Arguments that a script makes training arguments or a trainer with and that no release has which may run: Python raises a
``TypeError``.

Certain only where no release that the project allows has them (:mod:`oomlint.dialects.library_tables`), among those that its
class only has in later releases, had in earlier ones, or never had. Where the newest release lacks them and nothing keeps it from
running, an installation of today ends there. A key that a table does not know at all, or lists as another's former name, is one
of which another rule tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from oomlint.dialects.block import Block
from oomlint.dialects.blocks import facts_of, scripts_of
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.declared_ends import declare_end
from oomlint.dialects.ending import Ending, When
from oomlint.dialects.library_tables import (
    CALLED,
    ReachIn,
    fields_of,
    first_release_with,
    newest_reach_of,
    reach_of,
    why_no_field,
)
from oomlint.dialects.meaning import Meaning
from oomlint.documents.base import Fact
from oomlint.plan.library_changes import release_of

refused_arguments = Meaning()

_SOURCE = "fields of the libraries' classes of arguments and arguments of their trainers, release by release"

# transformers 4.46.0 trainer.py, TRL 0.12.0 trainer/sft_trainer.py: what trainers call otherwise since.
_CALLED_NOW = {"tokenizer": "processing_class"}
# Importing it puts classes with further arguments in the place of TRL's (unsloth 2025.6.1 models/rl.py:119).
_PATCHES = "unsloth"


def _first(run: Cells, reach_in: ReachIn) -> Ending | None:
    """``TrainingArguments(eval_strategy="no")`` under transformers 4.38, ``SFTTrainer(tokenizer=tokenizer)`` under TRL 0.24."""
    return next(_refused(run, reach_in), None)


declare_end(refused_arguments, lambda run: _first(run, reach_of), source=_SOURCE)
declare_end(
    refused_arguments, lambda run: _first(run, newest_reach_of), source=_SOURCE, lately=True
)


def _refused(run: Cells, reach_in: ReachIn) -> Iterator[Ending]:
    made = tuple(_made_here(run))
    if not made or run.once(_are_patched):
        return
    for fact in made:
        qualified = fact.detail["of"]
        for argument, at in fact.detail["arguments"].items():
            if _is_stray(run, fact, argument) or _is_renamed(run, at.path, argument, reach_in):
                continue
            found = first_release_with(qualified, argument, run, reach_in)
            if found is not None:
                package, release = found
                before = f"{CALLED[package]} before {release}"
                yield Ending(_early(qualified, argument, before), at, When.SETTINGS)
                continue
            why = why_no_field(qualified, argument, run, reach_in)
            if why is not None:
                instead = _instead(qualified, argument, run)
                yield Ending(f"{why}{instead}", at, When.SETTINGS)


def _early(qualified: str, argument: str, before: str) -> str:
    from oomlint.dialects.trainer.arguments import RENAMED_ARGUMENTS  # most runs ask for none

    former = next((each.old for each in RENAMED_ARGUMENTS if each.new == argument), None)
    if former is not None:
        return f"{before} calls {argument} {former}"
    return f"{qualified.rpartition('.')[2]} of {before} has no {argument}"


def _instead(qualified: str, argument: str, run: Cells) -> str:
    """Where the newest release that may run has what a trainer takes no more, in words: under another name, or in its config."""
    package, _, name = qualified.partition(".")
    stem = name.rpartition(".")[2].removesuffix("Trainer")
    now = _CALLED_NOW.get(argument)
    if now is not None and now in (fields_of(qualified, run, newest_reach_of) or {}):
        return f": it is {now} now"
    config = f"{stem}Config"
    is_there = stem and argument in (fields_of(f"{package}.{config}", run, newest_reach_of) or {})
    return f": {config} takes it" if is_there and name.endswith("Trainer") else ""


def _is_stray(run: Cells, fact: Fact, argument: str) -> bool:
    """Whether another rule tells of the argument as one that no table knows."""
    call = fact.location
    return any(
        stray.is_refused
        and stray.path == argument
        and stray.block.path == call.path
        and call.span.start <= stray.entry.key_span.start < call.span.end
        for stray in run.strays
    )


def _is_renamed(run: Cells, path: str, argument: str, reach_in: ReachIn) -> bool:
    """Whether the rule on former names tells of it: as an error where a file pins a release that has the new one."""
    library, _, release = run.once(_former_names).get((path, argument), "").rpartition(" ")
    if not library or reach_in is newest_reach_of:
        return bool(library)
    pinned = run.version(library.lower())
    return pinned is not None and pinned >= (release_of(release) or ())


def _former_names(blocks: list[Block]) -> Mapping[tuple[str, str], str]:
    """Path and name of each argument that has another name since a release, and which."""
    return {
        (block.path, key.path): renaming.since
        for block in blocks
        for key, renaming in block.renamed()
    }


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
