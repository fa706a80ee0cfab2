"""How long samples are that a script puts together by code of its own.

TRL leaves them as they are where it is told so (TRL f2cd5771 trainer/sft_trainer.py:
``dataset_kwargs={"skip_prepare_dataset": True}``, as for images), so that its ``max_length`` cuts
nothing: what the script's own collator makes of them is known when it runs. So is what a program does that no file
names, with samples of pictures, for which TRL had no collator until 0.22.
"""

from __future__ import annotations

import re
from typing import Any

from oomlint.dialects.block import Block
from oomlint.dialects.blocks import facts_of
from oomlint.dialects.cells import Cells
from oomlint.dialects.entries import plain_value
from oomlint.dialects.meaning import Meaning, Said
from oomlint.dialects.setting import Origin, unread_at
from oomlint.dialects.trainer.fields import script
from oomlint.dialects.trainer.statements import options_of
from oomlint.dialects.trl.keys import TRL
from oomlint.dialects.trl.objectives import objective_of_run
from oomlint.dialects.trl.releases import COLLATES_PICTURES, TAKES_TOKENS
from oomlint.documents.base import DataDocument, Document, Entry
from oomlint.plan.fields import f

collators = Meaning()

_UNNAMED = "no file names the program, which may put samples with pictures together by itself"
_NAME = re.compile(r"[A-Za-z_]\w*")
_DEFINED = re.compile(r"^[ \t]*(?:class|(?:async[ \t]+)?def)[ \t]+(\w+)", re.MULTILINE)


@collators.said(script.own_lengths)
def puts_samples_together(run: Cells, field: Any, said: Said) -> Said:
    own = run.once(_own_collator)
    return own if own is not None else _of_unnamed_program(run)


@collators.override(f.seq.max_len)
def length_of_own_samples(run: Cells) -> Any:
    """The limit that the arguments name stays, as what somebody says of them, but of samples that the script has padded to
    fewer tokens: TRL makes none of those that have some (0.9.6, 0.12 and f2cd5771 trainer/sft_trainer.py: ``"input_ids" in
    column_names``)."""
    run[script.own_lengths]
    return _padded_to(run)


@collators.override(f.seq.pad)
def pads_own_samples(run: Cells) -> Any:
    return "max_len" if _padded_to(run) else None


def _padded_to(run: Cells) -> int | None:
    """The length to which a script pads all samples before SFTTrainer gets them, where that cuts them no more."""
    limit = run.base(f.seq.max_len)
    found = run.once(_padding)
    if found is None or limit is None or run.base(f.seq.pad) != "longest":
        return None
    if objective_of_run(run) != "sft" or not run.has(TAKES_TOKENS, noted=False):
        return None
    given = run.once(options_of).get(found["option"])
    length = found["length"] if given is None else plain_value(given, "yaml12")
    is_length = isinstance(length, int) and not isinstance(length, bool)
    return length if is_length and 0 < length <= limit else None


def _padding(blocks: list[Block]) -> dict[str, Any] | None:
    found = [fact.detail for fact in facts_of(blocks, "pads-samples")]
    return dict(found[0]) if len(found) == 1 else None


def _own_collator(blocks: list[Block]) -> Origin | None:
    """Where the trainer is given a collator that the script itself defines, for samples that TRL
    does not prepare."""
    if not any(_is_left_alone(block) for block in blocks):
        return None
    for block in blocks:
        entry = block.find("data_collator") if block.table.section == "trainer" else None
        if entry is not None and _is_defined_in(block.document, entry):
            return Origin("explicit", block, None, entry)
    return None


def _of_unnamed_program(run: Cells) -> Origin | None:
    """The length in a file for a program that nobody names, where samples have pictures."""
    blocks = run.given.blocks
    if not all(isinstance(block.document, DataDocument) for block in blocks):
        return None
    if objective_of_run(run) not in (None, "sft") or run.made(COLLATES_PICTURES):
        return None
    dims = run[f.model.dims]
    if dims is None or dims.vision is None:
        return None
    return run.once(_length_in_file)


def _length_in_file(blocks: list[Block]) -> Origin | None:
    for block in blocks:
        entry = block.find("max_length") or block.find("max_seq_length")
        if block.table is TRL and entry is not None:
            return unread_at(block, entry.key, _UNNAMED, entry.value.span)
    return None


def _is_left_alone(block: Block) -> bool:
    entry = block.find("dataset_kwargs.skip_prepare_dataset")
    return entry is not None and block.value(entry.value) is True


def _is_defined_in(document: Document, entry: Entry) -> bool:
    text = document.source.text
    span = entry.value.span
    name = _NAME.match(text, span.start, span.end)
    return name is not None and name[0] in _DEFINED.findall(text)
