"""Dimensions that stand in for those of a model of which only its size is known."""

from __future__ import annotations

from msgspec.structs import replace

from oomlint.memory.build import build
from oomlint.plan.model import ModelDims, Moe

# A stand-in for anything larger would be no truer.
_MOST_PARAMETERS = 10**15


def size_class(total: int) -> ModelDims:
    """A Llama-like stand-in for a model of which only the parameter count is known.

    Decoders keep hidden / layers near 128 (Llama-2-7B 4096/32, 13B 5120/40), and a block of
    hidden h has about 12 h^2 parameters (arXiv 2001.08361, section 2.1), so that
    total = 12 h^3 / 128. What the stand-in lacks of ``total`` is counted as other parameters.
    """
    total = min(total, _MOST_PARAMETERS)
    hidden = max(128, int((total * 128 / 12) ** (1 / 3)) // 128 * 128)
    while True:
        heads = hidden // 128
        dims = ModelDims(
            arch="llama", layers=heads, hidden=hidden, heads=heads, kv_heads=max(1, heads // 4),
            head_dim=128, ffn=hidden * 7 // 2, vocab=128_000 if hidden > 2048 else 32_000,
            tie_embeddings=hidden <= 2048, act="swiglu", norm="rms", params_total=total,
        )  # fmt: skip
        numel = build(replace(dims, params_total=0))
        if numel is not None and hidden == 128:
            # A name may announce less than one such block has: 1M of TinyStories-1M, or of a length.
            return replace(dims, params_total=max(total, numel.numel))
        if hidden == 128 or (numel is not None and numel.numel <= total):
            return dims
        hidden -= 128


# Most published mixtures of experts send a token to eight of 128 (Qwen3-30B-A3B, Qwen3-235B-A22B).
_EXPERTS, _TOPK = 128, 8


def mixture_class(total: int, active: int) -> ModelDims:
    """A stand-in for a mixture of experts of which only the counts of its parameters and of those that
    a token passes are known: shaped like a model of the latter, in which what the former has more are
    experts."""
    total = min(total, _MOST_PARAMETERS)
    dims = size_class(active)
    experts = (total - active) * _EXPERTS / (_EXPERTS - _TOPK)
    each = 3 * (dims.layers or 1) * (dims.hidden or 1) * _EXPERTS
    moe = Moe(experts=_EXPERTS, topk=_TOPK, moe_ffn=max(1, int(experts / each)))
    return replace(dims, arch="qwen3_moe", moe=moe, params_total=total)


def stand_in(dims: ModelDims) -> ModelDims:
    """The dimensions that stand in for those of a model of which only the size is known."""
    total, active = dims.params_total, dims.params_active or 0
    assert total is not None
    return mixture_class(total, active) if 0 < 2 * active < total else size_class(total)
