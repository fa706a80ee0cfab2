"""How a loop trains what it loads: its batches, optimizers, shards, and the call that runs backward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping as MappingABC
from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint.dialects.block import Block
from oomlint.dialects.loops.blocks import COMPUTED, block_of
from oomlint.dialects.loops.checkpoint_line import checkpoint_line
from oomlint.dialects.loops.keys import (
    ACCELERATOR,
    ACCUMULATION_PLUGIN,
    AUTOCAST,
    CAST,
    CENTRE,
    CHECKPOINTS_SET,
    CLASS,
    DATALOADER,
    DDP,
    DEEPSPEED_PLUGIN,
    DEGREES,
    FSDP1,
    FSDP2,
    FSDP_PLUGIN,
    INITIALIZE,
    LENGTHS,
    OFFLOADS,
    OFFLOADS_2,
    OPTIMIZER,
    WRAPS_CHECKPOINTS,
)
from oomlint.dialects.loops.lightning import (
    DDP_STRATEGY,
    DEEPSPEED_STRATEGY,
    FSDP_STRATEGY,
    TRAINER,
)
from oomlint.dialects.loops.models import chosen_last
from oomlint.dialects.loops.wrapping import mixed_precision, with_wrapping
from oomlint.dialects.table import Table
from oomlint.dialects.trainer.reaching import is_reached
from oomlint.documents.base import (
    UNKNOWN,
    Call,
    Document,
    Entry,
    Mapping,
    Node,
    Scalar,
)
from oomlint.documents.text import Span
from oomlint.plan.evidence import Level

if TYPE_CHECKING:
    from oomlint.documents.python.loops.loop import Loop

# Calls that a run has once, by the last name of what they call.
_SINGLE = {
    "Accelerator": ACCELERATOR,
    "GradientAccumulationPlugin": ACCUMULATION_PLUGIN,
    "DeepSpeedPlugin": DEEPSPEED_PLUGIN,
    "FullyShardedDataParallelPlugin": FSDP_PLUGIN,
    "ParallelismConfig": DEGREES,
    "Trainer": TRAINER,
    "Fabric": TRAINER,
    "FSDPStrategy": FSDP_STRATEGY,
    "DeepSpeedStrategy": DEEPSPEED_STRATEGY,
    "DDPStrategy": DDP_STRATEGY,
    "initialize": INITIALIZE,
    "FullyShardedDataParallel": FSDP1,
    "FSDP": FSDP1,
    "fully_shard": FSDP2,
    "DistributedDataParallel": DDP,
    "DDP": DDP,
    "CPUOffload": OFFLOADS,
    "CPUOffloadPolicy": OFFLOADS_2,
    "apply_activation_checkpointing": WRAPS_CHECKPOINTS,
    "checkpoint_wrapper": WRAPS_CHECKPOINTS,
}


def how_trained(
    document: Document, loop: Loop, calls: tuple[Call, ...], options: MappingABC[str, Node]
) -> Iterator[Block]:
    if loop.batches is not None:
        yield block_of(document, loop.batches, DATALOADER)
    for optimizer in _optimizers(loop, options):
        yield block_of(document, optimizer, OPTIMIZER)
    yield from (block_of(document, call, CAST) for call in loop.casts)
    yield from checkpoint_line(document, loop, calls)
    if loop.checkpoints is not None:
        said = loop.checkpoints
        mapping = Mapping(said.span, {said.key: said}, locked=COMPUTED)
        yield Block(document, mapping, CHECKPOINTS_SET, said.span)
    yield from (block_of(document, call, AUTOCAST) for call in loop.autocasts[:1])
    for call, table in _last_of_each(loop, calls, options):
        if table in (FSDP1, FSDP2, FSDP_STRATEGY, FSDP_PLUGIN):
            call = with_wrapping(document, call, calls)
        elif table in (INITIALIZE, DEEPSPEED_PLUGIN):
            call = _with_config(call, loop)
        yield block_of(document, call, table)
    yield from mixed_precision(document, calls)
    yield _centre(document, loop)


def _last_of_each(
    loop: Loop, calls: tuple[Call, ...], options: MappingABC[str, Node]
) -> Iterable[tuple[Call, Table]]:
    """Of the calls that a loop needs once, the last one of each kind that the options reach."""
    last: dict[int, tuple[Call, Table]] = {}
    for call in calls:
        table = _SINGLE.get(call.callee.rpartition(".")[2])
        if table is None or (table is INITIALIZE and "deepspeed" not in call.callee):
            continue
        if table is TRAINER and loop.kind not in ("fabric", "lightning"):
            continue
        if call.span in loop.idle_plugins:
            continue
        earlier = last.get(id(table))
        if earlier is None or is_reached(call.arguments, options):
            last[id(table)] = (call, table)
    return last.values()


def _with_config(call: Call, loop: Loop) -> Call:
    """A call of DeepSpeed with the file that its config is read from, or with what is in it."""
    said = loop.engine_config
    if said is None:
        return call
    entries = dict(call.arguments.entries)
    for key in ("hf_ds_config", "config", "config_params"):
        if key in entries:
            entries[key] = replace(entries[key], value=said)
    return replace(call, arguments=replace(call.arguments, entries=entries))


def told_lengths(document: Document, loop: Loop) -> Iterator[Block]:
    """The one value that is named for the length of samples."""
    places = {entry.value.span for entry in loop.lengths}
    if len(places) == 1:
        entry = loop.lengths[0]
        mapping = Mapping(entry.span, {entry.key.lower(): entry}, locked=COMPUTED)
        yield Block(document, mapping, LENGTHS, entry.span, level=Level.ASSUMED)


def _optimizers(loop: Loop, options: MappingABC[str, Node]) -> list[Call]:
    """The optimizers that may be made, the one that the switches lead to last; a stand-in for the one of
    a DeepSpeed config first."""
    chosen = chosen_last(loop.optimizers, options)
    return sorted(chosen, key=lambda call: not call.callee.endswith("DummyOptim"))


def _centre(document: Document, loop: Loop) -> Block:
    span = loop.centre.span
    name = loop.centre.callee
    entries: dict[str, Entry] = {}
    if not loop.name:
        entries[CLASS] = Entry(name, span, Scalar(span, loop.kind, locked=COMPUTED), span)
        entries["joins"] = Entry("joins", span, Scalar(span, loop.joins), span)
        entries["evaluates"] = Entry("evaluates", span, Scalar(span, loop.evaluates), span)
    if loop.accumulation is not None:
        said = loop.accumulation
        entries["steps"] = Entry("steps", said.span, said, said.span)
    if loop.outputs_kept is not None:
        entries["outputs"] = Entry("outputs", span, Scalar(span, loop.outputs_kept), span)
        last = Scalar(span, loop.outputs_last)
        entries["outputs_last"] = Entry("outputs_last", span, last, span)
    # Lightning clears them when training_step is through (lightning 2.5 loops/optimization/automatic.py Closure.closure).
    if loop.clears_late or loop.kind == "lightning":
        entries["clears"] = Entry("zero_grad", span, Scalar(span, True), span)
    if loop.narrow_logits:
        entries["narrow"] = Entry("cross_entropy", span, Scalar(span, True), span)
    if loop.ranks is not None:
        entries["ranks"] = Entry("WORLD_SIZE", loop.ranks.span, loop.ranks, loop.ranks.span)
    unread: dict[str, Span | None] = {
        "loss": span if loop.own_loss else None,
        "frozen": loop.frozen if loop.trained_by_name is None else None,
        "split": loop.splits_samples,
    }
    for key, at in unread.items():
        if at is not None:
            word = document.source.text[at.start : at.end].partition("(")[0]
            entries[key] = Entry(word, at, Scalar(at, UNKNOWN), at)
    if loop.trained_by_name is not None:
        said = loop.trained_by_name
        entries["trained"] = Entry("requires_grad", said.span, said, said.span)
    return Block(document, Mapping(span, entries, locked=COMPUTED), CENTRE, span)
