"""Model dimensions of the truth rows, as plans need them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomlint.plan.model import Mla, ModelDims, Moe

# transformers config class -> (architecture, activation, norm, biases in attention, in MLP,
# norm on queries and keys)
_CLASSES: dict[str, tuple[str, str, str, bool, bool, bool]] = {
    "LlamaConfig": ("llama", "swiglu", "rms", False, False, False),
    "MistralConfig": ("mistral", "swiglu", "rms", False, False, False),
    "Qwen2Config": ("qwen2", "swiglu", "rms", True, False, False),
    "Qwen3Config": ("qwen3", "swiglu", "rms", False, False, True),
    "Qwen3MoeConfig": ("qwen3_moe", "swiglu", "rms", False, False, True),
    "MixtralConfig": ("mixtral", "swiglu", "rms", False, False, False),
    "DeepseekV2Config": ("deepseek_v2", "swiglu", "rms", False, False, False),
    "DeepseekV3Config": ("deepseek_v3", "swiglu", "rms", False, False, False),
    "Phi3Config": ("phi3", "swiglu", "rms", False, False, False),
    "GemmaConfig": ("gemma", "geglu", "rms", False, False, False),
    "Gemma2Config": ("gemma2", "geglu", "rms", False, False, False),
    "Gemma3TextConfig": ("gemma3_text", "geglu", "rms", False, False, True),
    "GPT2Config": ("gpt2", "gelu", "ln", True, True, False),
    "GPTNeoXConfig": ("gpt_neox", "gelu", "ln", True, True, False),
    "OPTConfig": ("opt", "relu", "ln", True, True, False),
    "BloomConfig": ("bloom", "gelu", "ln", True, True, False),
    "FalconConfig": ("falcon", "gelu", "ln", False, False, False),
    "PhiConfig": ("phi", "gelu", "ln", True, True, False),
}


def dims_of(row: Mapping[str, Any]) -> ModelDims:
    """The dimensions of a simulated row, from its transformers configuration."""
    d = row["dims"]
    arch, act, norm, attn_bias, mlp_bias, qk_norm = _CLASSES[row["class"]]
    hidden, heads = d["hidden_size"], d["num_attention_heads"]
    kv_heads = d.get("num_key_value_heads") or (1 if d.get("multi_query") else heads)
    mla = moe = None
    head_dim = d.get("head_dim") or hidden // heads
    if "kv_lora_rank" in d:
        mla = Mla(
            q_rank=d.get("q_lora_rank"),
            kv_rank=d["kv_lora_rank"],
            qk_nope=d["qk_nope_head_dim"],
            qk_rope=d["qk_rope_head_dim"],
            v_dim=d["v_head_dim"],
        )
        head_dim = d["qk_nope_head_dim"] + d["qk_rope_head_dim"]
    experts = d.get("n_routed_experts") or d.get("num_local_experts") or d.get("num_experts")
    if experts:
        moe = Moe(
            experts=experts,
            topk=d["num_experts_per_tok"],
            moe_ffn=d.get("moe_intermediate_size") or d["intermediate_size"],
            shared_experts=d.get("n_shared_experts"),
            first_dense=d.get("first_k_dense_replace"),
        )
    return ModelDims(
        arch=arch,
        layers=d["num_hidden_layers"],
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=d.get("intermediate_size") or d.get("ffn_dim") or 4 * hidden,
        vocab=d["vocab_size"],
        tie_embeddings=d.get("tie_word_embeddings", False),
        attn_bias=attn_bias,
        mlp_bias=mlp_bias,
        qk_norm=qk_norm,
        norm=norm,  # type: ignore[arg-type]
        act=act,  # type: ignore[arg-type]
        ctx=1024 if arch == "gpt2" else 2048 if arch == "opt" else 4096,
        sliding_window=d.get("sliding_window"),
        moe=moe,
        mla=mla,
    )
