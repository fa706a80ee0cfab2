"""Options that programs and forks of Megatron add to its parser: nothing here follows what they do.

What they speak of by their words is not known: ``--mask-only`` trains less than the model, as ``--freeze-LM`` does
(Megatron-LM d98e8a64 examples/multimodal/multimodal_args.py), ``--load-teacher`` puts another one beside it
(Megatron-DeepSpeed 4efb479d megatron/arguments.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.entries import plain_value
from oomlint.dialects.meaning import Meaning, Said
from oomlint.dialects.megatron.keys import MEGATRON
from oomlint.dialects.setting import Origin
from oomlint.documents.base import Entry
from oomlint.plan.fields import f

own_options = Meaning()

_ABOUT: Mapping[Any, frozenset[str]] = {
    f.trainable.method: frozenset(
        "freeze frozen unfreeze only trainable tunable lora adapter peft".split()
    ),
    f.objective.ref_model: frozenset({"teacher"}),
}


@own_options.said(*_ABOUT)
def unknown_option(run: Cells, field: Any, said: Said) -> Said:
    if said is None:
        for block, entry in run.once(_own):
            if _ABOUT[field] & set(entry.key.replace("-", "_").lower().split("_")):
                return Origin("explicit", block, None, entry)
    return said


def _own(blocks: list[Block]) -> tuple[tuple[Block, Entry], ...]:
    return tuple(_strangers(blocks))


def _strangers(blocks: list[Block]) -> Iterator[tuple[Block, Entry]]:
    """The options of a command that are of no release's own parser, or freeze a part, and are not switched off."""
    for block in blocks:
        if block.table is not MEGATRON:
            continue
        strays = [stray.entry for stray in block.read().stray]
        freezing = [e for e in block.mapping.entries.values() if e.key.startswith("freeze_")]
        for entry in (*strays, *freezing):
            value = plain_value(entry.value, block.table.loader)
            if value not in (False, "False", "false", 0, "0", None, ""):
                yield block, entry
