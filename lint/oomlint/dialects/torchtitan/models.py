"""torchtitan's model flavors: which catalogue model each is, and the dimensions of the small ones.

Read from torchtitan ``torchtitan/models/*/__init__.py`` at v0.1.0, v0.2.2 and b5bcd76c
(2026-08-21). A flavor may carry the attention kernel in its name: ``8B_flex``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from msgspec.structs import replace

from oomlint.models import lookup
from oomlint.plan.model import Mla, ModelDims, Moe

# Family (as ``model.name`` or the registry's module begins) and flavor, in lower case.
_CATALOGUED = {
    ("llama2", "7b"): "meta-llama/Llama-2-7b-hf",
    ("llama2", "13b"): "meta-llama/Llama-2-13b-hf",
    ("llama2", "70b"): "meta-llama/Llama-2-70b-hf",
    ("llama3", "1b"): "meta-llama/Llama-3.2-1B",
    ("llama3", "3b"): "meta-llama/Llama-3.2-3B",
    ("llama3", "8b"): "meta-llama/Llama-3.1-8B",
    ("llama3", "70b"): "meta-llama/Llama-3.1-70B",
    ("llama3", "405b"): "meta-llama/Llama-3.1-405B",
    ("llama4", "17bx16e"): "meta-llama/Llama-4-Scout-17B-16E",
    ("llama4", "17bx128e"): "meta-llama/Llama-4-Maverick-17B-128E",
    ("deepseek_v3", "16b"): "deepseek-ai/DeepSeek-V2-Lite",
    ("deepseek_v3", "236b"): "deepseek-ai/DeepSeek-V2",
    ("deepseek_v3", "671b"): "deepseek-ai/DeepSeek-V3",
    ("gpt_oss", "20b"): "openai/gpt-oss-20b",
    ("gpt_oss", "120b"): "openai/gpt-oss-120b",
    ("kimi_k2", "moonlight-16b-a3b"): "moonshotai/Moonlight-16B-A3B",
    ("kimi_k2", "kimi-vl-a3b"): "moonshotai/Kimi-VL-A3B-Instruct",
    ("kimi_k2", "kimi-k2.5"): "moonshotai/Kimi-K2-Instruct",
    **{
        ("qwen3", size.lower()): f"Qwen/Qwen3-{size}"
        for size in ("0.6B", "1.7B", "4B", "8B", "14B", "32B", "30B-A3B", "235B-A22B")
    },
    **{
        ("qwen3_5", size.lower()): f"Qwen/Qwen3.5-{size}"
        for size in ("0.8B", "2B", "4B", "9B", "27B", "35B-A3B", "122B-A10B", "397B-A17B")
    },
}

# torchtitan builds the text model alone.
_TEXT_ONLY = frozenset({"llama4", "deepseek_v3"})

_LLAMA_DEBUG = ModelDims(
    arch="llama", layers=6, hidden=256, heads=16, kv_heads=16, head_dim=16, ffn=768, vocab=2048,
    tie_embeddings=False, attn_bias=False, mlp_bias=False, qk_norm=False, norm="rms", act="swiglu",
)  # fmt: skip
_QWEN3_DEBUG = ModelDims(
    arch="qwen3", layers=8, hidden=256, heads=16, kv_heads=8, head_dim=128, ffn=3072, vocab=2048,
    tie_embeddings=True, attn_bias=False, mlp_bias=False, qk_norm=True, norm="rms", act="swiglu",
)  # fmt: skip
_OWN = {
    ("llama2", "debugmodel"): _LLAMA_DEBUG,
    ("llama3", "debugmodel"): _LLAMA_DEBUG,
    # models/llama4 at v0.2.2: experts on every second layer, one of eight and a shared one.
    ("llama4", "debugmodel"): replace(
        _LLAMA_DEBUG,
        moe=Moe(experts=8, topk=1, moe_ffn=512, shared_experts=1, shared_ffn=512, every_n=2),
    ),
    ("qwen3", "debugmodel"): _QWEN3_DEBUG,
    ("qwen3", "debugmodel_non_fused_qkv"): _QWEN3_DEBUG,
    ("qwen3", "debugmodel_moe"): replace(
        _QWEN3_DEBUG,
        arch="qwen3_moe", tie_embeddings=False,
        moe=Moe(experts=64, topk=8, moe_ffn=768, shared_experts=0, first_dense=0),
    ),
    ("deepseek_v3", "debugmodel"): ModelDims(
        arch="deepseek_v3", layers=6, hidden=256, heads=16, kv_heads=16, head_dim=192, ffn=1024,
        vocab=2048, tie_embeddings=False, attn_bias=False, norm="rms", act="swiglu",
        moe=Moe(experts=8, topk=3, moe_ffn=256, shared_experts=2, shared_ffn=512, first_dense=1),
        mla=Mla(kv_rank=512, qk_nope=128, qk_rope=64, v_dim=128),
    ),
    # models/gpt_oss/__init__.py _debugmodel at b5bcd76c; up to v0.2.2 its vocabulary was the 20b's, 201,088.
    ("gpt_oss", "debugmodel"): ModelDims(
        arch="gpt_oss", layers=4, hidden=256, heads=64, kv_heads=8, head_dim=64, ffn=2880,
        vocab=2048, tie_embeddings=False, attn_bias=True, norm="rms", act="swiglu",
        moe=Moe(experts=8, topk=4, moe_ffn=2880, shared_experts=0, first_dense=0),
    ),
}  # fmt: skip

_FAMILIES = tuple(dict.fromkeys(family for family, _ in (*_CATALOGUED, *_OWN)))
_KERNEL_SUFFIX = re.compile(r"_(?:(flex)(?:_attn)?|(varlen)(?:_attn)?|(irope))$")
# Attention with a block mask whatever the flavor's name says.
_FLEX = frozenset({("deepseek_v3", size) for size in ("16b", "236b", "671b")})


class Flavor(NamedTuple):
    """What a model's name and flavor come to; ``attention`` as :attr:`Plan.model.attn_impl`."""

    id: str | None
    dims: ModelDims | None
    attention: str
    source: str


def family_of(name: str) -> str | None:
    """The family of ``llama3``, ``simple_fsdp.llama3`` or ``graph_trainer.deepseek_v3``."""
    name = name.lower()
    if name == "llama":
        return "llama3"
    fitting = [family for family in _FAMILIES if family in name]
    return max(fitting, key=len, default=None)


def flavor_of(name: str, flavor: str) -> Flavor | None:
    """The model that torchtitan builds for a name and a flavor; ``None`` where we know neither."""
    family = family_of(name)
    if family is None:
        return None
    bare, attention = flavor.lower(), "sdpa"
    suffix = _KERNEL_SUFFIX.search(bare)
    if suffix is not None:
        bare = bare[: suffix.start()]
        attention = "flash2" if suffix[2] else "flex"
    if (family, bare) in _FLEX or family == "gpt_oss":
        attention = "flex"
    source = f"torchtitan models/{family}: flavor {flavor}"
    own = _OWN.get((family, bare))
    if own is not None:
        return Flavor(None, own, attention, source)
    model_id = _CATALOGUED.get((family, bare))
    facts = lookup(model_id) if model_id else None
    if facts is None:
        return None
    dims = facts.dims
    if family in _TEXT_ONLY and dims.vision is not None:
        dims = replace(dims, vision=None, params_total=None, params_active=None)
    return Flavor(model_id, dims, attention, source)
