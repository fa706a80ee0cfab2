"""What is certain to end a program before it trains, whatever the framework: part of every run."""

from __future__ import annotations

from typing import Any

from oomlint.dialects.block import Block
from oomlint.dialects.blocks import documents_of, facts_of
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.clashing_libraries import clashing_libraries
from oomlint.dialects.common.declared_ends import declare_end
from oomlint.dialects.common.fields import shared
from oomlint.dialects.common.gone_keys import gone_keys
from oomlint.dialects.common.refused_arguments import refused_arguments
from oomlint.dialects.common.refused_options import refused_options
from oomlint.dialects.ending import Ending, When
from oomlint.dialects.library_tables import (
    CALLED,
    ReachIn,
    likely_reach_of,
    reach_of,
    why_no_name,
)
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.meaning import Meaning, Sourced
from oomlint.documents import kind_of
from oomlint.documents.base import Fact
from oomlint.plan.library_changes import LibraryChange

_NAMES = "names of libraries, release by release"
endings = Meaning(refused_options, gone_keys, refused_arguments, clashing_libraries)
_TAKES_ONE_CONFIG = LibraryChange(
    "deepspeed", (0, 9), "deepspeed.initialize takes a config beside that of its arguments",
    "DeepSpeed 0.8.3 and 0.9.0 deepspeed/__init__.py initialize",
)  # fmt: skip


@endings.derive(shared.refused)
def ends_early(run: Cells) -> Any:
    """By what its own code makes certain, where the switches lead there."""
    found = run.once(_ends)
    if not found:
        return None
    from oomlint.dialects.trainer.reaching import are_held  # most programs end in no such way
    from oomlint.dialects.trainer.statements import switches_of

    switches = switches_of(run.given.blocks)
    held = (each for each in found if are_held(each.detail["guards"], switches))
    by_path = run.once(_started_by_path)
    for fact in held:
        if (
            fact.detail.get("refused_by") == "deepspeed"
            and run.surely_made(_TAKES_ONE_CONFIG) is False
        ):
            continue
        if not fact.detail.get("by_path") or fact.location.path in by_path:
            return Sourced(fact.detail["why"], fact.location.path)
    return None


def _first_gone(run: Cells, reach_in: ReachIn) -> Ending | None:
    """``from trl import DataCollatorForCompletionOnlyLM``, ``from torch.distributed.fsdp import fully_shard``: no release
    that may run has it."""
    for fact in run.once(_takes):
        module = str(fact.detail["module"])
        package = module.partition(".")[0]
        reach = reach_in(run, package) if package in CALLED else None
        for name in fact.detail["names"] if reach is not None else ():
            assert reach is not None
            why = why_no_name(module, name, reach)
            if why is not None:
                return Ending(why, fact.location, When.SETTINGS)
    return None


declare_end(endings, lambda run: _first_gone(run, reach_of), source=_NAMES)
declare_end(endings, lambda run: _first_gone(run, likely_reach_of), source=_NAMES, lately=True)
# An import of the project's own that fails from where the command starts the script.
declare_end(endings, lambda run: run.known.ending(), source="CPython: sys.path[0], importlib")


def _ends(blocks: list[Block]) -> tuple[Fact, ...]:
    return tuple(facts_of(blocks, "ends-early"))


def _takes(blocks: list[Block]) -> tuple[Fact, ...]:
    return tuple(facts_of(blocks, "takes-names"))


def _started_by_path(blocks: list[Block]) -> frozenset[str]:
    """Display paths of the scripts that a command of the run starts as files, and of notebooks."""
    documents = documents_of(blocks)
    anchors = {block.anchor for block in blocks}
    scripts = tuple(
        f"/{launch.script.removeprefix('./').replace('../', '')}"
        for document in documents
        for launch in launches(document)
        if launch.anchor in anchors and launch.script is not None
    )
    paths = (document.source.path for document in documents)
    return frozenset(
        path for path in paths if kind_of(path) == ".ipynb" or f"/{path}".endswith(scripts)
    )
