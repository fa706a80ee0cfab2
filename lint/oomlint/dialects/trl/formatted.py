"""Functions that make texts of samples, as releases call them that give them a thousand samples at once.

TRL 0.5 to 0.14 have ``dataset.map(batched=True)`` call ``formatting_func`` (trainer/sft_trainer.py
_prepare_non_packed_dataloader; datasets hands over 1000 rows, ``dataset_batch_size``) and raise where it returns no list. A
list of one text makes one sample of the thousand.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.block import Block
from oomlint.dialects.blocks import facts_of
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.declared_ends import declare_end
from oomlint.dialects.ending import Ending, When
from oomlint.dialects.meaning import Meaning, Said
from oomlint.dialects.setting import unread_at
from oomlint.dialects.trainer.reaching import are_held
from oomlint.dialects.trainer.statements import switches_of
from oomlint.dialects.trl.fields import trl
from oomlint.dialects.trl.releases import ASKS_FOR_LIST, FORMATS_SINGLY
from oomlint.documents.base import Fact
from oomlint.plan.fields import f

formatted = Meaning()

_WHY = "formatting_func returns a text where TRL before 0.15 wants a list of texts"
_FEWER = "formatting_func makes one sample of a thousand: how many there are is not known"


def _formats(blocks: list[Block]) -> tuple[Fact, ...]:
    return tuple(facts_of(blocks, "formats-samples"))


def _raises(run: Cells) -> Ending | None:
    for fact in run.once(_formats):
        told = fact.detail
        if told["gives"] != "text" or not (told["is_sure"] and told["is_plain"]):
            continue
        is_then = run.surely_made(ASKS_FOR_LIST) and run.surely_made(FORMATS_SINGLY) is False
        if (
            is_then
            and not run[trl.packing]
            and are_held(told["guards"], switches_of(run.given.blocks))
        ):
            return Ending(_WHY, fact.location, When.LOADED)
    return None


declare_end(formatted, _raises, source=f"{ASKS_FOR_LIST.source}; {FORMATS_SINGLY.source}")


@formatted.said(trl.rows)
def one_of_many(run: Cells, field: Any, said: Said) -> Said:
    found = [fact for fact in run.once(_formats) if fact.detail["gives"] == "list-of-one"]
    if not found or run[trl.packing] or run.made(FORMATS_SINGLY) is not False:
        return said
    path = found[0].location.path
    block = next(b for b in run.given.blocks if b.document.source.path == path)
    return unread_at(block, "formatting_func", _FEWER, found[0].location.span)


@formatted.override(f.batch.micro)
def of_fewer_samples(run: Cells) -> Any:
    """A micro batch has no more samples than there are."""
    return run[trl.rows]
