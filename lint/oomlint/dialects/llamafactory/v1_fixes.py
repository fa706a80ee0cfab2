"""How LLaMA-Factory's second configuration says what a fix wants.

Read from LLaMA-Factory ff6d4d12; ``V1`` below is ``src/llamafactory/v1``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oomlint.dialects.base import Way, Wishes
from oomlint.dialects.draft import Draft
from oomlint.errors import CannotEdit


def _express_checkpointing(mode: Any, _draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if mode not in ("full", "none"):
        raise CannotEdit("LLaMA-Factory checkpoints every layer or none")
    return {"v1.checkpointing": mode == "full"}


def _express_accumulation(steps: Any, draft: Draft, changes: Wishes) -> dict[str, Any]:
    """The global batch is what the file says; where it says none, nothing accumulates."""
    ranks = draft.get("parallel.dp")
    if ranks is None:
        raise CannotEdit("global_batch_size depends on the number of ranks: use --gpus")
    micro = changes.get("batch.micro") or draft.get("batch.micro") or 1
    return {"batch.global": micro * steps * ranks}


def _express_quant(method: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if method not in ("bnb4", "bnb8") or draft.get("v1.peft") != "lora":
        raise CannotEdit("LLaMA-Factory quantizes for LoRA only, to 4 or 8 bit")
    return {"v1.quant": "bnb", "v1.quant_bits": 4 if method == "bnb4" else 8}


def _under_fsdp(field: str, say: Callable[[Any], dict[str, Any]]) -> Way:
    """The way of a field that ``dist_config`` says for FSDP2; DeepSpeed has a file of its own."""

    def way(wanted: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
        return say(wanted) if draft.get("fsdp.enabled") else {field: wanted}

    return way


def _express_offload(device: Any) -> dict[str, Any]:
    """V1/plugins/trainer_plugins/distributed/fsdp2.py: parameters and states go together."""
    return {"v1.offload": True} if device == "cpu" else {}


WAYS: dict[str, Way] = {
    "checkpointing.mode": _express_checkpointing,
    "batch.grad_accum": _express_accumulation,
    "quant.method": _express_quant,
    **{
        field: _under_fsdp(field, say)
        for field, say in (
            ("offload.params", _express_offload),
            ("offload.optimizer", _express_offload),
            ("offload.pin_memory", lambda pins: {"v1.pin_memory": pins}),
            ("parallel.fsdp.reshard_after_forward", lambda reshards: {"v1.reshard": reshards}),
            (
                "parallel.fsdp.strategy",
                lambda strategy: {"v1.reshard": True} if strategy == "full" else {},
            ),
        )
    },
}
