"""How LLaMA-Factory's configs say what a fix wants, and what they cannot say.

Read from LLaMA-Factory ff6d4d12 (2026-08-18); ``LF`` below is ``src/llamafactory``. What is not
here is said by transformers' arguments, which the configs hold too.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.base import Way, Wishes
from oomlint.dialects.draft import Draft
from oomlint.dialects.liger import check_liger_patches
from oomlint.dialects.llamafactory.effects import LIGER_PATCHES, OPTIMIZER_SWITCHES
from oomlint.errors import CannotEdit

# What LF/hparams/parser.py:225-520 refuses together with ZeRO-3.
_NOT_UNDER_ZERO3 = (
    ("eval.generate", "predict_with_generate"),
    ("lf.pure_bf16", "pure_bf16"),
    ("lf.unsloth", "use_unsloth"),
    ("lf.ktransformers", "use_kt"),
    ("lf.pissa", "pissa_init"),
    ("lf.galore", "use_galore"),
    ("lf.apollo", "use_apollo"),
)


def refuse_zero3(changes: Wishes, draft: Draft) -> None:
    """Stop a wish for ZeRO-3 that the framework would refuse for its other keys.

    Raises:
        CannotEdit: with the key.
    """
    if changes.get("parallel.zero.stage") != 3:
        return
    for field, key in _NOT_UNDER_ZERO3:
        if draft.get(field):
            raise CannotEdit(f"LLaMA-Factory refuses {key} with ZeRO-3")


def _express_checkpointing(mode: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if mode not in ("full", "none"):
        raise CannotEdit("LLaMA-Factory checkpoints every layer or none")
    if draft.get("checkpointing.source") == "megatron":
        raise CannotEdit(
            "Megatron recomputes by recompute_granularity, recompute_method and"
            " recompute_num_layers; set them together"
        )
    return {"lf.no_checkpointing": mode == "none"}


def _express_reentrant(wanted: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    return {"lf.reentrant": wanted}


def _express_checkpoint_offload(device: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if device == "disk":
        raise CannotEdit("LLaMA-Factory has no checkpoints on disk")
    own = {"lf.unsloth_gc": device == "cpu"}
    if device == "cpu" and draft.get("lf.no_checkpointing"):
        own["lf.no_checkpointing"] = False
    return own


def _express_loss(_kind: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if draft.get("lf.stage") not in ("pt", "sft"):
        raise CannotEdit("LLaMA-Factory fuses the loss in the stages pt and sft only")
    check_liger_patches(draft, LIGER_PATCHES)
    return {"lf.liger": True}


def _express_rank(rank: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    field = "lf.lora_rank" if draft.get("lf.oft_rank") in (None, 0) else "trainable.r"
    return {field: rank}


def _express_logits(dtype: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    return {"lf.logits_fp32": dtype == "fp32"}


def _express_quant(method: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    bits = {"bnb4": 4, "bnb8": 8}.get(method)
    if bits is None:
        raise CannotEdit(f"LLaMA-Factory cannot quantize to {method} here")
    if draft.get("trainable.method") not in ("lora", "qlora", "dora", "oft"):
        raise CannotEdit("LLaMA-Factory quantizes for LoRA or OFT only (finetuning_type)")
    if draft.get("model.native_quant") not in (None, "none"):
        raise CannotEdit("the checkpoint is quantized already; quantization_bit has no effect")
    if draft.get("lf.pissa"):
        raise CannotEdit("LLaMA-Factory refuses pissa_init on a quantized model")
    sharded = draft.get("parallel.zero.stage") == 3 or draft.get("fsdp.enabled")
    if bits == 8 and sharded:
        raise CannotEdit("only 4-bit models can be sharded with ZeRO-3 or FSDP")
    return {"lf.quant_bits": bits}


def _express_optimizer(kind: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    """``optim`` counts only while no switch of another optimizer is on."""
    return {
        "optimizer.kind": kind,
        **{switch: False for switch in OPTIMIZER_SWITCHES if draft.get(switch)},
    }


def _express_weights(dtype: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if dtype != "bf16":
        return {}
    if draft.get("parallel.zero.stage") == 3:
        raise CannotEdit("LLaMA-Factory refuses pure_bf16 with ZeRO-3")
    return {"lf.pure_bf16": True}


WAYS: dict[str, Way] = {
    "checkpointing.mode": _express_checkpointing,
    "checkpointing.reentrant": _express_reentrant,
    "checkpointing.offload": _express_checkpoint_offload,
    "loss.logits_materialised": _express_loss,
    "trainable.r": _express_rank,
    "precision.logits": _express_logits,
    "quant.method": _express_quant,
    "optimizer.kind": _express_optimizer,
    "precision.param": _express_weights,
}
