"""The model that GPT-NeoX builds from its keys.

Read from gpt-neox ea7aefd8 (2026-05-20); ``NX`` below is its ``megatron`` package.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.gpt_neox.keys import own
from oomlint.dialects.meaning import Meaning
from oomlint.plan.fields import f
from oomlint.plan.model import ModelDims, Moe

model = Meaning()

# Tokens of the vocabularies that NX/tokenizer/tokenizer.py build_tokenizer knows by themselves, and
# of the file that comes with GPT-NeoX-20B and Pythia (EleutherAI/gpt-neox-20b tokenizer.json,
# added tokens included).
_VOCABULARIES = {"gpt2bpetokenizer": 50257, "hfgpt2tokenizer": 50257, "charleveltokenizer": 512}
_VOCABULARY_FILES = {"20b_tokenizer.json": 50277, "gpt2-vocab.json": 50257}
_ASSUMED_VOCABULARY = 50277

_STATE, _KERNEL = 16, 4  # NX/model/mamba/mamba.py ParallelMambaBlock: d_state, d_conv
_NEEDED = (own.layers, own.hidden, own.heads, own.ffn, own.expansion, own.kernels, own.mlp)
_WITHOUT_ATTENTION = frozenset({"gmlp", "amlp", "rwkv", "mamba"})
_STACK = "gpt-neox ea7aefd8 megatron/model/transformer.py"


@model.derive(f.model.dims, f.model.arch, source=_STACK)
def dimensions(run: Cells) -> Any:
    is_mamba = _kinds(run) == {"mamba"} and not run.is_unread(own.kernels)
    dims = _mamba(run) if is_mamba else None
    if dims is not None:
        return {f.model.dims: dims, f.model.arch: dims.arch}
    if kernels_of(run) is None:
        others = sorted(_kinds(run) & _WITHOUT_ATTENTION)
        return {f.model.arch: others[0]} if others else None
    dims = _stack(run)
    return None if dims is None else {f.model.dims: dims, f.model.arch: dims.arch}


def kernels_of(run: Cells) -> frozenset[str] | None:
    """The kinds of attention in the stack; ``None`` where it has layers of another kind, or they
    cannot be read (NX/utils.py expand_attention_types)."""
    found = _kinds(run)
    return None if run.is_unread(own.kernels) or found & _WITHOUT_ATTENTION else found


def _kinds(run: Cells) -> frozenset[str]:
    found: set[str] = set()
    for item in run[own.kernels] or ["global"]:
        names = item[0] if isinstance(item, list | tuple) and item else item
        found.update(map(str, names if isinstance(names, list | tuple) else [names]))
    return frozenset(found)


def _stack(run: Cells) -> ModelDims | None:
    layers, hidden, heads = run[own.layers], run[own.hidden], run[own.heads]
    if not (layers and hidden and heads) or any(map(run.is_unread, _NEEDED)):
        return None
    ffn, act = _ffn(run, hidden), "swiglu" if _is_llamas(run) else run[own.activation]
    moe = (run[own.experts] or 1) > 1
    if moe and not _is_gated(run):
        # No published model has plain experts: gated ones of as many weights stand for them.
        ffn, act = max(1, ffn * 2 // 3), "swiglu"
    return ModelDims(
        arch=_arch(run),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=run[own.kv_heads] or heads,
        head_dim=hidden // heads,
        ffn=ffn,
        vocab=_padded_vocabulary(run),
        tie_embeddings=not run[own.untied],
        attn_bias=run[own.attention_bias],
        mlp_bias=run[own.mlp_bias] and not _is_llamas(run),
        qk_norm=run[own.qk_norm],
        norm=run[own.norm],
        act=act,
        ctx=run[own.max_positions] or run[f.seq.max_len],
        sliding_window=run[own.window],
        moe=_moe(run, ffn) if moe else None,
    )


def _mamba(run: Cells) -> ModelDims | None:
    """NX/model/mamba/mamba.py: Mamba's own layers, where one kernel computes all behind the first projection
    (``mamba_inner_func_fusion``); otherwise the states of every token may be kept."""
    layers, hidden = run[own.layers], run[own.hidden]
    if not (layers and hidden and run[own.mamba_fusion]) or any(map(run.is_unread, _NEEDED)):
        return None
    inner = run[own.ffn] or int((run[own.expansion] or 2) * hidden)
    return ModelDims(
        arch="mamba", layers=layers, hidden=hidden, ffn=inner, vocab=_padded_vocabulary(run),
        tie_embeddings=not run[own.untied], norm=run[own.norm], act="silu", ctx=run[f.seq.max_len],
        ssm={
            "state_size": _STATE, "conv_kernel": _KERNEL, "expand": 2, "time_step_rank": -(-hidden // 16),
        },
    )  # fmt: skip


def _arch(run: Cells) -> str:
    """The published family that computes alike."""
    if (run[own.experts] or 1) > 1:
        return "mixtral"
    if run[own.norm] == "rms":
        return "llama"
    if _is_gated(run):
        return "stablelm"
    return "gpt2" if run[own.positions] == "learned" else "gpt_neox"


def _is_llamas(run: Cells) -> bool:
    """The MLP of LLaMA as it was until ``mlp_type`` went (299b68cd to adbf5d6f; the newest refuse the
    key)."""
    return str(run[own.mlp] or "").lower() == "llama"


def _is_gated(run: Cells) -> bool:
    return _is_llamas(run) or run[own.activation] in ("swiglu", "geglu")


def _ffn(run: Cells, hidden: int) -> int:
    """The width inside an MLP (ParallelMLP.__init__): of a gated one a third of the given, which
    counts both halves of the first projection and a third more, so that it has as many weights
    as a plain one. LLaMA's older one had the width given, or two thirds of four times the hidden size
    in steps of 256 (f36aed7f LLaMAParallelMLP)."""
    if _is_llamas(run):
        return run[own.ffn] or -(-int(2 * hidden * 4 / 3) // 256) * 256
    given = run[own.ffn] or int((run[own.expansion] or 4) * hidden)
    if _is_gated(run):
        given = int(given * 2 / 3) // 2
    multiple = run[own.multiple] or 1
    return -(-given // multiple) * multiple


def _moe(run: Cells, ffn: int) -> Moe | None:
    """NX/model/transformer.py:965: every ``moe_expert_interval``-th layer has experts."""
    experts = run[own.experts] or 1
    if experts <= 1:
        return None
    every = run[own.expert_interval] or 1
    return Moe(experts=experts, topk=run[own.topk], moe_ffn=ffn, first_dense=0, every_n=every)


# -- vocabulary ------------------------------------------------------------------------------------


@model.derive(own.vocab)
def vocabulary(run: Cells) -> Any:
    """What the tokenizer has, where its name or its file tells."""
    size = _VOCABULARIES.get(run.otherwise(own.tokenizer, "").lower())
    file = run.otherwise(own.vocab_file, "").replace("\\", "/").rpartition("/")[2].lower()
    return size if size is not None else _VOCABULARY_FILES.get(file)


@model.assume(own.vocab, why="the size of the vocabulary is in the tokenizer's files")
def usual_vocabulary(run: Cells) -> Any:
    return _ASSUMED_VOCABULARY


def _padded_vocabulary(run: Cells) -> int:
    """A multiple of ``make_vocab_size_divisible_by`` on every tensor-parallel rank
    (NX/tokenizer/tokenizer.py _vocab_size_with_padding)."""
    multiple = (run[own.divisor] or 128) * (run[f.parallel.tp] or 1)
    return -(-run[own.vocab] // multiple) * multiple
