"""The model that Megatron-core builds from numbers given one by one.

Read from Megatron-LM d98e8a64 (2026-08-22) and core_v0.7.0.
"""

from __future__ import annotations

import re
from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.meaning import Meaning
from oomlint.dialects.megatron.fields import mg
from oomlint.models import lookup
from oomlint.plan.fields import f
from oomlint.plan.model import Mla, ModelDims, Moe

dimensions = Meaning()
"""``model.dims`` from the fields of ``mg``; a dialect says by ``mg.other`` which models are more, or
other, than a stack of layers."""

# -- vocabulary ------------------------------------------------------------------------------------

# Tokens of the vocabularies behind --tokenizer-type (megatron/training/tokenizer; GPT-2's and
# BERT's own files, Llama's SentencePiece model).
_VOCABULARIES = {
    "gpt2bpetokenizer": 50257,
    "bertwordpiecelowercase": 30522,
    "bertwordpiececase": 28996,
    "llama2tokenizer": 32000,
    "tiktokenizer": 131072,
    "megatron": 50257,
}
_ASSUMED_VOCABULARY = 50257


@dimensions.derive(mg.vocab)
def vocabulary(run: Cells) -> Any:
    """What the tokenizer has, where its name tells."""
    size = _VOCABULARIES.get(run.otherwise(mg.tokenizer, "").lower())
    if size is not None:
        return size
    facts = lookup(run.otherwise(mg.tokenizer_model, ""))
    return None if facts is None else facts.dims.vocab


@dimensions.assume(mg.vocab, why="the size of the vocabulary is in the tokenizer's files")
def usual_vocabulary(run: Cells) -> Any:
    return _ASSUMED_VOCABULARY


def _padded_vocabulary(run: Cells) -> int:
    """A multiple of ``make_vocab_size_divisible_by`` on every tensor-parallel rank."""
    size = run.otherwise(mg.vocab, 0) or vocabulary(run) or _ASSUMED_VOCABULARY
    size += run[mg.extra_vocab] or 0
    multiple = (run[mg.divisor] or 128) * (run[f.parallel.tp] or 1)
    return -(-size // multiple) * multiple


# -- one stack of layers ---------------------------------------------------------------------------

_NEEDED = (mg.layers, mg.hidden, mg.heads, mg.ffn, mg.pattern, mg.decoder_layers, mg.experts)

# Layers of a hybrid stack (Megatron-core models/hybrid/hybrid_layer_allocation.py Symbols) that
# one part each stands for; other mixers are not counted.
_LAYER_KINDS = {"M": "mamba", "*": "full_attention", "-": "mlp", "E": "moe"}


@dimensions.derive(f.model.dims, f.model.arch)
def model(run: Cells) -> Any:
    dims = None if run[mg.other] else _stack(run)
    return None if dims is None else {f.model.dims: dims, f.model.arch: dims.arch}


def _stack(run: Cells) -> ModelDims | None:
    """The dimensions of a decoder, or of an encoder and a decoder of equal depth."""
    kinds = _layer_kinds(run)
    layers = run[mg.layers] if kinds is None else len(kinds)
    hidden, heads, decoder = run[mg.hidden], run[mg.heads], run[mg.decoder_layers]
    is_unclear = any(map(run.is_unread, _NEEDED))
    if not (layers and hidden and heads) or is_unclear or decoder not in (None, layers):
        return None
    act: Any = run[mg.act] or "gelu"
    norm: Any = run[mg.norm] or "ln"
    moe, mla = _moe(run, hidden, act), _mla(run)
    head_dim = run[mg.head_dim] or hidden // heads
    bias = bool(run[mg.bias])
    return ModelDims(
        arch=_arch(run, norm, act, moe, mla, kinds),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=run[mg.groups] or heads,
        head_dim=head_dim if mla is None else (mla.qk_nope or 0) + (mla.qk_rope or 0),
        ffn=_ffn(run, hidden, act),
        vocab=_padded_vocabulary(run),
        tie_embeddings=not run[mg.untied],
        attn_bias=bias or bool(run[mg.qkv_bias]),
        mlp_bias=bias,
        qk_norm=bool(run[mg.qk_norm]),
        norm=norm,
        act=act,
        ctx=run[mg.max_positions] or run[f.seq.max_len],
        moe=moe,
        mla=mla,
        layer_types=kinds,
        ssm=None if kinds is None else _ssm(run, hidden),
    )


def _layer_kinds(run: Cells) -> tuple[str, ...] | None:
    """What each layer of a hybrid stack is: ``M-M*-`` without the marks of pipeline stages, up
    to the layers of multi-token prediction. Nothing where there is no pattern, or a layer in it
    that is not counted."""
    pattern = (run[mg.pattern] or "").partition("/")[0].replace("|", "")
    kinds = tuple(_LAYER_KINDS.get(symbol, "") for symbol in pattern)
    return kinds if kinds and all(kinds) else None


def _ssm(run: Cells, hidden: int) -> dict[str, int]:
    """Megatron-core transformer/transformer_config.py:1259; ssm/mamba_mixer.py expands twofold and
    convolves over four tokens."""
    head_dim = run[mg.ssm_head_dim] or 64
    return {
        "num_heads": run[mg.ssm_heads] or 2 * hidden // head_dim,
        "head_dim": head_dim,
        "state_size": run[mg.ssm_state] or 128,
        "n_groups": run[mg.ssm_groups] or 8,
        "conv_kernel": 4,
    }


def _arch(run: Cells, norm: str, act: str, moe: Moe | None, mla: Mla | None, kinds: object) -> str:
    """The published family that computes alike."""
    if kinds is not None:
        return "nemotron_h"
    if run[mg.decoder_layers] is not None:
        return "t5"
    if norm == "ln":
        return {"gelu": "starcoder2", "relu2": "nemotron"}.get(act, "stablelm")
    if mla is not None:
        return "deepseek_v3"
    if moe is not None:
        return "qwen3_moe" if run[mg.qk_norm] else "mixtral"
    if run[mg.qk_norm]:
        return "qwen3"
    # A bias on queries, keys and values alone (--add-qkv-bias beside --disable-bias-linear) is Qwen2's; LLaMA's class
    # has one on the output as well.
    return "qwen2" if run[mg.qkv_bias] and not run[mg.bias] else "llama"


def _ffn(run: Cells, hidden: int, act: str) -> int:
    """Four times the hidden size; of a gated one two thirds of it, a multiple of 64."""
    given = run[mg.ffn]
    if given:
        return given
    return int(4 * hidden * 2 / 3 / 64) * 64 if act in ("swiglu", "geglu") else 4 * hidden


_FREQUENCY = re.compile(r"\(?\[(\d)\]\*(\d+)\+\[(\d)\]\*(\d+)\)?$")

# [0,1,1]: whether each layer has experts.
_LAYER_BY_LAYER = re.compile(r"\[[01](?:,[01])*\]")


def _moe(run: Cells, hidden: int, act: str) -> Moe | None:
    experts = run[mg.experts]
    if not experts or experts == 1:
        return None
    shared = run[mg.shared_ffn] or 0
    frequency = str(run[mg.moe_freq] or 1).replace(" ", "")
    first, every = 0, 1
    pattern = _FREQUENCY.match(frequency)
    if pattern is not None and pattern[1] == "0":
        first = int(pattern[2])  # ([0]*1+[1]*26): one dense layer, then experts
    elif frequency.isdigit():
        every = max(1, int(frequency))
    elif _LAYER_BY_LAYER.fullmatch(frequency):
        layers = [int(digit) for digit in re.findall(r"\d", frequency)]
        first = layers.index(1) if 1 in layers else len(layers)
        every = max(1, round((len(layers) - first) / max(1, sum(layers))))
    return Moe(
        experts=experts,
        topk=run[mg.topk] or 2,
        moe_ffn=run[mg.moe_ffn] or _ffn(run, hidden, act),
        shared_experts=1 if shared else 0,
        shared_ffn=shared,
        first_dense=first,
        every_n=every,
    )


def _mla(run: Cells) -> Mla | None:
    """megatron/core/transformer/transformer_config.py MLATransformerConfig."""
    if not run[mg.mla]:
        return None
    return Mla(
        q_rank=run[mg.q_rank],
        kv_rank=run[mg.kv_rank] or 512,
        qk_nope=run[mg.qk_nope] or 128,
        qk_rope=run[mg.qk_rope] or 64,
        v_dim=run[mg.v_dim] or 128,
    )
