"""Scripts that train in a loop of their own: with accelerate, DeepSpeed, Lightning or plain torch.

What starts them is read with the options of any script (:mod:`oomlint.dialects.trainer.dialect`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from msgspec.structs import replace

from oomlint.dialects.base import Claim, Dialect
from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.declared import declares_own
from oomlint.dialects.common.fields import ref
from oomlint.dialects.loops.meaning import meaning
from oomlint.dialects.loops.script import loop_claim, part_claims
from oomlint.dialects.trainer.keys import SCRIPT_OPTIONS, TRAINER
from oomlint.dialects.trainer.tables import FROM_PRETRAINED
from oomlint.documents import PYTHON_SUFFIXES
from oomlint.documents.base import Document


class Loops(Dialect):
    name = "loop"
    markers: ClassVar[tuple[bytes, ...]] = (
        b".backward(", b".fit(", b"def training_step(", b"def train_dataloader(",
    )  # fmt: skip
    markers_prove = False
    suffixes = PYTHON_SUFFIXES
    only_marked = PYTHON_SUFFIXES
    references = {ref.deepspeed: "deepspeed"}
    launcher_may_shard = True
    reads_programs = True
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        claim = loop_claim(self, document)
        if claim is not None:
            yield claim
        yield from part_claims(self, document)

    def trains(self, run: Cells) -> bool:
        """A class of another file that Lightning is given may train anything: it is a run of ours where that file
        loads a model that can be named."""
        return run.has_block_of(FROM_PRETRAINED)

    def layered(self, claims: Sequence[Claim]) -> Iterable[Block]:
        """What a parser of the script's own declares is what the script makes of it, though it be called
        as the Trainer's options are."""
        blocks = tuple(super().layered(claims))
        is_own = declares_own(blocks)
        for block in blocks:
            yield (
                replace(block, table=SCRIPT_OPTIONS) if is_own and block.table is TRAINER else block
            )
