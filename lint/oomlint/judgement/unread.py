"""What was not read of a run, in words for the person who can say it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from oomlint.dialects.common.fields import shared
from oomlint.dialects.machine.launch import place
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.setting import Origin
from oomlint.documents.base import PythonDocument
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

if TYPE_CHECKING:
    from oomlint.runs.run import Run

# What ends a program before its first step.
ENDS = (shared.refused, shared.stops)
ELSEWHERE = shared.other_cards
"""That it is for other cards than those of the machine: how many of these it drives is no matter then."""

WHOLE = (*ENDS, shared.said_to_run)
"""Of these why a prediction counts for nothing is a sentence of its own."""

# ``$TP``, ``${TP}`` and ``${TP:-8}``, but not ``${oc.env:TP}`` or ``$(nproc)``.
_VARIABLE = r"\$(?:\{([A-Za-z_]\w*|\d)(?::?[-=?+][^}]*)?\}|([A-Za-z_]\w*|\d))"


def in_words(run: Run, field: Any) -> str:
    """Why a field that was not read is not known: ``$TP has no value``,
    ``--freeze_llm of finetune.py is not followed``."""
    lost = lost_with_all(run, field)
    if lost:
        return lost
    if field == f.model.id and run.plan.model.id is not None:
        return f"there is no config.json of {run.plan.model.id} here"
    origin = run.origin(field)
    if origin is None or origin.block is None or origin.entry is None:
        return (origin.source if origin is not None else "") or f"{run.key(field)} is not known"
    if origin.block.level is Level.UNREAD:
        return "no file says for certain how it is started"
    return origin.source or _of_option(run, field, origin) or _of_value(run, field, origin)


def lost_with_all(run: Run, field: Any) -> str:
    """Why all of the file, or the program, was not read that says a field, or why it never gets to need memory; empty
    where the field alone was not."""
    if field in ENDS:
        said = run.settings.get(field)
        return "" if said is None else f"{said.value}: the program ends before its first step"
    if field in run.parts.changed:
        return run.parts.changed[field]
    if field == shared.other_cards:
        said = run.settings.get(field)
        return "" if said is None else str(said.value)
    if field == shared.said_to_run:
        from oomlint.judgement.contradicted import contradiction  # of few runs is anything said

        return contradiction(run)
    origin = run.origin(field)
    if origin is None or origin.block is None:
        return ""
    if origin.block.doubt:
        return origin.block.doubt
    return run.parts.unread_program if origin.source == run.parts.unread_program else ""


def unread_program(run: Run) -> str:
    """Why it is not known what the program does that a command starts, in words; empty where it was read, where a
    profile tells, and where it is a library's own."""
    if not run.parts.unread_program:
        return ""
    from oomlint.dialects.trainer.unfollowed import (
        of_unread_program,  # most programs are read, and others do not wait for the tables
    )

    return run.parts.unread_program if of_unread_program(run.cells) is not None else ""


def _of_option(run: Run, field: Any, origin: Origin) -> str | None:
    """What a command line hands to a program that nothing here follows, or the word that starts it
    out of sight."""
    block, entry = origin.block, origin.entry
    assert block is not None
    assert entry is not None
    row = origin.row
    if row is not None and (row.field == field or run.settings.get(row.field) is None):
        return None
    if entry.key_span == entry.value.span and isinstance(block.document, PythonDocument):
        return f"{entry.key} is called in a branch that only running takes"
    if entry.key_span == entry.value.span:
        return f"how many processes {entry.key} starts is not said here"
    started = (each for each in launches(block.document) if place(each.program) == block.anchor)
    launch = next(started, None)
    if launch is None:
        return None
    program = str(launch.program.value).replace("\\", "/").rpartition("/")[2]
    return f"--{entry.key} of {program} is not followed"


def _of_value(run: Run, field: Any, origin: Origin) -> str:
    assert origin.block is not None
    assert origin.entry is not None
    text, span = origin.block.document.source.text, origin.entry.value.span
    written = " ".join(text[span.start : span.end].split())
    variable = re.search(_VARIABLE, written)
    if variable is not None:
        name = variable[1] or variable[2]
        why = "is known only when the script runs" if name.isdigit() else "has no value"
        return f"${name} {why}"
    location = origin.location
    where = "" if location is None else f" in {location.path}:{run.line_of(location)}"
    return f"{run.key(field)}{where} is known only when it runs"
