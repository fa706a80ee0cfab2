"""How a block computes: dtypes, adapters, kernels; equal regimes share their profiles."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Kernel = Literal["flash", "efficient", "math", "eager"]

FLASH_HEAD = 256
"""Flash attention stops at this head size (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp)."""


class Regime(Struct, frozen=True, cache_hash=True):
    """How a block computes.

    ``stream`` is the bytes an element of the weights and of the residual stream, ``compute``
    that of matrix products; they differ under autocast (``amp``), and between packed layers that are
    trained around in fp32. ``lora`` maps the roles of
    adapted linear layers to their rank, ``fused`` are those among them that one function computes
    with its neighbours. ``keeps_input``: products with packed weights keep
    their input; ``apart_experts``: each expert has linear layers of its own; ``stack_ranks``: those of the adapters on stacked experts, on gate and up and on down,
    ``copied_stacks``: what they add is made whole before it is added, ``grouped_adapters``: tokens go through them,
    not the weights; ``adapted_router``: the router carries one too; ``rescaled``: every linear
    layer has a trained scale and bias behind it; ``scattered``: the share of the fused projection's outputs
    that carry an adapter; ``expert_tensor_parallel``: over how many of the ranks that split a layer each
    expert is split too; ``recomputed``: parts of a block (``mlp``, ``moe``) of which backward has the
    input alone; ``experts``: grouped products, whose activation takes the router's weights in where it is
    ``weighted``, or one expert after the other; ``bias_share``: of how many samples a bias of scores is one's; ``keeps_gathered``: layers keep their input with the tokens of all ranks;
    ``scratch``: kernels make tensors of their own.

    Each estimate makes one and looks up profiles by it.
    """

    stream: int = 2
    compute: int = 2
    amp: bool = False
    train_base: bool = True
    train_norms: bool = True
    train_experts: bool = True
    rank: int = 0
    targets: frozenset[str] = frozenset()
    dropout: bool = False
    adapter: int = 4
    dora: bool = False
    fused: frozenset[str] = frozenset()
    stack_ranks: tuple[int, int] = (0, 0)
    adapted_router: bool = False
    copied_stacks: bool = False
    grouped_adapters: bool = False
    scattered: float = 1.0
    kernel: Kernel = "flash"
    dense_mask: bool = False
    bias_share: float = 0.0
    masks_window: bool = False
    experts: Literal["grouped", "weighted", "loop"] = "grouped"
    fused_norm: bool = False
    fused_rope: bool = False
    fused_glu: bool = False
    quantised: bool = False
    packed_experts: bool = False
    apart_experts: bool = False
    keeps_input: bool = False
    rescaled: bool = False
    tensor_parallel: int = 1
    expert_tensor_parallel: int = 1
    recomputed: frozenset[str] = frozenset()
    sequence_parallel: bool = False
    keeps_gathered: bool = False
    input_grad: bool = True
    batched: bool = True
    scratch: bool = False

    @property
    def whole(self) -> int:
        """Bytes an element of products whose weights are not packed, which may lie among packed ones in fp32."""
        return self.stream if self.quantised and not self.amp else self.compute


_INTERNED: dict[Regime, Regime] = {}
_INTERNED_LIMIT = 4096


def interned(regime: Regime) -> Regime:
    """The one object for equal regimes, so that later look-ups compare by identity."""
    if len(_INTERNED) >= _INTERNED_LIMIT:
        _INTERNED.clear()
    return _INTERNED.setdefault(regime, regime)
