"""MPT, the model that LLM Foundry builds from scratch, with the dimensions in the file.

Read from llm-foundry 0.22.0.dev0 (8c8dd48f); ``LF`` below is the package ``llmfoundry``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.llm_foundry.keys import mpt, own
from oomlint.dialects.meaning import Meaning
from oomlint.models.given import with_members
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.plan.model import ModelDims, Moe

mpt_model = Meaning()


def is_mpt(run: Cells) -> bool:
    return run[own.model] == "mpt_causal_lm"


# Without these nothing is known of the model's size.
_SIZES = (
    mpt.d_model,
    mpt.n_heads,
    mpt.n_layers,
    mpt.vocab_size,
    mpt.expansion_ratio,
    mpt.ffn,
)


@mpt_model.fact(
    f.model.dims,
    f.model.arch,
    source="the dimensions in the file; LF/models/mpt/configuration_mpt.py",
)
def dimensions(run: Cells) -> Any:
    if not is_mpt(run) or run.known.model(run[f.model.id]) is not None:
        return None
    if any(run.level(size) is Level.UNREAD for size in _SIZES):
        return None
    dims = _dims(run)
    return {f.model.dims: with_members(dims, run.known.options), f.model.arch: dims.arch}


def _dims(run: Cells) -> ModelDims:
    """The defaults are those of MPTConfig."""
    hidden, heads = run.get(mpt.d_model, 2048), run.get(mpt.n_heads, 16)
    kv_heads = run[mpt.kv_n_heads]
    if not kv_heads:
        kv_heads = 1 if run[mpt.attn_type] == "multiquery_attention" else heads
    ffn = run[mpt.ffn] or int(hidden * run.get(mpt.expansion_ratio, 4.0))
    is_biased = not run[mpt.no_bias]
    return ModelDims(
        arch=_arch(run),
        layers=run.get(mpt.n_layers, 24),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=run[mpt.head_dim] or hidden // heads,
        ffn=ffn,
        vocab=run.get(mpt.vocab_size, 50_368),
        tie_embeddings=run.get(mpt.tie, True),
        attn_bias=is_biased,
        mlp_bias=is_biased,
        norm="rms" if "rms" in run.get(mpt.norm_type, "") else "ln",
        act=_activation(run),
        ctx=run[f.seq.max_len] or 2048,
        moe=_experts(run, ffn),
    )


def _arch(run: Cells) -> str:
    """LLM Foundry's own block by what it has of positions, norms and biases (LF/models/layers/blocks.py); a gated MLP
    makes it one of Llama's, and experts are counted as those of transformers' MPT."""
    if _is_gated(run):
        return "llama"
    if _has_experts(run):
        return "mpt"
    positions = "_alibi" if run[mpt.alibi] else "_rope" if run[mpt.rope] else ""
    return f"foundry{positions}{_norm(run)}{'_plain' if run[mpt.no_bias] else ''}"


def _norm(run: Cells) -> str:
    """LF/layers_registry.py norms: without a name it is the layer norm of low precision."""
    named = run.get(mpt.norm_type, "low_precision_layernorm")
    if "rms" in named:
        return "_rms"
    return "" if named.startswith("low_precision") else "_wide"


def _ffn_type(run: Cells) -> str:
    return run.get(mpt.ffn_type, "mptmlp")


def _has_experts(run: Cells) -> bool:
    return "moe" in _ffn_type(run)


def _is_gated(run: Cells) -> bool:
    return "glu" in _ffn_type(run) or (_has_experts(run) and run[mpt.mlp_type] == "glu")


def _activation(run: Cells) -> Any:
    if not _is_gated(run):
        return "gelu"
    return "swiglu" if run[mpt.act] == "silu" else "geglu"


def _experts(run: Cells, ffn: int) -> Moe | None:
    """LF/models/layers/ffn.py: megablocks' own defaults are one expert, top 1."""
    if not _has_experts(run):
        return None
    return Moe(experts=run.get(mpt.experts, 1), topk=run.get(mpt.topk, 1), moe_ffn=ffn)
