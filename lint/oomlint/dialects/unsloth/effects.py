"""What Unsloth makes of the arguments of its classes and of TRL's.

Read from unsloth 015bdef0 (2026-08-22; ``U`` below is ``unslothai/unsloth unsloth/``) and
unsloth_zoo 2026.10.9 (``Z``).
"""

from __future__ import annotations

from collections.abc import Mapping as MappingABC

from oomlint.dialects.draft import Draft
from oomlint.dialects.law import is_adapter_run
from oomlint.dialects.table import Table
from oomlint.dialects.unsloth.keys import CLI, CONFIGS, FAST_PEFT, PATCHED, PLAIN, SEVEN, WRAPPER

# U models/_utils.py apply_unsloth_gradient_checkpointing: shorter samples stay on the GPU.
SHORTEST_OFFLOADED = 512


def finish_config(draft: Draft) -> None:
    """What Unsloth makes of the training arguments before TRL sees them."""
    tables = [block.table for block in draft.blocks]
    nowhere = not draft.says("save.dir") and not draft.is_unknown("save.dir")
    if nowhere and not draft.says("save.strategy") and _is_among(tables, PATCHED):
        draft.override("save.strategy", "no", "save.dir", source=CONFIGS)
    if _is_among(tables, PLAIN) and not draft.says("batch.eval_micro"):
        source = "unsloth models/rl.py:2463: the default of 8 gives way to the training batch"
        draft.override("batch.eval_micro", draft.get("batch.micro"), "batch.micro", source=source)
    if draft.get("unsloth.vllm"):
        # vLLM and the trainer share one copy of the weights (U models/llama.py load_vllm): what
        # its share of the GPU leaves cannot be added up as if each had its own.
        draft.unknown["objective.rollout.engine"] = draft.settings["unsloth.vllm"].origin
    if draft.get("unsloth.tiled_mlp"):
        # The MLP then works on pieces of a sample, whatever its length; that is not modelled.
        for field in ("unsloth.max_len", "seq.max_len"):
            draft.forget(field)
            draft.unknown[field] = draft.settings["unsloth.tiled_mlp"].origin


def _is_among(tables: list[Table], known: MappingABC[str, Table]) -> bool:
    return any(table is each for table in tables for each in known.values())


def finish_load(draft: Draft) -> None:
    """What the weights are: U models/loader.py FastModel.from_pretrained."""
    full = bool(draft.get("unsloth.full"))
    wide = full or bool(draft.get("unsloth.load_16bit") or draft.get("unsloth.load_8bit"))
    four = bool(draft.get("unsloth.load_4bit")) and not wide
    eight = bool(draft.get("unsloth.load_8bit")) and not full
    if not draft.is_unknown("unsloth.load_4bit"):
        draft.derive("hf.load_4bit", four, "unsloth.load_4bit", "unsloth.full")
        draft.derive("hf.load_8bit", eight, "unsloth.load_8bit", "unsloth.full")
    draft.derive(
        "quant.double", four or None, "unsloth.load_4bit", source="unsloth models/llama.py:2620"
    )
    wraps = any(block.table in (FAST_PEFT, CLI) for block in draft.blocks)
    if wraps or full or draft.get("script.adapter"):
        draft.derive("hf.use_peft", not full, "unsloth.full", "trainable.r")
        if wraps and not full and not draft.get("hf.lora_targets"):
            draft.default("hf.lora_targets", _targets(draft), WRAPPER)
    else:
        # The name may be that of an adapter trained before, which goes on.
        draft.assume("hf.use_peft", True, "no call adds an adapter: the checkpoint brings its own")
    said = draft.get("hf.load_dtype")
    if not draft.is_unknown("hf.load_dtype"):
        draft.derive("load.dtype", None if said == "auto" else said, "hf.load_dtype")
    draft.unknown.pop("hf.load_dtype", None)
    draft.assume(
        "load.dtype", "bf16", "Unsloth takes bf16 on GPUs from Ampere on, fp16 on older ones"
    )
    half = "fp16" if draft.get("load.dtype") == "fp16" else "bf16"
    for flag in ("bf16", "fp16"):
        # `bf16 = is_bfloat16_supported()`; U models/rl.py turns a flag that does not match.
        draft.unknown.pop(f"hf.{flag}", None)
        mixed = flag == half and (not full or bool(draft.get("unsloth.fp32")))
        draft.override(f"hf.{flag}", mixed, "load.dtype", source="unsloth models/rl.py:2385")
    if full and draft.get("unsloth.fp32"):
        draft.override("load.dtype", "fp32", "unsloth.fp32", source="unsloth models/vision.py:1256")
    draft.derive("trl.model_object", True, "model.id")
    draft.derive("load.device_map", "none", "model.id")


def finish_quant(draft: Draft) -> None:
    """Unsloth loads its own copy of a model that comes quantized (U models/mapper.py): nothing is
    quantized twice, and gpt-oss in 4 bit is bitsandbytes', experts included."""
    draft.forget("quant.requested_bits")
    if draft.get("model.native_quant") == "mxfp4" and draft.get("hf.load_4bit"):
        source = "unsloth models/mapper.py: gpt-oss-20b-unsloth-bnb-4bit"
        draft.override("quant.method", "bnb4", "unsloth.load_4bit", source=source)
        draft.override("quant.quantises_moe_experts", True, "unsloth.load_4bit", source=source)


def _targets(draft: Draft) -> tuple[str, ...]:
    """FastLanguageModel names seven modules; FastModel and FastVisionModel take every linear one
    of the towers that are trained (U models/vision.py:1858)."""
    return SEVEN if _is_for_language(draft) else ("all-linear",)


def _is_for_language(draft: Draft) -> bool:
    """Whether it is FastLanguageModel that adds the adapter, as on the command line."""
    block = next((block for block in draft.blocks if block.table in (FAST_PEFT, CLI)), None)
    if block is None or block.table is CLI:
        return block is not None
    text = block.document.source.text[block.anchor.start : block.anchor.end]
    return text.startswith("FastLanguageModel")


def finish_length(draft: Draft) -> None:
    """The shorter of the model's and the trainer's (U models/rl.py:2509)."""
    own, model = draft.get("seq.max_len"), draft.get("unsloth.max_len")
    if model is None:
        return
    if own is None and not draft.is_unknown("seq.max_len"):
        draft.derive("seq.max_len", model, "unsloth.max_len", source="unsloth models/rl.py:2515")
    elif own is not None and own > model:
        draft.override("seq.max_len", model, "unsloth.max_len", source="unsloth models/rl.py:2521")


def finish_memory(draft: Draft, kind: str) -> None:
    mode, length = draft.get("unsloth.checkpointing"), draft.get("unsloth.max_len")
    if mode is not None:
        source = "unsloth models/_utils.py apply_unsloth_gradient_checkpointing"
        offloads = mode == "unsloth" and (length or SHORTEST_OFFLOADED) >= SHORTEST_OFFLOADED
        moved = "cpu" if offloads else "none"
        inputs = ("unsloth.checkpointing", "unsloth.max_len")
        draft.override(
            "checkpointing.mode", "none" if mode == "none" else "full", *inputs, source=source
        )
        draft.override("checkpointing.offload", moved, *inputs, source=source)
        draft.override("offload.activations", moved, *inputs, source=source)
        draft.override("checkpointing.reentrant", True, *inputs, source=source)
    draft.override(
        "quant.prepares_kbit", False, "quant.method", source="unsloth models/_utils.py:2482"
    )
    if is_adapter_run(draft):
        source = "unsloth_zoo training_utils.py:404: adapters become fp32"
        for field in ("trainable.adapter_dtype", "precision.grad", "precision.optim_state"):
            draft.override(field, "fp32", "trainable.method", source=source)
    if draft.get("eval.keeps_logits"):
        # U models/rl.py:2485: compute_metrics wants them.
        draft.override("loss.logits_materialised", "full", "eval.keeps_logits")
    else:
        # Z fused_losses: cross entropy, preference log-probabilities and GRPO's in chunks.
        source = "unsloth_zoo fused_losses: logits are computed chunk by chunk"
        draft.override("loss.logits_materialised", "fused", "objective.kind", source=source)
    _finish_kernels(draft)
    if not draft.says("model.attn_impl"):
        # U models/llama.py: FlashAttention 2 where it is installed, else xformers, else sdpa.
        draft.forget("model.attn_impl")
        draft.assume("model.attn_impl", "xformers", "Unsloth takes FlashAttention 2 or xformers")
    if kind == "sft" and not draft.get("trl.packing"):
        # U trainer.py _should_auto_padding_free: samples of a batch are joined without padding.
        draft.derive("seq.pad", "none", "trl.padding_free", source="unsloth trainer.py")


# U models/loader.py FastLanguageModel: the other ones go to FastModel, whose adapters are peft's.
_WITH_KERNELS = frozenset({"llama", "mistral", "gemma", "gemma2", "qwen2", "qwen3"})


def _finish_kernels(draft: Draft) -> None:
    """Norms, rotations and gates of one kernel each, written by hand or compiled.

    The classes for language have a kernel for the gate in the function alone that
    U models/llama.py patch_peft_model makes of a part of a block whose layers all carry an
    adapter, and no bias, where there is no dropout.
    """
    for part in ("rope", "rms", "swiglu"):
        draft.override(f"loss.liger.{part}", True, "model.id", source="unsloth kernels/")
    dims = draft.get("model.dims")
    if (
        dims is None
        or dims.arch not in _WITH_KERNELS
        or not is_adapter_run(draft)
        or not _is_for_language(draft)
        or draft.get("quant.method") == "bnb8"
    ):
        return
    source = "unsloth models/llama.py:3719: other feed-forward parts run as transformers has them"
    draft.override("loss.liger.swiglu", False, "model.dims", source=source)
    if draft.get("trainable.method") == "dora" or draft.get("trainable.dropout"):
        return
    parts = [] if dims.mlp_bias else ["mlp"]
    if not dims.attn_bias:
        parts.append("qkv")
    draft.derive("trainable.fused", (*parts, "o"), "model.dims", "trainable.dropout")
