"""Counts the parameters of a model from its dimensions, exactly, family by family.

The layouts are those that transformers 5.23 builds (``models/<type>/modeling_<type>.py``);
every family here is compared, to the last parameter, with the count of the real class on
the meta device in ``benchmarks/catalogue/verify_models.py``. An architecture that is not
listed has no count: a wrong one would be worse than none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from oomlint.plan.model import Mla, ModelDims, Moe


class ParameterCounts(Struct, frozen=True, kw_only=True):
    """Element counts. ``total`` = text model + ``vision``.

    ``embed`` are input embeddings with learned positions left out, ``lm_head`` the output
    projection (0 when tied). ``linear`` are the weights of ``nn.Linear`` in the blocks of
    the text model, those that LoRA's "all-linear" and bitsandbytes touch; ``nonlinear`` is
    all the rest of the text model (embeddings, head, norms, biases, fused experts).
    ``layer_max`` is the largest block of the text model, ``vision`` the vision tower with its
    projector (0 without one).
    """

    total: int
    active: int
    embed: int
    lm_head: int
    linear: int
    nonlinear: int
    layer_max: int
    vision: int


Bias = Literal["never", "always", "usual", "config"]
Norm = Literal["rms", "ln", "ln_no_bias", "none"]
QkNorm = Literal["never", "head", "across"]


class _Layout(Struct, frozen=True, kw_only=True):
    """How one architecture builds its block; ``config`` leaves it to the dimensions, and so does ``usual``,
    which is yes where they say nothing.

    A norm of queries and keys has one weight per element of a head (``head``) or of all
    heads together (``across``). ``block_norms``
    counts norms of the hidden size in a block.
    """

    gated: bool = True
    qkv_bias: Bias = "never"
    o_bias: Bias = "never"
    mlp_bias: Bias = "never"
    norm: Norm = "rms"
    block_norms: int = 2
    qk_norm: QkNorm = "never"
    positions: int | None = None
    """Rows of a learned position table beyond the context length; ``None`` is no table."""
    embed_norm: bool = False
    head_bias: bool = False
    linear_class: bool = True
    """False where the projections are a subclass of ``nn.Linear``, which bitsandbytes
    leaves alone (transformers 5.23 integrations/bitsandbytes.py:189)."""
    shared_gate: bool = False
    router_linear: bool = False
    gated_query: bool = False


_LLAMA: Final = _Layout(qkv_bias="config", o_bias="config", mlp_bias="config")
_PLAIN: Final = _Layout()
_QWEN2: Final = _Layout(qkv_bias="always")
_QWEN3: Final = _Layout(qkv_bias="config", o_bias="config", qk_norm="head")
_GEMMA2: Final = _Layout(block_norms=4)
_GEMMA3: Final = _Layout(block_norms=4, qk_norm="head")
_GPT2: Final = _Layout(
    gated=False, qkv_bias="always", o_bias="always", mlp_bias="always", norm="ln", positions=0
)
_NEOX: Final = _Layout(
    gated=False, qkv_bias="config", o_bias="config", mlp_bias="always", norm="ln"
)
_OLMO2: Final = _Layout(qk_norm="across")
_GLM4: Final = _Layout(qkv_bias="config", block_norms=4)
_QWEN2_MOE: Final = _Layout(qkv_bias="usual", shared_gate=True)
_DEEPSEEK: Final = _Layout()
_QWEN3_NEXT: Final = _Layout(qk_norm="head", shared_gate=True, gated_query=True)

# LLM Foundry's own MPT: biases of everything or of nothing, and a table of positions unless ALiBi or rotations say them.
_FOUNDRY: Final = _Layout(
    gated=False, qkv_bias="config", o_bias="config", mlp_bias="config", norm="ln"
)
_FOUNDRY_LAYOUTS: Final[Mapping[str, _Layout]] = {
    f"foundry{positions}{norm}{bias}": replace(
        _FOUNDRY,
        positions=None if positions else 0,
        norm="ln_no_bias" if norm == "_rms" or bias else "ln",
    )
    for positions in ("", "_alibi", "_rope")
    for norm in ("", "_wide", "_rms")
    for bias in ("", "_plain")
}

_LAYOUTS: Final[Mapping[str, _Layout]] = {
    **_FOUNDRY_LAYOUTS,
    "llama": _LLAMA,
    "mistral": _PLAIN,
    "ministral3": _PLAIN,
    "mixtral": _PLAIN,
    "qwen2": _QWEN2,
    "qwen2_moe": _QWEN2_MOE,
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3,
    "qwen3_next": _QWEN3_NEXT,
    "qwen3_5": _QWEN3_NEXT,
    "qwen3_5_moe": _QWEN3_NEXT,
    "gemma": _PLAIN,
    "gemma2": _GEMMA2,
    "gemma3_text": _GEMMA3,
    "phi": _Layout(
        gated=False, qkv_bias="always", o_bias="always", mlp_bias="always", norm="ln",
        block_norms=1, head_bias=True,
    ),
    "phi3": _PLAIN,
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2,
    "nanogpt": _GPT2,
    "nanogpt_dropless": _GPT2,
    "gptj": _Layout(gated=False, mlp_bias="always", norm="ln", block_norms=1, head_bias=True),
    "gpt_neo": _Layout(gated=False, o_bias="always", mlp_bias="always", norm="ln", positions=0),
    "gpt_neox": _NEOX,
    # OPT's table has two extra rows (modeling_opt.py, OPTLearnedPositionalEmbedding.offset).
    "opt": _Layout(
        gated=False, qkv_bias="always", o_bias="always", mlp_bias="always", norm="ln", positions=2
    ),
    "bloom": _Layout(
        gated=False, qkv_bias="always", o_bias="always", mlp_bias="always", norm="ln",
        embed_norm=True,
    ),
    "chatglm_6b": _Layout(
        gated=False, qkv_bias="always", o_bias="always", mlp_bias="always", norm="ln"
    ),
    "falcon": _Layout(gated=False, norm="ln", linear_class=False),
    "mpt": _Layout(gated=False, norm="ln_no_bias"),
    "stablelm": _Layout(qkv_bias="config", norm="ln", qk_norm="across"),
    "starcoder2": _Layout(
        gated=False, qkv_bias="config", o_bias="config", mlp_bias="config", norm="ln"
    ),
    "olmo": _Layout(norm="none"),
    "olmo2": _OLMO2,
    "olmo3": _OLMO2,
    "olmoe": _OLMO2,
    "smollm3": _LLAMA,
    "granite": _LLAMA,
    "granitemoe": _PLAIN,
    "cohere": _Layout(norm="ln_no_bias", block_norms=1, qk_norm="across"),
    "cohere2": _Layout(norm="ln_no_bias", block_norms=1),
    "seed_oss": _Layout(qkv_bias="config"),
    "glm": _Layout(qkv_bias="config"),
    "glm4": _GLM4,
    "glm4_moe": _Layout(qkv_bias="config", qk_norm="head"),
    "glm4_moe_lite": _DEEPSEEK,
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "nemotron": _Layout(gated=False, norm="ln"),
    "internlm3": _PLAIN,
    "gpt_oss": _Layout(qkv_bias="always", o_bias="always"),
    "hunyuan_v1_dense": _Layout(qk_norm="head"),
    "arcee": _Layout(gated=False),
    "ernie4_5": _PLAIN,
    "llama4": _PLAIN,
    "dbrx": _Layout(norm="ln_no_bias", router_linear=True),
    "phimoe": _Layout(qkv_bias="always", o_bias="always", norm="ln", head_bias=True),
    "minimax_m2": _Layout(qk_norm="across"),
}  # fmt: skip

_TEXT_MODEL: Final[Mapping[str, str]] = {
    # Multimodal models by the text model inside; where that varies, see ``_text_arch``.
    "qwen2_vl": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen3_vl": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "gemma3": "gemma3_text",
    "glm4v": "glm4",
    "glm4v_text": "glm4",
    "glm46v": "glm4",
    "glm4v_moe": "glm4_moe",
    "mistral3": "mistral",
    "idefics3": "llama",
    "smolvlm": "llama",
    "mimo_vl": "qwen2",
    "dots_ocr": "qwen2",
    "hunyuan_vl": "hunyuan_v1_dense",
    "kimi_vl": "deepseek_v3",
    # Models with code of their own whose tensors are those of a stock architecture.
    "baichuan": "llama",
    "internlm": "llama",
    "internlm2": "llama",
    "minicpm": "llama",
    "xverse": "llama",
    "aquila": "llama",
    "exaone": "llama",
    "qwen": "qwen2",
    "mimo": "qwen2",
}

_VARIES: Final = frozenset(
    {"internvl", "llava", "llava_next", "llava_next_video", "llava_onevision"}
)


def _text_arch(dims: ModelDims) -> str | None:
    arch = dims.arch
    if arch is None:
        return None
    if arch == "paligemma":
        return "gemma2" if dims.layer_types else "gemma"
    if arch in _VARIES:
        if dims.moe is not None:
            return "gpt_oss" if dims.attn_bias else "qwen3_moe"
        if dims.qk_norm:
            return "qwen3"
        return "qwen2" if dims.attn_bias and not dims.mlp_bias else "llama"
    return _TEXT_MODEL.get(arch, arch)


class _Sum(Struct):
    """Running counts of one block."""

    linear: int = 0
    other: int = 0
    experts: int = 0

    @property
    def total(self) -> int:
        return self.linear + self.other + self.experts


def _idle(experts: int, dims: ModelDims) -> int:
    """Of the parameters of experts, those that a token does not pass through."""
    if dims.moe is None or not dims.moe.experts or dims.moe.topk is None:
        return 0
    return experts - experts * dims.moe.topk // dims.moe.experts


def count_parameters(dims: ModelDims) -> ParameterCounts | None:
    """The exact parameter counts of ``dims``; ``None`` if the architecture or a needed
    dimension is unknown (a vision tower needs ``dims.vision.params``)."""
    arch = _text_arch(dims)
    layout = _LAYOUTS.get(arch) if arch else None
    if layout is None or arch is None:
        return None
    hidden, layers, vocab = dims.hidden, dims.layers, dims.vocab
    if not (hidden and layers and vocab and dims.heads and dims.head_dim and dims.ffn is not None):
        return None
    vision = 0 if dims.vision is None else dims.vision.params
    blocks = _blocks(arch, layout, dims)
    if vision is None or blocks is None:
        return None

    width = _embedding_width(arch, dims)
    embed = vocab * width
    # An encoder or reward model has no head at all, tied or not; the dimensions say so.
    headless = bool(dims.tie_embeddings) or dims.params_lm_head == 0
    lm_head = 0 if headless else vocab * width
    extra = _norm(layout, hidden)  # the final norm
    extra_linear = 0
    if layout.positions is not None:
        if dims.ctx is None:
            return None
        extra += (dims.ctx + layout.positions) * hidden
    if layout.embed_norm:
        extra += _norm(layout, hidden)
    if layout.head_bias:
        extra += vocab
    if width != hidden:
        # opt-350m: projections in and out, and no final norm (it is the one post-norm OPT).
        extra_linear = 2 * hidden * width
        extra -= _norm(layout, hidden)

    linear = extra_linear + sum(b.linear for b in blocks)
    experts = sum(b.experts for b in blocks)
    text = embed + lm_head + extra + extra_linear + sum(b.total for b in blocks)
    idle = _idle(experts, dims)
    return ParameterCounts(
        total=text + vision,
        active=text + vision - idle,
        embed=embed,
        lm_head=lm_head,
        linear=linear,
        nonlinear=text - linear,
        layer_max=max(b.total for b in blocks),
        vision=vision,
    )


def _embedding_width(arch: str, dims: ModelDims) -> int:
    """OPT may embed narrower than it computes (``word_embed_proj_dim``); all else does not."""
    hidden, vocab = dims.hidden or 0, dims.vocab or 1
    if arch == "opt" and dims.params_embed and dims.params_embed % vocab == 0:
        return dims.params_embed // vocab
    return hidden


def _blocks(arch: str, layout: _Layout, dims: ModelDims) -> list[_Sum] | None:
    """One sum per layer; equal layers share theirs."""
    made: dict[tuple[bool, bool], _Sum] = {}
    out = []
    for index in range(dims.layers or 0):
        key = (_is_moe_layer(dims, index), _is_linear_attention(dims, index))
        if key not in made:
            block = _block(arch, layout, dims, has_experts=key[0], linear_attention=key[1])
            if block is None:
                return None
            made[key] = block
        out.append(made[key])
    return out


def _is_moe_layer(dims: ModelDims, index: int) -> bool:
    moe = dims.moe
    if moe is None or not moe.experts:
        return False
    return index >= (moe.first_dense or 0) and (index + 1) % (moe.every_n or 1) == 0


def _is_linear_attention(dims: ModelDims, index: int) -> bool:
    types = dims.layer_types
    return bool(types) and types is not None and types[index % len(types)] == "linear_attention"


def _norm(layout: _Layout, size: int) -> int:
    return {"rms": size, "ln": 2 * size, "ln_no_bias": size, "none": 0}[layout.norm]


def _has(bias: Bias, configured: bool | None) -> bool:
    if bias in ("never", "always"):
        return bias == "always"
    return bias == "usual" if configured is None else configured


def _block(
    arch: str, layout: _Layout, dims: ModelDims, *, has_experts: bool, linear_attention: bool
) -> _Sum | None:
    hidden = dims.hidden or 0
    block = _Sum()
    block.other += _block_norms(arch, layout, dims) * _norm(layout, hidden)
    if linear_attention:
        if not _add_gated_delta_net(block, dims):
            return None
    elif dims.mla is not None:
        if not _add_latent_attention(block, dims, dims.mla):
            return None
    else:
        _add_attention(block, arch, layout, dims)
    if has_experts and dims.moe is not None:
        if not _add_experts(block, arch, layout, dims, dims.moe):
            return None
    else:
        _add_mlp(block, layout, dims, dims.ffn or 0)
    if not layout.linear_class:
        block.other, block.linear = block.other + block.linear, 0
    return block


def _block_norms(arch: str, layout: _Layout, dims: ModelDims) -> int:
    """Norms per block where the dimensions tell more than the architecture does."""
    if arch == "falcon":
        # falcon-7b: one norm before attention and MLP; the newer layout (grouped KV heads)
        # has one for each (modeling_falcon.py, num_ln_in_parallel_attn), but for falcon-11B,
        # which is counted 0.5 million too big of 11 billion: nothing in ModelDims tells.
        return 1 if dims.kv_heads == 1 else 2
    if arch == "stablelm" and dims.qk_norm:
        return 1  # stablelm-2-12b: parallel residual
    return layout.block_norms


def _add_attention(block: _Sum, arch: str, layout: _Layout, dims: ModelDims) -> None:
    hidden, heads, head_dim = dims.hidden or 0, dims.heads or 0, dims.head_dim or 0
    kv_heads = dims.kv_heads or heads
    q, kv = heads * head_dim, kv_heads * head_dim
    q_out = 2 * q if layout.gated_query else q
    block.linear += hidden * (q_out + 2 * kv) + q * hidden
    if _has(layout.qkv_bias, dims.attn_bias):
        block.other += q_out + 2 * kv
    if _has(layout.o_bias, dims.attn_bias):
        block.other += hidden
    if layout.qk_norm == "head" and dims.qk_norm:
        block.other += 2 * head_dim
    elif layout.qk_norm == "across" and dims.qk_norm:
        block.other += q + kv
    if arch == "gpt_oss":
        block.other += heads  # attention sinks


def _add_latent_attention(block: _Sum, dims: ModelDims, mla: Mla) -> bool:
    """Multi-head latent attention (modeling_deepseek_v3.py, DeepseekV3Attention)."""
    hidden, heads = dims.hidden or 0, dims.heads or 0
    if None in (mla.kv_rank, mla.qk_nope, mla.qk_rope, mla.v_dim):
        return False
    kv_rank, nope = mla.kv_rank or 0, mla.qk_nope or 0
    rope, v_dim = mla.qk_rope or 0, mla.v_dim or 0
    q_out = heads * (nope + rope)
    if mla.q_rank:
        block.linear += hidden * mla.q_rank + mla.q_rank * q_out
        block.other += mla.q_rank
    else:
        block.linear += hidden * q_out
    block.linear += hidden * (kv_rank + rope) + kv_rank * heads * (nope + v_dim)
    block.linear += heads * v_dim * hidden
    block.other += kv_rank
    return True


def _add_gated_delta_net(block: _Sum, dims: ModelDims) -> bool:
    """Linear attention of Qwen3-Next and Qwen3.5 (modeling_qwen3_next.py,
    Qwen3NextGatedDeltaNet): projections to q, k, v, z, b and a, a depthwise convolution,
    a decay and a time step per head, a norm, and the way out."""
    sizes = dims.linear_attn or {}
    k_heads, v_heads = sizes.get("linear_num_key_heads"), sizes.get("linear_num_value_heads")
    k_dim, v_dim = sizes.get("linear_key_head_dim"), sizes.get("linear_value_head_dim")
    kernel = sizes.get("linear_conv_kernel_dim")
    if not (k_heads and v_heads and k_dim and v_dim and kernel):
        return False
    hidden = dims.hidden or 0
    keys, values = k_heads * k_dim, v_heads * v_dim
    block.linear += hidden * (2 * keys + 2 * values) + hidden * 2 * v_heads + values * hidden
    block.other += (2 * keys + values) * kernel + 2 * v_heads + v_dim
    return True


def _add_mlp(block: _Sum, layout: _Layout, dims: ModelDims, ffn: int) -> None:
    hidden = dims.hidden or 0
    block.linear += (3 if layout.gated else 2) * hidden * ffn
    if _has(layout.mlp_bias, dims.mlp_bias):
        block.other += (2 * ffn if layout.gated else ffn) + hidden


def _add_experts(block: _Sum, arch: str, layout: _Layout, dims: ModelDims, moe: Moe) -> bool:
    """Routed experts are fused 3-D parameters in transformers 5, hence not ``linear``."""
    hidden, experts, ffn = dims.hidden or 0, moe.experts or 0, moe.moe_ffn
    if not ffn:
        return False
    each = (3 if layout.gated else 2) * hidden * ffn
    router = hidden * experts
    if arch == "gpt_oss":
        each += 2 * ffn + hidden
        router += experts
    block.experts += experts * each
    if layout.router_linear:
        block.linear += router
    else:
        block.other += router
    shared = moe.shared_ffn or (moe.shared_experts or 0) * ffn
    if shared:
        block.linear += 3 * hidden * shared
        if layout.shared_gate:
            block.linear += hidden
    return True


def as_dims_fields(counts: ParameterCounts) -> dict[str, Any]:
    """The counts under the names that :class:`~oomlint.plan.model.ModelDims` has for them."""
    return {
        "params_total": counts.total,
        "params_active": counts.active,
        "params_embed": counts.embed,
        "params_lm_head": counts.lm_head,
        "params_linear": counts.linear,
        "params_nonlinear": counts.nonlinear + counts.vision,
        "params_layer_max": counts.layer_max,
    }
