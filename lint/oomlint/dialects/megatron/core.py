"""What Megatron-core makes of its numbers, whoever gives them: model, batches, recomputation.

Megatron-LM's command line and NeMo's YAML both end in megatron.core's TransformerConfig. Their
tables give the private fields ``mg.*``; functions here complete a draft from them. Read from
Megatron-LM d98e8a64 (2026-08-22) and core_v0.7.0; ``MG`` below is its ``megatron`` package.
"""

from __future__ import annotations

import re
from typing import Any

from oomlint.dialects.draft import Draft
from oomlint.errors import CannotEdit
from oomlint.models import lookup
from oomlint.plan.model import Mla, ModelDims, Moe

ARGUMENTS = "Megatron-LM d98e8a64 training/arguments.py"
_BLOCK = "Megatron-core transformer/transformer_block.py _checkpointed_forward"

# Tokens of the vocabularies behind --tokenizer-type (MG/training/tokenizer; GPT-2's and BERT's
# own files, Llama's SentencePiece model).
_VOCABULARIES = {
    "gpt2bpetokenizer": 50257,
    "bertwordpiecelowercase": 30522,
    "bertwordpiececase": 28996,
    "llama2tokenizer": 32000,
    "tiktokenizer": 131072,
    "megatron": 50257,
}
_ASSUMED_VOCABULARY = 50257

DIMENSIONS = (
    "mg.layers", "mg.hidden", "mg.heads", "mg.ffn", "mg.groups", "mg.head_dim", "mg.vocab",
    "mg.act", "mg.norm", "mg.untied", "mg.experts", "mg.pattern", "mg.decoder_layers",
)  # fmt: skip

# Layers of a hybrid stack (Megatron-core models/hybrid/hybrid_layer_allocation.py Symbols) that
# one part each stands for; other mixers are not counted.
_LAYER_KINDS = {"M": "mamba", "*": "full_attention", "-": "mlp", "E": "moe"}


def finish_dims(draft: Draft) -> None:
    """The model's dimensions, which Megatron is given one by one."""
    layers, hidden, heads = (draft.get(f"mg.{n}") for n in ("layers", "hidden", "heads"))
    numbers = ("layers", "hidden", "heads", "ffn", "pattern", "decoder_layers")
    unclear = {f"mg.{n}" for n in numbers} & set(draft.unknown)
    kinds = _layer_kinds(draft)
    if kinds is not None:
        layers = len(kinds)
    decoder = draft.get("mg.decoder_layers")
    if not (layers and hidden and heads) or unclear or decoder not in (None, layers):
        return
    act: Any = draft.get("mg.act") or "gelu"
    norm: Any = draft.get("mg.norm") or "ln"
    head_dim = draft.get("mg.head_dim") or hidden // heads
    moe, mla = _moe(draft, hidden, act), _mla(draft)
    bias = bool(draft.get("mg.bias"))
    arch = _arch(norm, act, moe is not None, mla is not None, bool(draft.get("mg.qk_norm")))
    if decoder is not None:
        arch = "t5"  # an encoder and a decoder of equal depth
    dims = ModelDims(
        arch=arch if kinds is None else "nemotron_h",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=draft.get("mg.groups") or heads,
        head_dim=head_dim if mla is None else (mla.qk_nope or 0) + (mla.qk_rope or 0),
        ffn=_ffn(draft, hidden, act),
        vocab=_vocabulary(draft),
        tie_embeddings=not draft.get("mg.untied"),
        attn_bias=bias or bool(draft.get("mg.qkv_bias")),
        mlp_bias=bias,
        qk_norm=bool(draft.get("mg.qk_norm")),
        norm=norm,
        act=act,
        ctx=draft.get("mg.max_positions") or draft.get("seq.max_len"),
        moe=moe,
        mla=mla,
        mtp_layers=draft.get("mg.mtp"),
        layer_types=kinds,
        ssm=None if kinds is None else _ssm(draft, hidden),
    )
    draft.forget("model.dims")
    draft.derive("model.dims", dims, *DIMENSIONS)
    draft.derive("model.arch", dims.arch, "mg.norm", "mg.act")


def _layer_kinds(draft: Draft) -> tuple[str, ...] | None:
    """What each layer of a hybrid stack is: ``M-M*-`` without the marks of pipeline stages, up
    to the layers of multi-token prediction. Nothing where there is no pattern, or a layer in it
    that is not counted."""
    pattern = str(draft.get("mg.pattern") or "").partition("/")[0].replace("|", "")
    kinds = tuple(_LAYER_KINDS.get(symbol, "") for symbol in pattern)
    return kinds if kinds and all(kinds) else None


def _ssm(draft: Draft, hidden: int) -> dict[str, int]:
    """Megatron-core transformer/transformer_config.py:1259; ssm/mamba_mixer.py expands twofold and
    convolves over four tokens."""
    head_dim = draft.get("mg.ssm_head_dim") or 64
    return {
        "num_heads": draft.get("mg.ssm_heads") or 2 * hidden // head_dim,
        "head_dim": head_dim,
        "state_size": draft.get("mg.ssm_state") or 128,
        "n_groups": draft.get("mg.ssm_groups") or 8,
        "conv_kernel": 4,
    }


def _arch(norm: str, act: str, moe: bool, mla: bool, qk_norm: bool) -> str:
    """The published family that computes alike."""
    if norm == "ln":
        return {"gelu": "starcoder2", "relu2": "nemotron"}.get(act, "stablelm")
    if mla:
        return "deepseek_v3"
    if moe:
        return "qwen3_moe" if qk_norm else "mixtral"
    return "qwen3" if qk_norm else "llama"


def _ffn(draft: Draft, hidden: int, act: str) -> int:
    """Four times the hidden size; of a gated one two thirds of it, a multiple of 64."""
    given = draft.get("mg.ffn")
    if given:
        return int(given)
    return int(4 * hidden * 2 / 3 / 64) * 64 if act in ("swiglu", "geglu") else 4 * hidden


def _vocabulary(draft: Draft) -> int:
    """Padded to a multiple of ``make_vocab_size_divisible_by`` on every tensor-parallel rank."""
    vocab = draft.get("mg.vocab")
    if vocab is None:
        vocab = _VOCABULARIES.get(str(draft.get("mg.tokenizer") or "").lower())
    if vocab is None:
        facts = lookup(str(draft.get("mg.tokenizer_model") or ""))
        vocab = facts.dims.vocab if facts is not None else None
    if vocab is None:
        vocab = _ASSUMED_VOCABULARY
        draft.assume("mg.vocab", vocab, "the size of the vocabulary is in the tokenizer's files")
    vocab += draft.get("mg.extra_vocab") or 0
    multiple = (draft.get("mg.divisor") or 128) * (draft.get("parallel.tp") or 1)
    return int(-(-vocab // multiple) * multiple)


_PATTERN = re.compile(r"\(?\[(\d)\]\*(\d+)\+\[(\d)\]\*(\d+)\)?$")


def _moe(draft: Draft, hidden: int, act: str) -> Moe | None:
    experts = draft.get("mg.experts")
    if not experts or experts == 1:
        return None
    shared = draft.get("mg.shared_ffn") or 0
    frequency = str(draft.get("mg.moe_freq") or 1).replace(" ", "")
    first, every = 0, 1
    pattern = _PATTERN.match(frequency)
    if pattern is not None and pattern[1] == "0":
        first = int(pattern[2])  # ([0]*1+[1]*26): one dense layer, then experts
    elif frequency.isdigit():
        every = max(1, int(frequency))
    return Moe(
        experts=experts,
        topk=draft.get("mg.topk") or 2,
        moe_ffn=draft.get("mg.moe_ffn") or _ffn(draft, hidden, act),
        shared_experts=1 if shared else 0,
        shared_ffn=shared,
        first_dense=first,
        every_n=every,
    )


def _mla(draft: Draft) -> Mla | None:
    """MG/core/transformer/transformer_config.py MLATransformerConfig."""
    if not draft.get("mg.mla"):
        return None
    return Mla(
        q_rank=draft.get("mg.q_rank"),
        kv_rank=draft.get("mg.kv_rank") or 512,
        qk_nope=draft.get("mg.qk_nope") or 128,
        qk_rope=draft.get("mg.qk_rope") or 64,
        v_dim=draft.get("mg.v_dim") or 128,
    )


def finish_parallel(draft: Draft) -> None:
    """Sequence parallelism and virtual stages as Megatron takes them."""
    if (draft.get("parallel.tp") or 1) <= 1:
        # "Disable sequence parallelism when tp=1 to avoid change in numerics".
        draft.override("parallel.sp", False, "parallel.tp", source=ARGUMENTS)
    layers, pp = draft.get("mg.layers"), draft.get("parallel.pp") or 1
    each = draft.get("mg.virtual_layers")
    if each and layers and pp > 1:
        draft.derive("parallel.vpp", max(1, layers // pp // each), "mg.virtual_layers")
    if pp > 1:
        draft.derive("parallel.pp_schedule", "1F1B", "parallel.pp")


def finish_batch(draft: Draft) -> None:
    """Accumulation is what the global batch leaves after the ranks' micro batches."""
    micro, dp = draft.get("batch.micro"), draft.get("parallel.dp")
    total = draft.get("mg.global_batch")
    if draft.is_unknown("mg.global_batch") or micro is None:
        return
    if total is None:
        draft.derive("batch.grad_accum", 1, "mg.global_batch", source=f"{ARGUMENTS}:703")
        draft.derive("batch.global", micro * dp if dp else None, "batch.micro", "parallel.dp")
        return
    draft.derive("batch.global", total, "mg.global_batch")
    if dp:
        draft.derive(
            "batch.grad_accum", max(1, total // (micro * dp)), "mg.global_batch", "batch.micro",
            "parallel.dp", source="Megatron-core num_microbatches_calculator.py",
        )  # fmt: skip


def finish_recompute(draft: Draft) -> None:
    """``block`` recomputes the first layers of each stage only, ``uniform`` all of them."""
    mode = draft.get("checkpointing.mode")
    draft.derive("checkpointing.source", "megatron", "checkpointing.mode")
    draft.derive("checkpointing.reentrant", True, "checkpointing.mode", source=_BLOCK)
    draft.derive("checkpointing.offload", "none", "checkpointing.mode")
    layers, total = draft.get("mg.recompute_layers"), draft.get("mg.layers")
    if mode != "full" or draft.get("mg.recompute_method") != "block" or not (layers and total):
        return
    virtual = draft.get("parallel.vpp") or 1
    stage = -(-total // ((draft.get("parallel.pp") or 1) * virtual))
    if layers < stage:
        inputs = ("mg.recompute_method", "mg.recompute_layers")
        draft.override("checkpointing.mode", "block_partial", *inputs, source=_BLOCK)
        draft.derive("checkpointing.every_n", -(-stage // layers), *inputs, source=_BLOCK)


def expressed_batch(own: dict[str, Any], draft: Draft) -> None:
    """Puts an accumulation wanted into the global batch that it makes up.

    Raises:
        CannotEdit: the global batch counts ranks whose number nobody says.
    """
    accumulation, micro = own.pop("batch.grad_accum", None), own.get("batch.micro")
    if accumulation is None:
        return
    dp = draft.get("parallel.dp")
    setting = draft.settings.get("parallel.gpus_per_node")
    assumed = setting is not None and setting.origin.kind == "assumed"
    rows = (micro or draft.get("batch.micro") or 1) * accumulation
    before = (draft.get("batch.micro") or 0) * (draft.get("batch.grad_accum") or 0)
    total = draft.get("mg.global_batch")
    if total is not None and rows == before:
        return  # the same global batch: more steps follow from the smaller one
    if dp is None or assumed:
        raise CannotEdit("the global batch counts all GPUs, whose number is not known")
    own["mg.global_batch"] = rows * dp


NO_WAY = {
    "parallel.zero.stage": "Megatron shards by its own degrees",
    "parallel.fsdp.state_dict": "Megatron saves every rank's part by itself",
    "load.cpu_ram_efficient": "Megatron builds every rank's part on its GPU",
    "load.zero3_init": "Megatron shards by its own degrees",
    "offload.params": "Megatron offloads optimizer states only",
    "quant.method": "Megatron trains no quantized weights",
    "optimizer.fused": "Megatron's Adam is always the fused one",
    "offload.pin_memory": "Megatron has no switch for pinned memory",
}
