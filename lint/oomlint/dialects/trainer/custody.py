"""What touches a model between its load and its training, and was not followed: nobody knows what it decides.

The values stay what they would be without it, and are unread.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from typing import Any

from oomlint.dialects.block import Block
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.meaning import Meaning, Said, Sourced
from oomlint.dialects.setting import Origin, unread_at
from oomlint.dialects.trainer.reaching import are_held
from oomlint.dialects.trainer.statements import leads_there, switches_of
from oomlint.documents.base import Fact, Node, PythonDocument
from oomlint.plan.fields import Private, f

custody = Meaning()


class held(Private, prefix="model_custody"):  # noqa: N801  a namespace of fields, read like ``f``
    """What is done to the model on its way, each unread where that is not accounted for."""

    trainable: Any
    dtype: Any
    quantization: Any
    checkpointing: Any
    attention: Any
    loss: Any
    sharding: Any


_ASPECTS = {
    held.trainable: "trainable",
    held.dtype: "dtype",
    held.quantization: "quantization",
    held.checkpointing: "checkpointing",
    held.attention: "attention",
    held.loss: "loss",
    held.sharding: "sharding",
}


@custody.said(*_ASPECTS)
def unaccounted(run: Cells, field: Any, said: Said) -> Said:
    return of_unaccounted(run, _ASPECTS[field])


def of_unaccounted(run: Cells, aspect: str) -> Origin | None:
    """The first statement that may decide something about the model, and is not followed."""
    return run.once(_by_aspect).get(aspect)


def _by_aspect(blocks: list[Block]) -> MappingABC[str, Origin]:
    found: dict[str, Origin] = {}
    switches = switches_of(blocks)
    for block, fact in _about_model(blocks):
        if fact.kind == "unaccounted" and are_held(fact.detail["guards"], switches):
            origin = _origin(block, fact)
            for aspect in fact.detail["decides"]:
                found.setdefault(aspect, origin)
        elif fact.kind == "casts-model" and _is_open(fact, switches):
            why = "whether the model is cast, and to what, is known only when it runs"
            found.setdefault("dtype", _origin(block, fact, "model", why))
    return found


def _leads(fact: Fact, switches: MappingABC[str, Node]) -> bool | None:
    """Whether the program comes to a cast; ``None`` where only running tells it."""
    guards = fact.detail["guards"]
    led = leads_there(fact.detail["choices"], switches)
    if led is False or not are_held(guards, switches):
        return False
    return None if led is None or any(name not in switches for name, _ in guards) else True


def _is_open(fact: Fact, switches: MappingABC[str, Node]) -> bool:
    """Whether it is not known that a model is cast, or to what."""
    leads = _leads(fact, switches)
    return leads is None or (leads and fact.detail["dtype"] is None)


def _about_model(blocks: list[Block]) -> list[tuple[Block, Fact]]:
    """The facts of the model that a run trains, each with the block of its trainer or its loop."""
    return [
        (block, fact)
        for block in blocks
        if isinstance(block.document, PythonDocument)
        for fact in block.document.facts
        if fact.kind in ("unaccounted", "casts-model") and fact.detail["class"] == _centre(block)
    ]


def _centre(block: Block) -> str | None:
    """The trainer's class that a block is the call of; nothing of a loop of the script's own."""
    if block.table.section == "trainer":
        return block.document.source.text[block.anchor.start : block.anchor.end]
    return "" if block.table.name == "training loop" else None


def _origin(block: Block, fact: Fact, what: str = "", why: str = "") -> Origin:
    name, home = what or fact.detail["what"], fact.detail.get("home", "")
    if not why and home:
        why = f"{name} decides it in {home}"
    elif not why:
        why = f"{name} is not followed" if " " in name else f"what {name} does is not followed"
    return unread_at(block, name, why, fact.location.span)


# -- the dtype of a model that is cast ---------------------------------------------------------------


@custody.override(f.load.dtype)
def cast(run: Cells) -> Any:
    """``model.half()``, where the switches around it lead there; quantized weights refuse it (transformers 5.23
    modeling_utils.py half)."""
    found = run.once(_casts)
    if not found:
        return run[held.dtype]
    if run[f.quant.method] in ("bnb4", "bnb8"):
        return None
    switches = switches_of(run.given.blocks)
    reached = [each for each in found if _leads(each, switches) is not False]
    dtype = reached[-1].detail["dtype"] if reached else None
    if dtype is None or _leads(reached[-1], switches) is None:
        return run[held.dtype]
    return Sourced(dtype, f"{reached[-1].location.path} casts the model")


def _casts(blocks: list[Block]) -> tuple[Fact, ...]:
    return tuple(
        fact
        for block, fact in _about_model(blocks)
        if fact.kind == "casts-model" and block.table.section == "trainer"
    )


# -- what follows ------------------------------------------------------------------------------------


@custody.override(f.trainable.method)
def trained(run: Cells) -> Any:
    """PEFT freezes all but adapters by itself, whatever was frozen before."""
    return None if is_adapter_run(run) else run[held.trainable]


custody.weakens(held.quantization, f.quant.method)
custody.weakens(held.checkpointing, f.checkpointing.mode)
custody.weakens(held.attention, f.model.attn_impl)
# A context or a wrapper that may part the model among the processes.
custody.weakens(held.sharding, f.parallel.backend)
custody.weakens(held.loss, f.loss.logits_materialised)
