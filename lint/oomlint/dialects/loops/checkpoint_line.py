"""The line by which a loop would checkpoint activations that does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping as MappingABC
from typing import TYPE_CHECKING, Any

from oomlint.dialects.block import Block
from oomlint.dialects.loops.keys import (
    CHECKPOINTS_NEW,
)
from oomlint.documents.base import (
    Call,
    Document,
    Mapping,
)
from oomlint.documents.python.loops.loop import InsertionPoint
from oomlint.documents.text import Edit, Span
from oomlint.errors import CannotEdit

if TYPE_CHECKING:
    from oomlint.documents.python.loops.loop import Loop


class LineBlock(Block, frozen=True, eq=False):
    """A line that the script lacks: ``model.gradient_checkpointing_enable()``, behind that which loads
    the model."""

    place: InsertionPoint = InsertionPoint("", 0, "")

    def write(self, values: MappingABC[str, Any]) -> list[Edit]:
        if list(values.values()) != [True]:
            raise CannotEdit("the script does not checkpoint activations")
        newline = self.document.source.newline
        line = f"{newline}{self.place.indent}{self.place.name}.gradient_checkpointing_enable()"
        return [Edit(self.path, self.place.offset, self.place.offset, line)]


def checkpoint_line(document: Document, loop: Loop, calls: tuple[Call, ...]) -> Iterator[Block]:
    """Where the script can checkpoint what it nowhere does. Beside adapters it takes more: inputs that
    ask for gradients, where checkpointing is reentrant."""
    names = {call.callee.rpartition(".")[2] for call in calls}
    if loop.behind_load is None or loop.checkpoints is not None or names & _CHECKPOINTING:
        return
    at = Span(loop.behind_load.offset, loop.behind_load.offset)
    mapping = Mapping(at, {})
    yield LineBlock(document, mapping, CHECKPOINTS_NEW, at, place=loop.behind_load)


_CHECKPOINTING = frozenset(
    {
        "gradient_checkpointing_enable", "get_peft_model", "apply_activation_checkpointing",
        "checkpoint_wrapper", "prepare_model_for_kbit_training", "FullyShardedDataParallelPlugin",
    }
)  # fmt: skip
