"""The parts of a model with their element counts: linear layers, blocks, the whole skeleton.

A :class:`DecoderStructure` is what the rest of the memory model asks; ``build.py`` makes it from
dimensions.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Literal

from msgspec import Struct

from oomlint.memory.traits import Activation, Traits


class Linear(Struct, frozen=True):
    """One linear layer; ``role`` is its part in the block, in no model's spelling."""

    role: str
    inputs: int
    outputs: int
    bias: bool = False

    @property
    def numel(self) -> int:
        return self.inputs * self.outputs + (self.outputs if self.bias else 0)


Mixer = Literal["attention", "delta", "mamba1", "mamba2", "conv"]


class DecoderBlock(Struct, frozen=True, eq=False, dict=True):
    """One kind of decoder block and how many of it follow one another; compared by identity.

    ``mixers`` are what mixes the tokens, side by side; ``sizes`` are theirs: key heads, value
    heads, their sizes (``delta``), inner width, heads, state size, groups (``mamba2``), or inner width, state size
    and the rank of the time step (``mamba1``).
    ``feeds`` says that a feed-forward part follows, ``sliding`` that attention has a window,
    ``crosses`` that attention to an encoder's output comes between. ``head_dim`` and ``kv_width``
    are the block's own where others of the model differ: a block without a projection to keys
    takes keys and values of that width from a block below. ``sparse``: only the largest gates of the
    feed-forward part pass. ``predicts``: it predicts one more token, from what the block below made and the
    embedding of a later token. ``plain_experts``: its experts carry no adapters where those of other blocks do.
    """

    count: int
    linears: tuple[Linear, ...]
    norm_numel: int
    expert_numel: int = 0
    router_numel: int = 0
    other_numel: int = 0
    experts: int = 0
    topk: int = 0
    moe_ffn: int = 0
    shared_ffn: int = 0
    mixers: tuple[Mixer, ...] = ("attention",)
    feeds: bool = True
    sliding: bool = False
    crosses: bool = False
    head_dim: int = 0
    kv_width: int = 0
    sparse: bool = False
    predicts: bool = False
    plain_experts: bool = False
    sizes: tuple[int, ...] = ()

    @cached_property
    def linear_numel(self) -> int:
        return sum(x.numel for x in self.linears)

    @cached_property
    def numel(self) -> int:
        rest = self.norm_numel + self.expert_numel + self.router_numel + self.other_numel
        return self.linear_numel + rest

    def expert_matrices(self, hidden: int) -> int:
        """How many matrices each expert of a model of such a width has: three where a gate is among them."""
        return round(self.expert_numel / (self.experts * hidden * self.moe_ffn))

    @property
    def largest_tensor(self) -> int:
        """Elements of the block's largest parameter; stacked experts are one tensor each for
        gate+up and down (two thirds and one third of them)."""
        biggest = max((x.inputs * x.outputs for x in self.linears), default=0)
        return max(biggest, self.expert_numel * 2 // 3)


class DecoderStructure(Struct, frozen=True, eq=False, dict=True):
    """A decoder's structure with true element counts; compared by identity.

    ``layer_input`` is the width of the embedding that each layer gets beside its input.
    """

    arch: str
    traits: Traits
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    ffn: int
    vocab: int
    tied: bool
    activation: Activation
    qk_norm: bool
    mla: tuple[int, int, int, int, int] | None
    blocks: tuple[DecoderBlock, ...]
    embed_numel: int
    position_numel: int
    final_norm_numel: int
    head_numel: int
    vision_numel: int
    other_numel: int = 0
    layer_input: int = 0

    @cached_property
    def numel(self) -> int:
        ends = self.embed_numel + self.position_numel + self.final_norm_numel + self.head_numel
        return ends + self.block_numel + self.other_numel + self.vision_numel

    @cached_property
    def block_numel(self) -> int:
        return sum(b.count * b.numel for b in self.blocks)

    @cached_property
    def linear_numel(self) -> int:
        return sum(b.count * b.linear_numel for b in self.blocks)

    @cached_property
    def expert_numel(self) -> int:
        return sum(b.count * b.expert_numel for b in self.blocks)

    @cached_property
    def largest_block(self) -> int:
        return max((b.numel for b in self.blocks), default=0)

    @cached_property
    def largest_tensor(self) -> int:
        inputs = self.vocab * self.layers * self.layer_input
        tensors = [b.largest_tensor for b in self.blocks]
        return max([self.embed_numel, self.head_numel, inputs, *tensors])


def padded(rows: float, numel: float, ranks: int) -> float:
    """Elements after FSDP2 has padded dim 0 to a multiple of the ranks.

    torch/distributed/fsdp/_fully_shard/_fsdp_param.py: every parameter is chunked on dim 0.
    """
    if ranks <= 1 or rows <= 0:
        return numel
    return -(-rows // ranks) * ranks * (numel / rows)


@lru_cache(maxsize=2048)
def padded_block(
    block: DecoderBlock, hidden: int, ranks: int, *, splits_experts: bool = False
) -> float:
    """Elements of one block's parameters, each padded for ``ranks`` shards. Where ranks split the experts among
    themselves, those that share some have shards of another dimension than that of the experts, of which there may be fewer
    than ranks (torchtitan b5bcd76c models/llama4/infra/parallelize.py apply_fsdp; NeMo AutoModel 36044ad3
    nemo_automodel/components/moe/parallelizer.py _moe_shard_placement)."""
    total = padded(hidden, block.norm_numel, ranks) + block.other_numel
    for x in block.linears:
        total += padded(x.outputs, x.inputs * x.outputs, ranks)
        if x.bias:
            total += padded(x.outputs, x.outputs, ranks)
    if block.experts:
        total += padded(block.experts, block.expert_numel, 1 if splits_experts else ranks)
        total += padded(block.experts, block.router_numel, ranks)
    return total


@lru_cache(maxsize=2048)
def padded_adapter(block: DecoderBlock, roles: frozenset[str], rank: int, ranks: int) -> float:
    """Elements of one block's LoRA factors, each padded for ``ranks`` shards."""
    total = 0.0
    for x in block.linears:
        if x.role in roles:
            total += padded(rank, rank * x.inputs, ranks)
            total += padded(x.outputs, rank * x.outputs, ranks)
    return total
