"""Saving: what a checkpoint weighs on disk, and what gathering it needs on GPU and host."""

from __future__ import annotations

from msgspec import Struct

from oomlint.memory.facts import Facts, batchless
from oomlint.memory.states import optimizer_bytes, quantised_bytes, trained_storage
from oomlint.plan import Plan


class SavePeaks(Struct, frozen=True):
    """Bytes that a save needs: extra on each GPU, extra on the saving host, on disk."""

    gpu: float
    host: float
    disk: float


def writes_merged(f: Facts) -> bool:
    """Whether each save of an adapter's run writes the whole model beside it, with the adapter added."""
    return f.trained.lora and {"model", "adapter"} <= set(f.plan.save.contents or ())


def model_file_bytes(f: Facts) -> float:
    """Bytes of the saved model: the adapter alone where only that is saved."""
    m = f.model
    assert m is not None
    if f.trained.lora:
        base = max(2.0, f.bytes_per.weight) * m.numel if writes_merged(f) else 0.0
        return trained_storage(f) + base
    width = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}.get(f.plan.save.dtype or "")
    if width is None:
        width = (
            2.0
            if f.ranks.backend in ("zero", "megatron") and f.bytes_per.stream == 2
            else max(2.0, f.bytes_per.weight)
        )
    return m.numel * width


@batchless
def save_peaks_of(f: Facts) -> SavePeaks:
    """See :func:`save_peaks`."""
    trained, bytes_per = f.trained, f.bytes_per
    m = f.model
    assert m is not None
    plan = f.plan
    save = plan.save
    if save.strategy == "no":
        return SavePeaks(0.0, 0.0, 0.0)
    contents = save.contents
    with_optimizer = "optimizer" in contents if contents is not None else not save.save_only_model
    model_bytes = model_file_bytes(f)
    optimizer = trained.numel * bytes_per.master + optimizer_bytes(f, trained.numel)
    disk = model_bytes + (optimizer if with_optimizer else 0.0)
    backend = f.ranks.backend
    gpu = host = 0.0
    if backend == "zero" and (plan.parallel.zero.stage or 0) == 3:
        if plan.parallel.zero.gather16_on_save is not False:
            # _zero3_consolidated_16bit_state_dict gathers one module's own parameters at a
            # time on every GPU and copies them to rank 0's host (deepspeed/runtime/engine.py).
            gpu = 2.0 * largest_module(f)
            host = trained_storage(f) if trained.lora else m.numel * 2.0
    elif backend in ("fsdp1", "fsdp2") and (
        save.full_gather or (plan.parallel.fsdp.state_dict or "full") == "full"
    ):
        # FULL_STATE_DICT all-gathers unit by unit and offloads to rank 0's host.
        gpu = max(2.0, bytes_per.weight) * float(m.largest_block)
        if save.gather_device == "gpu":
            # Every rank clones each unit before it is sharded again
            # (torch distributed/fsdp/_state_dict_utils.py _common_unshard_post_state_dict_hook).
            gpu = max(2.0, bytes_per.weight) * m.numel
        host = collected_bytes(f)
        if with_optimizer:
            host += optimizer
    elif backend == "none" and save.full_gather:
        # torchtune bd2a0fc7 training/checkpointing/_checkpoint_client.py: v.cpu() of every weight; the
        # optimizer's states are written from where they are.
        host = collected_bytes(f)
    return SavePeaks(gpu + reordered_bytes(f), host, disk)


def collected_bytes(f: Facts) -> float:
    """Bytes of the weights that a save puts together in RAM: of an adapter's run the adapter, and the base where the
    two are added up there (torchtune bd2a0fc7 modules/peft/_utils.py get_merged_lora_ckpt: in place)."""
    assert f.model is not None
    whole = max(2.0, f.bytes_per.weight) * (f.model.numel + rewritten_of(f))
    if not f.trained.lora:
        return whole
    return trained_storage(f) + (whole if writes_merged(f) else 0.0)


def rewritten_of(f: Facts) -> float:
    """Elements that a save copies in another order; of experts, their two projections upwards."""
    m, parts = f.model, f.plan.save.rewritten or ()
    assert m is not None
    total = 0.0
    for block in m.blocks:
        each = sum(x.numel for x in block.linears if x.role in parts)
        if "experts" in parts:
            each += block.expert_numel * 2 // 3
        total += block.count * each
    return total


def reordered_bytes(f: Facts) -> float:
    """What asking an 8-bit model for its state dict leaves on the GPU.

    bitsandbytes 0.38 brings every weight back into plain order, and the module gets a clone of the
    order that it computes with, whose first copy its state still holds: two more copies of all
    packed weights once the dict is whole (bitsandbytes 0.38.0 nn/modules.py:229-258). peft asks for
    all of it to pick the adapter out (peft 0.3 utils/save_and_load.py). Neither 0.37 nor 0.39 copies.
    """
    m, quant = f.model, f.plan.quant
    copies = f.older("bitsandbytes", (0, 39)) and not f.older("bitsandbytes", (0, 38))
    if m is None or quant.method != "bnb8" or not copies:
        return 0.0
    packed = m.linear_numel + (m.expert_numel if f.experts_packed else 0)
    return 2.0 * (quantised_bytes(quant) or 0.0) * packed / f.ranks.tp / f.ranks.pp


def largest_module(f: Facts) -> float:
    """Elements that one module owns by itself; a layer's stacked experts are one module."""
    m = f.model
    assert m is not None
    stacked = max((b.expert_numel for b in m.blocks), default=0)
    return float(max(m.largest_tensor, stacked))


def save_peaks(plan: Plan) -> SavePeaks | None:
    """What saving a checkpoint needs, in bytes: extra on every GPU while gathering, extra on
    the host that writes, and on disk for one checkpoint. ``None`` without dimensions."""
    try:
        f = Facts(plan)
        return save_peaks_of(f) if f.model is not None else None
    except OverflowError:
        return None  # sizes of hundreds of digits


def rewritten_bytes(plan: Plan) -> float | None:
    """Bytes of host RAM for what a save copies into another order; ``None`` without dimensions."""
    try:
        f = Facts(plan)
        return max(2.0, f.bytes_per.weight) * rewritten_of(f) if f.model is not None else None
    except OverflowError:
        return None  # sizes of hundreds of digits
