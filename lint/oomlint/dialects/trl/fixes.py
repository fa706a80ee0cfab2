"""How TRL's configs say what a fix wants, beyond what transformers' arguments say."""

from __future__ import annotations

from typing import Any

from oomlint.dialects.base import Way, Wishes
from oomlint.dialects.draft import Draft
from oomlint.dialects.law import check_precomputed_reference
from oomlint.errors import CannotEdit


def _express_offload(device: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if device not in ("cpu", "none"):
        raise CannotEdit("TRL offloads activations to the CPU only")
    return {"trl.activation_offload": device == "cpu"}


def _express_loss(kind: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if kind != "chunked":
        return {"loss.logits_materialised": kind}
    if draft.get("objective.kind") != "sft":
        raise CannotEdit("only SFTTrainer computes its loss in chunks")
    return {"trl.loss_type": "chunked_nll"}


def _express_length(length: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if draft.get("objective.kind") in ("grpo", "rloo", "ppo"):
        raise CannotEdit("the length follows from the prompts and max_completion_length")
    return {"seq.max_len": length}


def _express_reference(reference: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    check_precomputed_reference(reference, draft)
    return {"trl.precompute_ref": True}


WAYS: dict[str, Way] = {
    "checkpointing.offload": _express_offload,
    "offload.activations": _express_offload,
    "loss.logits_materialised": _express_loss,
    "seq.max_len": _express_length,
    "objective.ref_model": _express_reference,
}
