"""FSDP's units: the modules whose parameters are gathered together, and their sizes."""

from __future__ import annotations

from msgspec import Struct

from oomlint.memory.facts import Facts, batchless
from oomlint.memory.parameters import DecoderBlock, padded, padded_adapter, padded_block
from oomlint.memory.states import IN_BUFFERS, expert_split, quantised_bytes


class Units(Struct, frozen=True):
    """Elements of FSDP's units on one rank before sharding, padded where FSDP2 pads.

    ``tail`` is the last norm with the output projection, ``root`` what stays in the root
    module when only the blocks are units; ``largest`` is the largest of the blocks.
    """

    blocks: tuple[float, ...]
    largest: float
    embed: float
    tail: float
    root: float


@batchless
def units_of(f: Facts) -> Units:
    """The sizes of the units that a run's FSDP wrapping makes."""
    m = f.model
    assert m is not None
    ranks = f.ranks.shard if f.ranks.backend == "fsdp2" else 1
    packed = 0.0 if f.plan.quant.method in IN_BUFFERS else quantised_bytes(f.plan.quant)
    blocks = tuple(
        (
            padded_block(b, m.hidden, ranks, splits_experts=f.ranks.ep > 1)
            - packed_away(b, packed, f.bytes_per.stream)
        )
        / f.ranks.tp
        - experts_elsewhere(f, b)
        + adapter_unit(f, b)
        for b in m.blocks
    )
    embed = padded(m.vocab, m.embed_numel, ranks) / f.ranks.tp + m.position_numel
    tail = padded(m.hidden, m.final_norm_numel, ranks)
    tail += padded(m.vocab, m.head_numel, ranks) / f.ranks.tp
    root = embed + tail + m.other_numel + m.vision_numel
    return Units(blocks, max(blocks, default=0.0), embed, tail, root)


def stays_gathered(f: Facts) -> bool:
    """Whether units stay whole from forward until their backward."""
    fsdp = f.plan.parallel.fsdp
    if fsdp.strategy in ("grad_op", "hybrid_grad_op"):
        return True
    return f.ranks.backend == "fsdp2" and fsdp.reshard_after_forward is False


def experts_elsewhere(f: Facts, block: DecoderBlock) -> float:
    """Elements of a block's experts that expert parallelism leaves to other ranks: a unit gathers
    this rank's own experts alone."""
    ranks = f.ranks
    if ranks.ep == 1:
        return 0.0
    return block.expert_numel * (1 / ranks.tp - 1 / (ranks.ep * expert_split(f)))


def packed_away(block: DecoderBlock, packed: float | None, width: float) -> float:
    """Elements of ``width`` bytes that quantised linear weights save in a gathered block, all of
    them where they are no parameters (0 bytes)."""
    return 0.0 if packed is None else block.linear_numel * (1 - packed / width)


def adapter_unit(f: Facts, block: DecoderBlock) -> float:
    """Adapter elements in one block's unit."""
    m = f.model
    assert m is not None
    if not f.trained.lora or f.regime is None:
        return 0.0
    if f.ranks.backend != "fsdp2" or f.trained.expert_adapter_numel or f.plan.trainable.params:
        return f.trained.adapter_numel / m.layers
    return padded_adapter(block, f.regime.targets, f.regime.rank, f.ranks.shard)
