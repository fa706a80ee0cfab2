"""Dimensions of the language model that a ``config.json`` describes, by its architecture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from oomlint.models.architectures import BARTS, BERTS
from oomlint.models.config_fields import SYNONYMS, Fields, nested_in, size_in, text_in
from oomlint.plan.model import Mla, ModelDims, Moe, Sound

# More layers than any model has, in a hand-edited or hostile file, are not layers.
_MAX_LAYERS: Final = 10**5

_LAYER_NORM: Final = (
    frozenset(
        "gpt2 gpt_bigcode gptj codegen gpt_neo gpt_neox gpt_neox_japanese opt bloom falcon mpt stablelm starcoder2 olmo cohere "
        "cohere2 phi nemotron dbrx phimoe modernbert biogpt xglm ctrl openai-gpt whisper chatglm_6b".split()
    )
    | BARTS
    | BERTS
)
_UNGATED: Final = (
    frozenset(
        "gpt2 gpt_bigcode gptj codegen gpt_neo gpt_neox gpt_neox_japanese opt bloom falcon mpt starcoder2 phi nemotron arcee "
        "apertus apertus1p5_text biogpt xglm ctrl openai-gpt whisper chatglm_6b".split()
    )
    | BARTS
    | BERTS
)
_FOUR_TIMES: Final = frozenset(
    "gpt2 gpt_bigcode gptj codegen gpt_neo gpt_neox_japanese bloom falcon mpt".split()
)
"""Architectures whose MLP is four times the hidden size where the file does not say."""
_GELU: Final = (
    frozenset("gpt2 gpt_bigcode gptj gpt_neo gpt_neox bloom falcon mpt phi chatglm_6b".split())
    | BERTS
)
_ALWAYS_ATTENTION_BIAS: Final = (
    frozenset(
        "qwen qwen2 qwen2_vl qwen2_5_vl gpt2 gpt_bigcode gpt_neo opt bloom phi chatglm chatglm_6b "
        "gpt_oss phimoe mimo biogpt xglm ctrl openai-gpt glm4v_text whisper".split()
    )
    | BARTS
    | BERTS
)
_ALWAYS_MLP_BIAS: Final = (
    frozenset(
        "gpt2 gpt_bigcode gptj codegen gpt_neo gpt_neox opt bloom phi gpt_oss biogpt xglm ctrl openai-gpt whisper "
        "chatglm_6b".split()
    )
    | BARTS
    | BERTS
)
_ALWAYS_QK_NORM: Final = frozenset(
    "qwen3 qwen3_moe qwen3_next qwen3_5 qwen3_5_moe qwen3_vl qwen3_vl_moe gemma3 gemma3_text "
    "gemma3n gemma3n_text gemma4_text gemma4_unified_text olmo2 olmo3 olmoe hunyuan_v1_dense apertus apertus1p5_text lfm2 lfm2_moe hunyuan_v1_moe dots1 olmo_hybrid beam lfm3 lara_mini".split()
)
_EXPERTS_OF_MLP_SIZE: Final = frozenset(
    "mixtral olmoe granitemoe gpt_oss phimoe minimax_m2 llama4 jamba hunyuan_v1_moe".split()
)
"""Architectures whose experts have the plain ``intermediate_size``."""

# Every how many layers one attends to everything, where the file has no ``layer_types``
# (``layer_types`` default of the configuration classes).
_FULL_EVERY: Final = {
    "gemma2": 2, "gpt_oss": 2, "gemma3_text": 6, "cohere2": 4, "olmo3": 4, "llama4": 4,
    "qwen3_next": 4, "qwen3_5": 4, "qwen3_5_moe": 4,
}  # fmt: skip
_OTHER_LAYER: Final = {
    "qwen3_next": "linear_attention",
    "qwen3_5": "linear_attention",
    "qwen3_5_moe": "linear_attention",
    "llama4": "chunked_attention",
}

# What NemotronHConfig calls the parts of a model, in its list and in its older pattern.
_NEMOTRON_PARTS: Final = {
    "mamba": "linear_attention", "M": "linear_attention", "attention": "full_attention",
    "*": "full_attention", "E": "moe", "-": "mlp",
}  # fmt: skip


def text_dims(arch: str, f: Fields, tie: bool) -> ModelDims:
    hidden = f.size(*SYNONYMS["hidden"])
    layers = f.size(*SYNONYMS["layers"])
    if layers is not None and layers > _MAX_LAYERS:
        layers = None
    types = _layer_types(arch, f, layers)
    if types is not None and ("decoder" in types or arch == "nemotron_h"):
        # BART's num_hidden_layers are the encoder's alone, Nemotron-H's list says how many it has.
        layers = len(types)
    heads = f.size(*SYNONYMS["heads"])
    mla = _mla(f)
    head_dim = f.size("head_dim", "kv_channels", "d_kv")
    if mla is not None and mla.qk_nope is not None and mla.qk_rope is not None:
        head_dim = mla.qk_nope + mla.qk_rope
    elif head_dim is None and hidden and heads:
        head_dim = hidden // heads or None
    ffn = _ffn(arch, f, hidden)
    moe = _moe(arch, f, ffn)
    if arch == "llama4":
        ffn = f.size("intermediate_size_mlp") or ffn
    params_embed = None
    vocab = f.size(*SYNONYMS["vocab"])
    width = f.size("word_embed_proj_dim")
    if width and vocab:
        params_embed = vocab * width
    return ModelDims(
        arch=arch,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(arch, f, heads),
        head_dim=head_dim,
        ffn=ffn,
        vocab=vocab,
        tie_embeddings=tie,
        attn_bias=_attention_bias(arch, f),
        mlp_bias=arch in _ALWAYS_MLP_BIAS
        or (arch == "starcoder2" and f.flag("use_bias"))
        or f.flag("mlp_bias"),
        qk_norm=arch in _ALWAYS_QK_NORM
        or f.flag("qk_layernorm")
        or (arch != "llama4" and f.flag("use_qk_norm")),
        norm="ln" if arch in _LAYER_NORM else "rms",
        act=_activation(arch, f),
        ctx=f.size(*SYNONYMS["ctx"]) or size_in(nested_in(f, "attn_config", "max_seq_len")),
        sliding_window=_window(f),
        layer_types=types,
        moe=moe,
        mla=mla,
        linear_attn=_linear_attention(types, f),
        per_layer=_per_layer(arch, f),
        ssm=_state_space(arch, f),
        sound=_sound(arch, f),
        mtp_layers=f.size("num_nextn_predict_layers", "mtp_num_hidden_layers"),
        params_embed=params_embed,
    )


def _sound(arch: str, f: Fields) -> Sound | None:
    """WhisperConfig's names; those of other models say what a tower of theirs hears."""
    if arch != "whisper":
        return None
    return Sound(frames=f.size("max_source_positions"), bands=f.size("num_mel_bins"))


def _kv_heads(arch: str, f: Fields, heads: int | None) -> int | None:
    nested = size_in(nested_in(f, "attn_config", "kv_n_heads"))
    if nested is not None:
        return nested
    if arch == "falcon" and not f.flag("new_decoder_architecture"):
        # The old layout has one KV head or as many as heads, whatever num_kv_heads says.
        return 1 if f.flag("multi_query") else heads
    if arch == "gpt_bigcode":
        return 1 if f.raw("multi_query") is not False else heads
    return f.size(*SYNONYMS["kv_heads"]) or heads


def _ffn(arch: str, f: Fields, hidden: int | None) -> int | None:
    size = f.size(*SYNONYMS["ffn"])
    if size is None:
        size = size_in(nested_in(f, "ffn_config", "ffn_hidden_size"))
    if arch == "lfm2" and size and f.flag("block_auto_adjust_ff_dim"):
        # Lfm2MLP takes two thirds of it, rounded up.
        multiple = f.size("block_multiple_of") or 256
        size = -(-(2 * size // 3) // multiple) * multiple
    if size is None and hidden and arch in _FOUR_TIMES:
        size = hidden * (f.size("expansion_ratio") or 4)
    if size is None and f.raw(*SYNONYMS["moe_ffn"]) is not None:
        return 0  # every layer has experts and nothing else
    return size


def _mla(f: Fields) -> Mla | None:
    rank = f.size("kv_lora_rank")
    if not rank:
        return None
    # An explicit null means "no low-rank queries" and must win over the class default.
    q_rank = f.size("q_lora_rank")
    if "q_lora_rank" in f.config:
        q_rank = size_in(f.config["q_lora_rank"])
    return Mla(
        q_rank=q_rank,
        kv_rank=rank,
        qk_nope=f.size("qk_nope_head_dim"),
        qk_rope=f.size("qk_rope_head_dim"),
        v_dim=f.size("v_head_dim"),
        index_heads=f.size("index_n_heads"),
        index_dim=f.size("index_head_dim"),
    )


def _moe(arch: str, f: Fields, ffn: int | None) -> Moe | None:
    experts = f.size(*SYNONYMS["experts"]) or size_in(nested_in(f, "ffn_config", "moe_num_experts"))
    topk = f.size(*SYNONYMS["topk"]) or size_in(nested_in(f, "ffn_config", "moe_top_k"))
    if not experts or f.raw("is_moe") is False:
        return None  # DogeConfig has sizes of experts that only is_moe builds
    moe_ffn = ffn if arch in _EXPERTS_OF_MLP_SIZE else f.size(*SYNONYMS["moe_ffn"])
    shared = f.size(*SYNONYMS["shared_experts"]) or None
    shared_ffn = f.size(*SYNONYMS["shared_ffn"]) or None
    if arch in ("llama4", "hunyuan_v1_moe"):
        shared, shared_ffn = 1, ffn  # Llama4TextMoe.shared_expert, HunYuanMoEV1Moe.shared_mlp
    return Moe(
        experts=experts,
        topk=topk,
        moe_ffn=moe_ffn if moe_ffn is not None else ffn,
        shared_experts=shared,
        shared_ffn=shared_ffn,
        first_dense=f.size(*SYNONYMS["first_dense"]) or _dense_at_first(f) or None,
        every_n=f.size(*SYNONYMS["every_n"]),
    )


def _dense_at_first(f: Fields) -> int:
    """How many layers from the bottom have no experts, by the lists that newer configuration classes have
    (``mlp_layer_types``), or Qwen's (``mlp_only_layers``)."""
    kinds, dense = f.raw("mlp_layer_types"), f.raw("mlp_only_layers")
    if isinstance(kinds, list):
        return next((n for n, kind in enumerate(kinds) if kind != "dense"), len(kinds))
    if isinstance(dense, list):
        return next(n for n in range(len(dense) + 1) if n not in dense)
    return 0


def _linear_attention(types: tuple[str, ...] | None, f: Fields) -> Mapping[str, Any] | None:
    names = (
        "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
        "linear_value_head_dim", "linear_conv_kernel_dim", "linear_num_heads", "linear_head_dim",
    )  # fmt: skip
    if types is None or "linear_attention" not in types:
        return None
    return {name: size for name in names if (size := f.size(name)) is not None}


_PER_LAYER: Final = (
    "global_head_dim", "num_global_key_value_heads", "num_kv_shared_layers",
    "hidden_size_per_layer_input", "use_double_wide_mlp", "vocab_size_per_layer_input",
    "altup_num_inputs", "laurel_rank",
)  # fmt: skip


def _per_layer(arch: str, f: Fields) -> Mapping[str, Any] | None:
    """What Gemma4TextConfig lets layers have of their own (512 is its global_head_dim), and what
    Gemma3nTextConfig does."""
    if not arch.startswith(("gemma4", "gemma3n")):
        return None
    said = {name: f.raw(name) for name in _PER_LAYER}
    found = {name: n for name, x in said.items() if (n := 1 if x is True else size_in(x))}
    if arch.startswith("gemma3n"):
        pattern = f.raw("activation_sparsity_pattern")
        if isinstance(pattern, list) and (few := sum(bool(share) for share in pattern)):
            found["sparse_layers"] = few
        return {
            "altup_num_inputs": 4,
            "laurel_rank": 64,
            "hidden_size_per_layer_input": 256,
            **found,
        }
    if not f.flag("attention_k_eq_v"):
        found.pop("num_global_key_value_heads", None)
    return {"global_head_dim": 512, **found}


_STATE_SPACE: Final = (
    "mamba_d_ssm", "mamba_n_heads", "mamba_num_heads", "mamba_d_head", "mamba_head_dim",
    "mamba_d_state", "ssm_state_size", "mamba_n_groups", "n_groups", "mamba_d_conv", "conv_kernel",
    "conv_L_cache", "state_size", "expand", "mamba_expand", "time_step_rank", "mamba_dt_rank",
)  # fmt: skip
"""Sizes of state-space mixers and short convolutions (Mamba, Mamba-2, Jamba, Falcon-H1, Granite 4, LFM2)."""


def _state_space(arch: str, f: Fields) -> Mapping[str, Any] | None:
    names = (*_STATE_SPACE, "num_heads", "head_dim") if arch == "mamba2" else _STATE_SPACE
    found = {name: size for name in names if (size := f.size(name)) is not None}
    return found or None


def _attention_bias(arch: str, f: Fields) -> bool:
    if arch in _ALWAYS_ATTENTION_BIAS:
        return True
    if arch == "qwen2_moe" and f.raw("qkv_bias") is None:
        return True  # Qwen2MoeConfig's default
    return f.flag("attention_bias", "use_qkv_bias", "qkv_bias", "add_qkv_bias") or (
        arch == "starcoder2" and f.flag("use_bias")
    )


def _activation(
    arch: str, f: Fields
) -> Literal["swiglu", "geglu", "gelu", "relu", "relu2", "silu"] | None:
    if arch in ("t5", "mt5", "umt5"):
        return "geglu" if "gated" in text_in(f.raw("feed_forward_proj")) else "relu"
    names = (
        "hidden_act",
        "hidden_activation",
        "activation_function",
        "mlp_hidden_act",
        "activation",
    )
    name = text_in(f.raw(*names)).lower()
    if not name:
        name = "gelu" if arch in _GELU else "silu"
    gated = arch not in _UNGATED
    if name in ("silu", "swish"):
        return "swiglu" if gated else "silu"
    if "gelu" in name:
        return "geglu" if gated else "gelu"
    if name == "relu":
        return "relu"
    return "relu2" if name == "relu2" else None


def _window(f: Fields) -> int | None:
    if f.raw("use_sliding_window") is False:
        return None
    if "sliding_window" in f.config:  # null switches it off
        return size_in(f.config["sliding_window"])
    return f.size("sliding_window", "local_attention")  # the latter is ModernBERT's


def _layer_types(arch: str, f: Fields, layers: int | None) -> tuple[str, ...] | None:
    given = f.raw("layer_types")
    if isinstance(given, list) and given and all(isinstance(t, str) for t in given):
        return tuple(given) if len(set(given)) > 1 or given[0] != "full_attention" else None
    parts = f.raw("layers_block_type", "hybrid_override_pattern")
    if arch == "nemotron_h" and isinstance(parts, list | str):
        return tuple(_NEMOTRON_PARTS.get(str(part), str(part)) for part in parts) or None
    if arch == "bamba" and layers:
        chosen = f.raw("attn_layer_indices")
        attends = chosen if isinstance(chosen, list) else ()
        return tuple("full_attention" if i in attends else "mamba" for i in range(layers))
    if arch == "jamba" and layers and (period := f.size("attn_layer_period")):
        at = f.size("attn_layer_offset") or 0
        return tuple("full_attention" if i % period == at else "mamba" for i in range(layers))
    above, below = f.size("decoder_layers"), f.size("encoder_layers")
    if above and below and above + below <= _MAX_LAYERS:
        return ("encoder",) * below + ("decoder",) * above
    period = f.size("full_attention_interval", "sliding_window_pattern", "_sliding_window_pattern")
    period = (period if arch in _FULL_EVERY else None) or _FULL_EVERY.get(arch)
    if not period or not layers:
        return None
    other = _OTHER_LAYER.get(arch, "sliding_attention")
    return tuple("full_attention" if (i + 1) % period == 0 else other for i in range(layers))
