"""The model that OLMo builds from its keys.

Read from allenai/OLMo 59a53e3f (2025-09-04); ``OL`` below is its package ``olmo``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import shared
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.dialects.olmo.keys import CONFIG, MODEL_CONFIG, OLMO, SOURCE, own
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f
from oomlint.plan.model import ModelDims

model = Meaning()

_CLASSES = f"{SOURCE} olmo/model.py"
_ROWS_OF_EMBEDDING = 50_304  # ModelConfig.embedding_size, where the key is not there
_NEEDED = (
    own.hidden, own.heads, own.kv_heads, own.layers, own.ffn, own.expansion, own.vocab, own.embeddings, f.seq.max_len,
)  # fmt: skip


def is_null(run: Cells, key: str) -> bool:
    """Whether the last file or line with this key says ``null``, which is another thing than to leave a
    key with a default out."""
    blocks = (block for block in reversed(run.blocks) if block.table is OLMO)
    entries = ((block, block.find(key)) for block in blocks)
    found = next(((block, entry) for block, entry in entries if entry is not None), None)
    return found is not None and found[0].value(found[1].value) in (None, "null")


@model.derive(f.model.dims, f.model.arch, source=f"{MODEL_CONFIG}; olmo/model.py")
def dimensions(run: Cells) -> Any:
    if any(map(run.is_unread, _NEEDED)):
        return None
    dims = _dims(run)
    return {f.model.dims: dims, f.model.arch: dims.arch}


def _dims(run: Cells) -> ModelDims:
    hidden, heads = run[own.hidden], run[own.heads]
    is_gated = run[own.act] == "swiglu"
    return ModelDims(
        arch=_arch(run),
        layers=run[own.layers],
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(run),
        head_dim=hidden // heads,
        ffn=_wide(run) // 2 if is_gated else _wide(run),
        vocab=_rows(run),
        tie_embeddings=run[own.tied],
        attn_bias=run[own.bias],
        mlp_bias=run[own.bias],
        qk_norm=run[own.qk_norm],
        norm=run[own.norm_type],
        act=run[own.act],
        ctx=run[f.seq.max_len],
        params_total=_parameters(run),
    )


def _arch(run: Cells) -> str:
    """Of OLMo's blocks the kind with these norms (memory/traits.py)."""
    norm = run[own.norm_type] if run[own.affine] else "plain"
    after = "_after" if run[own.norm_after] else ""
    return f"olmo_{norm}{after}{'_clamped' if run.mentions(own.clamp) else ''}"


def _kv_heads(run: Cells) -> int:
    """OL/config.py ModelConfig.effective_n_kv_heads."""
    return run[own.kv_heads] or (1 if run[own.multi_query] else run[own.heads])


def _wide(run: Cells) -> int:
    """What the first projection of the feed-forward part makes: of SwiGLU both halves (OL/model.py
    OLMoBlock, ``output_multiplier``)."""
    return run[own.ffn] or int(run[own.expansion] * run[own.hidden])


def _rows(run: Cells) -> int:
    if is_null(run, "model.embedding_size"):
        return run[own.vocab]
    return run[own.embeddings] or _ROWS_OF_EMBEDDING


def _parameters(run: Cells) -> int:
    """Every parameter of OL/model.py OLMo, as its modules are built."""
    hidden, bias = run[own.hidden], int(run[own.bias])
    kv = hidden // run[own.heads] * _kv_heads(run)
    wide = _wide(run)
    narrow = wide // 2 if run[own.act] == "swiglu" else wide
    norm_bias = run[own.norm_bias]
    each = 1 + (bias if norm_bias is None else int(norm_bias))
    norm = each * hidden if run[own.affine] else 0
    block = 2 * norm
    if run[own.qk_norm] and run[own.qk_affine]:
        block += each * (hidden + kv)
    for inputs, outputs in (
        (hidden, hidden + 2 * kv), (hidden, hidden), (hidden, wide), (narrow, hidden),
    ):  # fmt: skip
        block += inputs * outputs + bias * outputs
    rows = _rows(run)
    total = rows * hidden + run[own.layers] * block + norm
    if not run[own.tied]:
        total += rows * hidden + bias * rows
    if not (run[own.alibi] or run[own.rope]):
        total += (run[f.seq.max_len] or 0) * hidden
    return total + (norm if run[own.embed_norm] else 0)


model.always(f.model.from_scratch, True, f"{SOURCE} scripts/train.py: OLMo(cfg.model)")


@model.derive(f.model.attn_impl, source=f"{_CLASSES} OLMoBlock._scaled_dot_product_attention")
def attention(run: Cells) -> Any:
    """A bias keeps flash attention out, and torch's own has no kernel for one while the
    memory-efficient is switched off. The block ``llama`` multiplies by itself."""
    if run[own.block_type] == "llama" or run[own.alibi] or run[own.mask]:
        return "eager"
    if run[own.flash]:
        return "flash2"
    return "eager" if run[own.precision] == "fp32" else "sdpa"


@attention.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted not in ("flash2", "sdpa") or run[own.block_type] == "llama":
        raise CannotEdit("OLMo has flash attention and torch's, in blocks of kind sequential")
    if run[own.alibi] or run[own.mask]:
        raise CannotEdit("attention with a bias of its own has no flash kernel in OLMo")
    return {own.flash: wanted == "flash2"}


@model.derive(shared.refused, source=f"{_CLASSES} OLMo.__init__")
def does_not_go_together(run: Cells) -> Any:
    """What the model itself refuses as it is made."""
    if not run[own.alibi]:
        return None
    if run[own.flash]:
        return "OLMo refuses ALiBi beside flash attention"
    return "OLMo refuses ALiBi beside rotary embeddings" if run[own.rope] else None


@model.derive(f.compile.enabled, source=f"{CONFIG} CompilerConfig")
def compiles(run: Cells) -> Any:
    return run[own.compile] is not None


# -- where the weights come from -------------------------------------------------------------------

model.always(f.load.dtype, "fp32", f"{_CLASSES}: parameters are made without a dtype")
model.always(f.load.device_map, "none", _CLASSES)


@model.derive(f.load.meta_init, source=f"{CONFIG} ModelConfig.init_device")
def built_on_no_host(run: Cells) -> Any:
    """Left out, every rank builds the whole model in RAM first."""
    return not _is_on_host(run)


def _is_on_host(run: Cells) -> bool:
    return (run[own.init_device] or "cpu").partition(":")[0] == "cpu"


@model.derive(f.load.per_rank_host_copies, source=f"{CONFIG} ModelConfig.init_device")
def copies_on_host(run: Cells) -> Any:
    return 1 if _is_on_host(run) else 0


@built_on_no_host.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not wanted:
        return {own.init_device: "cpu"}
    return {own.init_device: "meta" if run[own.strategy] == "fsdp" else "cuda"}


@model.derive(f.load.resume, source=f"{SOURCE} scripts/train.py: trainer.restore_checkpoint")
def resumes(run: Cells) -> Any:
    return run.mentions(own.load_path)


model.cannot_say(
    "OLMo builds a model that starts from nothing: init_device says where",
    f.load.cpu_ram_efficient,
    f.load.low_cpu_mem,
)
