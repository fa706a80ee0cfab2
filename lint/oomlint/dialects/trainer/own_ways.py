"""What a trainer of the project's own decides by methods that nothing here follows: nobody knows it.

The values stay what they would be under the library's trainer, and are unread.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.meaning import Meaning, Said
from oomlint.dialects.table import Block, Origin
from oomlint.documents.base import UNKNOWN, Entry, Fact, PythonDocument, Scalar
from oomlint.plan.fields import Private, f

own_ways = Meaning()


class own(Private, prefix="own_trainer"):  # noqa: N801  a namespace of fields, read like ``f``
    """What a method of the trainer's own class decides, each unread where one is not followed."""

    loss: Any
    steps: Any
    evaluation: Any
    optimizer: Any
    batches: Any
    sharding: Any


_ASPECTS = {
    own.loss: "loss",
    own.steps: "steps",
    own.evaluation: "evaluation",
    own.optimizer: "optimizer",
    own.batches: "batches",
    own.sharding: "sharding",
}


@own_ways.said(*_ASPECTS)
def unfollowed_method(run: Cells, field: Any, said: Said) -> Said:
    """The method that decides it, where the script's trainer has one of its own."""
    return run.given.once(_by_aspect).get(_ASPECTS[field], said)


def _by_aspect(blocks: list[Block]) -> MappingABC[str, Origin]:
    found: dict[str, Origin] = {}
    for block in blocks:
        if block.table.section == "trainer" and isinstance(block.document, PythonDocument):
            for fact in block.document.facts:
                if fact.kind == "own-way" and fact.detail["class"] == _called(block):
                    found.setdefault(fact.detail["decides"], _origin(block, fact))
    return found


def _called(block: Block) -> str:
    return block.document.source.text[block.anchor.start : block.anchor.end]


def _origin(block: Block, fact: Fact) -> Origin:
    method = f"{fact.detail['class']}.{fact.detail['method']}"
    what = Entry(method, block.anchor, Scalar(block.anchor, UNKNOWN), block.anchor)
    why = f"{method} is the project's own and not followed"
    return Origin("explicit", block, None, what, source=why)


# What an override reads and does not answer makes its field as weak.


@own_ways.override(f.loss.logits_materialised)
def logits_of_own_loss(run: Cells) -> Any:
    return run[own.loss] or run[own.steps]


@own_ways.override(f.eval.enabled, f.eval.keeps_logits)
def evaluated_by_own(run: Cells) -> Any:
    return run[own.evaluation]


@own_ways.override(f.optimizer.kind)
def made_by_own(run: Cells) -> Any:
    return run[own.optimizer]


@own_ways.override(f.batch.micro)
def batches_of_own(run: Cells) -> Any:
    return run[own.batches] or run[own.steps]


@own_ways.override(f.parallel.backend)
def wrapped_by_own(run: Cells) -> Any:
    return run[own.sharding]
