"""The models that OLMo-core makes by name.

Read from allenai/OLMo-core fa6c5014c (2026-06-22); ``OC`` below is its ``src/olmo_core``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from oomlint.dialects.cells import Cells
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.dialects.olmo_core.keys import SOURCE, own
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f
from oomlint.plan.model import ModelDims, Moe

model = Meaning()

_CONFIG = f"{SOURCE} src/olmo_core/nn/transformer/config.py"
# OC/data/tokenizer.py: TokenizerConfig.padded_vocab_size makes each a multiple of 128.
_VOCABULARIES = {
    "dolma2": 100278, "dolma2_sigdig": 100278, "gpt_neox_olmo_dolma_v1_5": 50280, "gpt2": 50257,
}  # fmt: skip
_NEEDED = (
    own.factory, own.layers, own.heads, own.kv_heads, own.hidden, own.experts, own.expert_ffn, own.shared_ffn,
    own.pattern, own.delta_heads, own.delta_values, own.delta_dim, own.delta_expand,
)  # fmt: skip
_LIKE = frozenset({"llama_like", "llama_like_moe"})
_DENSE = 9  # columns of a model without experts
_BACKENDS = {
    "flash_2": "flash2",
    "flash_3": "flash3",
    "flash_4": "flash3",
    "torch": "sdpa",
    "te": "flash2",
}


@cache
def _factories() -> Mapping[str, tuple[str, ...]]:
    text = Path(__file__).with_name("factories.tsv").read_text("utf-8")
    lines = (line.split("\t") for line in text.splitlines() if not line.startswith("#"))
    return {name: tuple(rest) for name, *rest in lines}


def _dims_of(name: str) -> ModelDims | None:
    row = _factories().get(name)
    if row is None:
        return None
    arch, *numbers = row[:7]
    layers, hidden, heads, kv_heads, head_dim, ffn = map(int, numbers)
    moe = None
    if len(row) > _DENSE:
        experts, topk, moe_ffn, shared = map(int, row[_DENSE:])
        moe = _mixture(experts, topk, moe_ffn, shared)
    return ModelDims(
        arch=arch, layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=head_dim, ffn=ffn,
        tie_embeddings=row[7] == "tied", attn_bias=False, mlp_bias=False, qk_norm=arch != "llama",
        norm="rms", act="geglu" if arch == "gemma3_text" else "swiglu", moe=moe,
    )  # fmt: skip


def _mixture(experts: int, topk: int, width: int, shared: int | None) -> Moe:
    return Moe(experts=experts, topk=topk, moe_ffn=width, shared_ffn=shared or None)


def numbers_of(factory: str) -> dict[str, int]:
    """What a model is made with by a method of that name, by the names of the config; nothing of unknown ones."""
    dims = _dims_of(factory)
    if dims is None:
        return {}
    found = {"d_model": dims.hidden, "n_layers": dims.layers, "n_heads": dims.heads}
    return {name: number for name, number in found.items() if number is not None}


@model.derive(f.model.dims, f.model.arch, source=_CONFIG)
def dimensions(run: Cells) -> Any:
    """A factory's own numbers, less those that the script gives it."""
    name = run[own.factory]
    if name is None or any(map(run.is_unread, _NEEDED)):
        return None
    dims = _llama_like(run) if name in _LIKE else _dims_of(name)
    if dims is None:
        return {f.model.arch: name}
    hidden, heads = run[own.hidden] or dims.hidden, run[own.heads] or dims.heads
    kv_heads = run[own.kv_heads] or (heads if dims.kv_heads == dims.heads else dims.kv_heads)
    divides = dims.hidden == (dims.head_dim or 0) * (dims.heads or 0)
    dims = replace(
        dims,
        layers=run[own.layers] or dims.layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=hidden // heads if divides and hidden and heads else dims.head_dim,
        layer_types=_layer_types(run),
        linear_attn=_delta_net(run, hidden),
        vocab=_vocabulary(run),
        ctx=run[f.seq.max_len],
    )
    return {f.model.dims: dims, f.model.arch: dims.arch}


def _layer_types(run: Cells) -> tuple[str, ...] | None:
    """Which block follows which, from the first again where they are fewer than the layers."""
    pattern = run[own.pattern]
    words = {"gdn": "linear_attention", "attn": "full_attention"}
    return tuple(words[str(name)] for name in pattern) if pattern else None


def _delta_net(run: Cells, hidden: int | None) -> Mapping[str, int] | None:
    """OC/nn/attention/recurrent.py GatedDeltaNet, by the names of transformers' models that have one."""
    if not run[own.pattern] or not hidden:
        return None
    heads = run[own.delta_heads]
    width = run[own.delta_dim] or hidden // heads
    return {
        "linear_num_key_heads": heads,
        "linear_num_value_heads": run[own.delta_values] or heads,
        "linear_key_head_dim": width,
        "linear_value_head_dim": int(width * run[own.delta_expand]),
        "linear_conv_kernel_dim": 4,
    }


def _vocabulary(run: Cells) -> int:
    size = None if run.is_unread(own.vocab) else run[own.vocab]
    if size is None:
        size = -(-_VOCABULARIES.get(run.otherwise(own.tokenizer, "dolma2"), 100278) // 128) * 128
    return size


def _llama_like(run: Cells) -> ModelDims | None:
    """OC/nn/transformer/config.py llama_like: a feed-forward part of 8/3, in steps of 256, or experts, of which the
    block with norms behind norms queries and keys, too."""
    hidden, layers, heads = run[own.hidden], run[own.layers], run[own.heads]
    if not (hidden and layers and heads):
        return None
    experts, topk, width = run[own.experts], run[own.topk], run[own.expert_ffn]
    moe = None
    if experts and topk and width:
        moe = _mixture(experts, topk, width, run[own.shared_ffn])
    norms = run.get(own.qk_norm, run[own.reordered])
    return ModelDims(
        arch="olmoe" if moe else "llama", layers=layers, hidden=hidden, heads=heads,
        kv_heads=run[own.kv_heads] or heads, head_dim=hidden // heads,
        ffn=width if moe else -(-int(8 * hidden / 3) // 256) * 256, tie_embeddings=False,
        attn_bias=False, mlp_bias=False, qk_norm=norms, norm="rms", act="swiglu", moe=moe,
    )  # fmt: skip


model.always(f.model.from_scratch, True, f"{SOURCE}: config.model.build(init_device='meta')")
model.always(f.load.meta_init, True, f"{SOURCE}: config.model.build(init_device='meta')")
model.always(f.load.dtype, "fp32", _CONFIG)
model.always(f.load.device_map, "none", _CONFIG)
model.cannot_say("OLMo-core builds its models empty", f.load.cpu_ram_efficient, f.load.low_cpu_mem)


@model.derive(f.model.attn_impl, source=f"{SOURCE} src/olmo_core/nn/attention/__init__.py:452")
def attention(run: Cells) -> Any:
    """Left out, the factory's own, else torch's: flash attention where a window is set."""
    word = run[own.backend]
    if word is None:
        row = _factories().get(run[own.factory] or "")
        word = row[8] if row is not None and len(row) > 8 and row[8] else "torch"
    return _BACKENDS.get(word)


@attention.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    words = {"flash2": "flash_2", "flash3": "flash_3", "sdpa": "torch"}
    if wanted not in words:
        raise CannotEdit(f"attn_backend has no word for {wanted}")
    return {own.backend: words[wanted]}
