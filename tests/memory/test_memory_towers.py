"""Vision towers: which are trained beside adapters, and which no checkpointing reaches."""

from __future__ import annotations

from typing import Any

from tests.plans import plan_of

from oomlint.memory.facts import Facts
from oomlint.memory.images import images_of
from oomlint.models import lookup

BASE: dict[str, Any] = {
    "precision.param": "bf16",
    "precision.compute": "bf16",
    "parallel.backend": "none",
    "parallel.world": 1,
    "batch.micro": 1,
    "seq.max_len": 2048,
    "checkpointing.mode": "full",
}


def facts(model: str, **changes: Any) -> Facts:
    found = lookup(model)
    assert found is not None
    return Facts(plan_of(BASE, model__dims=found.dims, **changes))


def test_a_tower_may_be_trained_beside_adapters() -> None:
    lora = {"trainable__method": "lora", "trainable__targets": ("q_proj",), "trainable__r": 8}
    model = "openbmb/MiniCPM-Llama3-V-2_5"
    alone = facts(model, **lora)
    beside = facts(model, trainable__modules_to_save=("vpm",), **lora)
    assert beside.model is not None
    assert beside.trained_numel - alone.trained_numel == beside.model.vision_numel
    assert images_of(beside).grads > images_of(alone).grads == 0


def test_checkpointing_does_not_reach_timm() -> None:
    newer = images_of(facts("openbmb/MiniCPM-Llama3-V-2_5", trainable__method="full"))
    older = images_of(facts("openbmb/MiniCPM-V-2", trainable__method="full"))
    assert older.kept > 4 * newer.kept
