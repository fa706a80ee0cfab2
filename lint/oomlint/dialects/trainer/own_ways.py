"""What a trainer of the project's own decides by methods that nothing here follows: nobody knows it.

The values stay what they would be under the library's trainer, and are unread.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from typing import Any

from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.meaning import Meaning, Said
from oomlint.dialects.setting import Origin, unread_at
from oomlint.documents.base import Fact, PythonDocument, Scalar, Sequence
from oomlint.plan.fields import Private, f

own_ways = Meaning()


class own(Private, prefix="own_trainer"):  # noqa: N801  a namespace of fields, read like ``f``
    """What a method of the trainer's own class decides, each unread where one is not followed. ``arguments``: what is
    unpacked into the training arguments."""

    loss: Any
    steps: Any
    evaluation: Any
    optimizer: Any
    batches: Any
    sharding: Any
    arguments: Any


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
    if field == own.sharding and run.known.unlinked_config:
        return Origin("explicit", run.blocks[-1], None, None, source=run.known.unlinked_config)
    return run.once(_by_aspect).get(_ASPECTS[field], said)


def _by_aspect(blocks: list[Block]) -> MappingABC[str, Origin]:
    found: dict[str, Origin] = {}
    for block in blocks:
        if block.table.section == "trainer" and isinstance(block.document, PythonDocument):
            for fact in block.document.facts:
                if fact.kind == "own-way" and fact.detail["class"] == _called(block):
                    found.setdefault(fact.detail["decides"], _of_method(block, fact))
            if _gives_optimizer(block):
                made = unread_at(block, "optimizers", "the script makes the optimizer itself")
                found.setdefault("optimizer", made)
    return found


def _of_method(block: Block, fact: Fact) -> Origin:
    name, package = fact.detail["class"], fact.detail.get("of")
    if package:
        return unread_at(block, name, f"what {name} of {package} does is not followed")
    return _not_followed(block, fact.detail.get("model") or f"{name}.{fact.detail['method']}")


def _called(block: Block) -> str:
    return block.document.source.text[block.anchor.start : block.anchor.end]


def _gives_optimizer(block: Block) -> bool:
    """``Trainer(optimizers=(optimizer, scheduler))`` (transformers 5.23 trainer.py __init__)."""
    entry = block.mapping.entries.get("optimizers")
    if entry is None:
        return False
    is_pair = isinstance(entry.value, Sequence) and bool(entry.value.items)
    first = entry.value.items[0] if is_pair and isinstance(entry.value, Sequence) else entry.value
    return not (isinstance(first, Scalar) and first.value is None)


def _not_followed(block: Block, what: str) -> Origin:
    return unread_at(block, what, f"{what} is the project's own and not followed")


# -- training arguments that are unpacked ------------------------------------------------------------


@own_ways.said(own.arguments)
def unpacked(run: Cells, field: Any, said: Said) -> Said:
    """``TrainingArguments(**settings)`` of which the file does not tell what the settings are."""
    block = run.once(_open_call)
    if block is None:
        return said
    name = _called(block)
    return unread_at(block, name, f"what is unpacked into {name} is not followed")


def _open_call(blocks: list[Block]) -> Block | None:
    calls = (b for b in blocks if b.table.section == "training" and b.mapping.open_ended)
    return next((block for block in calls if isinstance(block.document, PythonDocument)), None)


def _left_to_unpacked(blocks: list[Block]) -> frozenset[Any]:
    block = _open_call(blocks)
    return frozenset() if block is None else frozenset(row.field for row in block.table.rows)


@own_ways.said(unsaid=_left_to_unpacked)
def perhaps_unpacked(run: Cells, field: Any, said: Said) -> Said:
    """What the call may be given so is as weak, whatever holds if it is not."""
    if said is None and field in run.once(_left_to_unpacked):
        run[own.arguments]
    return said


# -- what follows ------------------------------------------------------------------------------------


@own_ways.override(f.loss.logits_materialised)
def logits_of_own_loss(run: Cells) -> Any:
    return run[own.loss] or run[own.steps]


own_ways.weakens(own.evaluation, f.eval.enabled, f.eval.keeps_logits)
own_ways.weakens(own.optimizer, f.optimizer.kind)


@own_ways.override(f.batch.micro)
def batches_of_own(run: Cells) -> Any:
    return run[own.batches] or run[own.steps]


own_ways.weakens(
    own.sharding, f.parallel.backend, f.parallel.zero.stage, f.offload.optimizer, f.offload.params
)
