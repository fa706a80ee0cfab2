"""How Axolotl's YAML says what a fix wants, and what it cannot say.

Read from axolotl 067b021c (2026-07-24); ``AX`` below is ``src/axolotl``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.axolotl.keys import ATTENTION_SWITCHES
from oomlint.dialects.base import Way, Wishes, follows
from oomlint.dialects.draft import Draft
from oomlint.dialects.law import check_precomputed_reference, is_adapter_run
from oomlint.errors import CannotEdit

NO_WAY = {
    "load.zero3_init": "Axolotl turns on zero.Init by itself under ZeRO-3",
}

_LIGER = "axolotl.integrations.liger.LigerPlugin"


def _express_checkpointing(mode: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if mode not in ("full", "none"):
        raise CannotEdit("Axolotl checkpoints every layer or none")
    return {"axolotl.gc": mode}


def _express_checkpoint_offload(device: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    return {"axolotl.activation_offload": "cpu"} if device == "cpu" else {}


def _express_loss(kind: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if kind != "fused":
        return {}
    plugins = tuple(draft.get("axolotl.plugins") or ())
    added = {"axolotl.plugins": (*plugins, _LIGER)} if _LIGER not in plugins else {}
    return {"axolotl.liger_flce": True, **added}


_OPTIMIZER_NAMES = {
    "adamw": "adamw_torch_fused",
    "adamw8bit": "adamw_8bit",
    "paged_adamw8bit": "paged_adamw_8bit",
    "adafactor": "adafactor",
    "lion": "lion_pytorch",
    "lion8bit": "lion_8bit",
}


def _express_optimizer(kind: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if kind not in _OPTIMIZER_NAMES:
        raise CannotEdit(f"Axolotl has no optimizer for {kind}")
    return {"optimizer.name": _OPTIMIZER_NAMES[kind]}


def _express_fused(fused: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if not fused:
        return {}
    if draft.get("optimizer.kind") != "adamw":
        raise CannotEdit("only AdamW has a fused variant here")
    return {"optimizer.name": "adamw_torch_fused"}


def _express_quant(method: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    """AX/utils/schemas/peft.py:202: 4 bit goes with ``adapter: qlora``, and only with that."""
    if method not in ("bnb4", "bnb8", "none"):
        raise CannotEdit(f"Axolotl has no switch for {method}")
    if not is_adapter_run(draft):
        raise CannotEdit("Axolotl quantizes weights only under an adapter")
    wanted = {
        "axolotl.load_in_4bit": method == "bnb4",
        "axolotl.load_in_8bit": method == "bnb8",
        "trainable.method": "qlora" if method == "bnb4" else "lora",
    }
    return {name: value for name, value in wanted.items() if draft.get(name) != value}


def _express_attention(attention: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    """The legacy switch where the file already uses one, else ``attn_implementation``."""
    if attention != "flash2" and (draft.get("parallel.cp") or 1) > 1:
        # AX/utils/schemas/validation.py:1652 check_context_parallel_size
        raise CannotEdit("context parallelism here goes with FlashAttention 2 only")
    legacy = f"axolotl.attn.{attention}"
    on = [field for field in ATTENTION_SWITCHES if draft.get(field)]
    if on and draft.block_with(legacy) is not None:
        return {**dict.fromkeys(on, False), legacy: True}
    return {"model.attn_impl": attention}


def _express_compute(half: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if half not in ("bf16", "fp16"):
        raise CannotEdit(f"Axolotl has no mixed precision in {half}")
    own: dict[str, Any] = {"axolotl.bf16": "amp" if half == "bf16" else "no"}
    if half == "fp16" or draft.get("axolotl.fp16"):
        own["axolotl.fp16"] = half == "fp16"
    return own


def _express_reference(reference: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    check_precomputed_reference(reference, draft)
    return {"axolotl.precompute_ref": True}


def _express_method(method: Any, draft: Draft, changes: Wishes) -> dict[str, Any]:
    if method not in ("lora", "qlora") or is_adapter_run(draft):
        return {"trainable.method": method}
    if draft.get("axolotl.onebit"):
        # AX/utils/schemas/validation.py:621 check_onebitllms_lora
        raise CannotEdit("models of one bit (use_onebitllms) take no adapter")
    # AX/utils/schemas/peft.py names no rank and no targets by itself.
    return {
        "trainable.method": method,
        "trainable.r": changes.get("trainable.r", 16),
        "trainable.alpha": changes.get("trainable.alpha", 32),
        "axolotl.target_linear": True,
    }


def _express_merge_device(device: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    return {"axolotl.lora_on_cpu": device == "cpu"}


WAYS: dict[str, Way] = {
    "checkpointing.mode": _express_checkpointing,
    "checkpointing.offload": _express_checkpoint_offload,
    "loss.logits_materialised": _express_loss,
    "optimizer.kind": _express_optimizer,
    "optimizer.fused": _express_fused,
    "precision.optim_state": follows,
    "quant.method": _express_quant,
    "model.attn_impl": _express_attention,
    "precision.compute": _express_compute,
    "objective.ref_model": _express_reference,
    "trainable.method": _express_method,
    "save.merge_device": _express_merge_device,
}
