"""How Megatron-SWIFT's options say what a fix wants, and what they cannot say.

Read from ms-swift 3602360a (4.6.0.dev0); ``SM`` below is ``swift/megatron``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.base import Way, Wishes, follows
from oomlint.dialects.draft import Draft
from oomlint.errors import CannotEdit

NO_WAY = {
    "loss.logits_materialised": "Megatron-SWIFT computes its loss from logits that stand in full",
    "quant.method": "Megatron-SWIFT trains no quantized weights",
}


def _express_checkpointing(mode: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if mode == "none":
        return {"checkpointing.mode": "none"}
    if mode != "full":
        raise CannotEdit("Megatron-SWIFT recomputes all layers, core attention or nothing")
    # SM arguments: a method and a number of layers belong to full recomputation.
    return {
        "checkpointing.mode": "full",
        "mswift.recompute_method": "uniform",
        "mswift.recompute_layers": 1,
    }


def _express_offloaded_parameters(device: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if device != "none":
        raise CannotEdit("Megatron-SWIFT offloads the optimizer only (optimizer_cpu_offload)")
    return {}


def _express_offloaded_optimizer(device: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if device == "cpu" and draft.get("optimizer.name") != "adam":
        raise CannotEdit("only Adam can be offloaded here")
    return {"offload.optimizer": device}


def _express_optimizer(kind: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if kind not in ("adamw", "sgd"):
        raise CannotEdit(f"Megatron-SWIFT has no optimizer for {kind}")
    return {"optimizer.name": "adam" if kind == "adamw" else "sgd"}


def _express_method(method: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    return {"swift.tuner": "full" if method == "full" else "lora"}


WAYS: dict[str, Way] = {
    "checkpointing.mode": _express_checkpointing,
    "offload.params": _express_offloaded_parameters,
    "offload.optimizer": _express_offloaded_optimizer,
    "optimizer.kind": _express_optimizer,
    "precision.optim_state": follows,
    "trainable.method": _express_method,
}
