"""How long samples are that a script puts together by code of its own.

TRL leaves them as they are where it is told so (TRL f2cd5771 trainer/sft_trainer.py:
``dataset_kwargs={"skip_prepare_dataset": True}``, as for images), so that its ``max_length`` cuts
nothing: what the script's own collator makes of them is known when it runs.
"""

from __future__ import annotations

import re
from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.meaning import Meaning, Said
from oomlint.dialects.table import Block, Origin
from oomlint.dialects.trainer.fields import script
from oomlint.documents.base import Document, Entry
from oomlint.plan.fields import f

collators = Meaning()

_NAME = re.compile(r"[A-Za-z_]\w*")
_DEFINED = re.compile(r"^[ \t]*(?:class|(?:async[ \t]+)?def)[ \t]+(\w+)", re.MULTILINE)


@collators.said(script.own_lengths)
def puts_samples_together(run: Cells, field: Any, said: Said) -> Said:
    return run.given.once(_own_collator)


@collators.override(f.seq.max_len)
def length_of_own_samples(run: Cells) -> Any:
    """The limit that the arguments name stays, as what somebody says of them."""
    run[script.own_lengths]
    return None


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


def _is_left_alone(block: Block) -> bool:
    entry = block.find("dataset_kwargs.skip_prepare_dataset")
    return entry is not None and block.value(entry.value) is True


def _is_defined_in(document: Document, entry: Entry) -> bool:
    text = document.source.text
    span = entry.value.span
    name = _NAME.match(text, span.start, span.end)
    return name is not None and name[0] in _DEFINED.findall(text)
