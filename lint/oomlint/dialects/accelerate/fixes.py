"""Canonical wishes about sharding, as an Accelerate config or a trainer over it says them."""

from __future__ import annotations

from typing import Any

from oomlint.dialects.base import Way, Wishes, expressed
from oomlint.dialects.draft import Draft
from oomlint.errors import CannotEdit


def express_sharding(changes: Wishes, draft: Draft) -> dict[str, Any]:
    """Wishes about offloading and checkpointing in the terms of the sharder in force.

    Raises:
        CannotEdit: nothing shards this run, or not in a way that can do it.
    """
    backend = draft.get("parallel.backend")
    is_fsdp, is_zero = backend in ("fsdp1", "fsdp2"), backend == "zero"
    for name in changes:
        if name.startswith("parallel.zero.") and not is_zero:
            raise CannotEdit("this run does not use DeepSpeed")
        if name.startswith(("parallel.fsdp.", "load.cpu_ram_efficient")) and not is_fsdp:
            raise CannotEdit("this run does not use FSDP")
        if name.startswith("offload.") and not (is_fsdp or is_zero):
            raise CannotEdit("nothing in this run offloads: it uses neither DeepSpeed nor FSDP")
    ways = _FSDP_WAYS if is_fsdp else _DEEPSPEED_WAYS if is_zero else {}
    return expressed(changes, draft, {"parallel.backend": _express_backend, **ways}, {})


def _express_backend(backend: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    if draft.get("parallel.unapplied") not in ("zero", "fsdp"):
        raise CannotEdit("what shards this run is not set up in an Accelerate config")
    return {"accelerate.distributed_type": "deepspeed" if backend == "zero" else "fsdp"}


def _express_fsdp_offload(_device: Any, _draft: Draft, changes: Wishes) -> dict[str, Any]:
    """FSDP keeps parameters and optimizer states in one place."""
    devices = {changes.get(name) for name in ("offload.params", "offload.optimizer")}
    if "nvme" in devices:
        raise CannotEdit("FSDP can offload to the CPU only")
    return {"parallel.fsdp.cpu_offload": "cpu" in devices}


def _express_fsdp_checkpointing(mode: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    """FSDP's own switch where no trainer takes part: the Accelerate config stands alone."""
    trains = any(block.table.section == "training" for block in draft.blocks)
    if mode != "full" or trains:
        return {"checkpointing.mode": mode}
    return {"parallel.fsdp.activation_checkpointing": True}


_FSDP_WAYS: dict[str, Way] = {
    "offload.params": _express_fsdp_offload,
    "offload.optimizer": _express_fsdp_offload,
    "checkpointing.mode": _express_fsdp_checkpointing,
}


def _express_stage(stage: Any, draft: Draft, _changes: Wishes) -> dict[str, Any]:
    _check_deepspeed_file(draft)
    return {"parallel.zero.stage": stage}


def _express_offloaded_parameters(device: Any, draft: Draft, changes: Wishes) -> dict[str, Any]:
    _check_deepspeed_file(draft)
    if device != "none" and _stage_of(draft, changes) != 3:
        raise CannotEdit("DeepSpeed offloads parameters with ZeRO stage 3 only")
    return {"offload.params": device}


def _express_offloaded_optimizer(device: Any, draft: Draft, changes: Wishes) -> dict[str, Any]:
    _check_deepspeed_file(draft)
    if device != "none" and _stage_of(draft, changes) == 0:
        raise CannotEdit("DeepSpeed offloads the optimizer from ZeRO stage 1 on")
    return {"offload.optimizer": device}


def _stage_of(draft: Draft, changes: Wishes) -> Any:
    return changes.get("parallel.zero.stage", draft.get("parallel.zero.stage"))


def _check_deepspeed_file(draft: Draft) -> None:
    """Accelerate 1.15 utils/dataclasses.py:1509 refuses the keys for stage and offloading beside a
    ``deepspeed_config_file``, so they can stand in that file alone.

    Raises:
        CannotEdit: the run names such a file that is not here, or is broken.
    """
    is_named = draft.get("ref.deepspeed") is not None
    if is_named and all(block.table.section != "deepspeed" for block in draft.blocks):
        raise CannotEdit("the DeepSpeed file that says this cannot be read")


_DEEPSPEED_WAYS: dict[str, Way] = {
    "parallel.zero.stage": _express_stage,
    "offload.params": _express_offloaded_parameters,
    "offload.optimizer": _express_offloaded_optimizer,
}
