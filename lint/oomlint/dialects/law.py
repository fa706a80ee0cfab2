"""What the keys of several frameworks mean together: dtypes, world size, batches, sharding.

Most frameworks end in transformers' Trainer, accelerate and DeepSpeed; what those make of
a config is written here once. Functions read and complete a :class:`Draft`.
"""

from __future__ import annotations

from typing import Any

from oomlint.changes import NARROW_LOGITS, STACKED_EXPERTS
from oomlint.dialects.changes import (
    BF16_BELOW_STAGE_1,
    FP32_ADAPTERS,
    FSDP1_UPCASTS,
    FSDP2_LEAVES_FROZEN,
    FSDP2_UPCASTS,
    FSDP2_WAITS,
    FSDP2_WRAPS_ENDS,
)
from oomlint.dialects.draft import Draft
from oomlint.errors import CannotEdit

_STEP_1_IN_DTYPE_OF_PARAM = "torch.optim: states are zeros_like(param)"
# Below stage 1 the FP16 optimizers (runtime/engine.py:2065) keep an fp32 master too, unsharded.
_ENGINE_CASTS = "DeepSpeed edaa7221 runtime/engine.py:1755 casts the module; zero/stage3.py keeps an fp32 master"
_ACCELERATE_UPCASTS = "accelerate 16cb6eb8 accelerator.py:1982, utils/fsdp_utils.py:803: trainable parameters become fp32"
_PEFT_UPCASTS = "peft 0.21.2 mapping_func.py:110: autocast_adapter_dtype=True makes adapters fp32"
_AUTOCAST_KEEPS = "torch autocast computes in 16 bit and leaves parameters as loaded"

ADAPTER_METHODS = frozenset({"lora", "dora", "qlora", "oft", "adapter"})


def is_adapter_run(draft: Draft) -> bool:
    return draft.get("trainable.method") in ADAPTER_METHODS


def uses_deepspeed(draft: Draft) -> bool:
    """Whether a DeepSpeed config takes part, found or not, or Accelerate makes one up."""
    return (
        any(block.table.section == "deepspeed" for block in draft.blocks)
        or draft.get("ref.deepspeed") is not None
        or draft.is_unknown("ref.deepspeed")
        or draft.get("deepspeed.enabled") is True
    )


def finish_world(draft: Draft) -> None:
    """Ranks: nodes x GPUs per node, or the sum over nodes that are not alike
    (``launch.most_per_node`` is then what the fullest has); the data-parallel degree is what the
    other degrees leave."""
    total = draft.get("launch.total_processes")
    nodes = draft.get("parallel.nodes") or draft.get("launch.machines")
    if total is not None:
        draft.derive("parallel.nodes", nodes or 1, "launch.total_processes")
        per_node = draft.get("launch.most_per_node") or max(1, total // (nodes or 1))
        _prefer(draft, "parallel.gpus_per_node", per_node, "launch.total_processes")
    per_node = draft.get("parallel.gpus_per_node")
    if per_node is not None:
        draft.default("parallel.nodes", 1, "one node unless the launcher names more")
        nodes = draft.get("parallel.nodes")
        if draft.get("launch.most_per_node"):
            draft.derive("parallel.world", total, "launch.total_processes")
        elif nodes is not None:  # a variable of the scheduler leaves it open
            ranks = nodes * per_node
            draft.derive("parallel.world", ranks, "parallel.nodes", "parallel.gpus_per_node")
    world = draft.get("parallel.world")
    if world is not None:
        others = 1
        for degree in ("tp", "pp", "cp", "ulysses"):
            others *= draft.get(f"parallel.{degree}") or 1
        draft.derive("parallel.dp", max(1, world // others), "parallel.world")


def _prefer(draft: Draft, field: str, value: object, source: str) -> None:
    """A rank count that a launcher states beats one that the hardware merely allows."""
    if not draft.says(field):
        draft.forget(field)
        draft.derive(field, value, source)


def finish_batch(draft: Draft) -> None:
    """Global batch = micro batch x gradient accumulation x data-parallel ranks (samples)."""
    micro, accum = draft.get("batch.micro"), draft.get("batch.grad_accum")
    dp = draft.get("parallel.dp")
    if None not in (micro, accum, dp):
        draft.derive(
            "batch.global", micro * accum * dp, "batch.micro", "batch.grad_accum", "parallel.dp"
        )


def check_precomputed_reference(reference: str, draft: Draft) -> None:
    """Whether TRL's trainers, and what is built on them, can have the reference model as wanted.

    Raises:
        CannotEdit: they compute its log-probabilities beforehand under DPO and KTO alone.
    """
    if reference != "precomputed" or draft.get("objective.kind") not in ("dpo", "kto"):
        raise CannotEdit("only DPO and KTO can compute their reference beforehand")


def express_global_batch(own: dict[str, Any], draft: Draft, field: str, unknown: str) -> None:
    """A wish for accumulation as the batch size of all ranks, micro batch x accumulation x ranks.

    Args:
        field: where the framework keeps that size; it stays where the product is what it was.
        unknown: what to say where the number of ranks is not known.

    Raises:
        CannotEdit: with ``unknown``.
    """
    accumulation = own.pop("batch.grad_accum", None)
    if accumulation is None:
        return
    dp = draft.get("parallel.dp")
    if dp is None:
        raise CannotEdit(unknown)
    total = accumulation * (own.get("batch.micro") or draft.get("batch.micro") or 1) * dp
    if total != draft.get(field):
        own[field] = total


def finish_generation(draft: Draft, steps: str) -> None:
    """Completions of one round of generation over all ranks: micro batch x ranks x optimizer
    micro steps that share the round, which are those of one optimizer step unless the field
    ``steps`` says another number (TRL f2cd5771 trainer/grpo_config.py:1077)."""
    micro, world = draft.get("batch.micro"), draft.get("parallel.world")
    shared = draft.get(steps) or draft.get("batch.grad_accum")
    if None not in (micro, world, shared):
        draft.derive(
            "objective.rollout.generation_batch", micro * world * shared,
            "batch.micro", "parallel.world", steps, "batch.grad_accum",
        )  # fmt: skip


def finish_backend(draft: Draft) -> None:
    """Who wraps the model: DeepSpeed, FSDP, DDP, or nobody on one GPU."""
    if uses_deepspeed(draft):
        draft.derive("parallel.backend", "zero", "ref.deepspeed", "parallel.zero.stage")
    elif draft.get("fsdp.enabled"):
        version = draft.get("parallel.fsdp.version") or 1
        draft.derive("parallel.backend", "fsdp2" if version == 2 else "fsdp1", "fsdp.enabled")
    else:
        world = draft.get("parallel.world")
        if world is not None:
            draft.derive("parallel.backend", "ddp" if world > 1 else "none", "parallel.world")


def finish_fsdp(draft: Draft) -> None:
    """What accelerate's FSDP plugin makes of its settings once ``fsdp.enabled`` is true.

    Defaults are those of accelerate 16cb6eb8 utils/dataclasses.py:1816-1990; a dialect whose
    framework has others sets them before.
    """
    if not draft.get("fsdp.enabled"):
        return
    source = "accelerate 16cb6eb8 utils/dataclasses.py:1816"
    fsdp = "parallel.fsdp."
    draft.default(fsdp + "version", 1, source)
    if draft.get(fsdp + "version") == 2:
        draft.default(fsdp + "reshard_after_forward", True, source)
        # FSDP2 knows no other strategies: utils/dataclasses.py "sharding_strategy is deprecated".
        reshards = draft.get(fsdp + "reshard_after_forward")
        draft.override(
            fsdp + "strategy", "full" if reshards else "grad_op", fsdp + "reshard_after_forward"
        )
        draft.default(fsdp + "state_dict", "sharded", source)
        if draft.get("batch.grad_accum") != 1 and not draft.has(FSDP2_WAITS):
            draft.derive(fsdp + "sync_every_micro", True, fsdp + "version")
    else:
        draft.default(fsdp + "strategy", "full", source)
        # The strategy alone decides under FSDP1 (commands/launch.py always names one).
        kept = draft.get(fsdp + "strategy") in ("full", "hybrid")
        draft.override(fsdp + "reshard_after_forward", kept, fsdp + "strategy")
        draft.default(fsdp + "state_dict", "full", source)
        draft.default(fsdp + "backward_prefetch", "none", source)
        draft.default(fsdp + "forward_prefetch", False, source)
        draft.default(fsdp + "limit_all_gathers", True, "accelerate 16cb6eb8 dataclasses.py:1750")
    draft.default(fsdp + "wrap", "none", source)
    blocks = draft.get(fsdp + "version") == 2 and draft.get(fsdp + "wrap") == "transformer"
    if blocks and draft.has(FSDP2_WRAPS_ENDS):
        draft.override(fsdp + "wrap", "ends", fsdp + "wrap", fsdp + "version")
    draft.default(fsdp + "cpu_offload", False, source)
    if draft.get(fsdp + "cpu_offload"):
        draft.derive("offload.params", "cpu", fsdp + "cpu_offload")
        draft.derive("offload.optimizer", "cpu", fsdp + "cpu_offload")
    draft.default("load.cpu_ram_efficient", False, source)
    if draft.get(fsdp + "activation_checkpointing"):
        # accelerate 16cb6eb8 accelerator.py: apply_activation_checkpointing, not reentrant.
        draft.override("checkpointing.mode", "full", fsdp + "activation_checkpointing")
        draft.override("checkpointing.source", "fsdp", fsdp + "activation_checkpointing")
        draft.override("checkpointing.reentrant", False, fsdp + "activation_checkpointing")


def finish_deepspeed(draft: Draft, *, under_trainer: bool) -> None:
    """What DeepSpeed makes of its JSON.

    Under a transformers Trainer ``"auto"`` is filled in from the model and the arguments
    (transformers 5.23 integrations/deepspeed.py:130-265).
    """
    if not uses_deepspeed(draft):
        return
    stage = draft.get("parallel.zero.stage")
    draft.derive(
        "parallel.zero.overlap_comm",
        stage == 3,
        "parallel.zero.stage",
        source="DeepSpeed edaa7221 runtime/zero/config.py:138",
    )
    dims = draft.get("model.dims")
    hidden = dims.hidden if dims is not None else None
    if hidden:
        # transformers 5.23 integrations/deepspeed.py:202-232.
        for name, elems in (
            ("reduce_bucket_elems", hidden * hidden),
            ("prefetch_elems", int(0.9 * hidden * hidden)),
            ("persistence_threshold", 10 * hidden),
        ):
            if f"parallel.zero.{name}" in draft.auto:
                draft.derive(f"parallel.zero.{name}", elems, "model.dims")
    if "parallel.zero.allgather_bucket_elems" in draft.auto:
        # No rule of transformers fills it; DeepSpeed would refuse the word. Its default.
        draft.derive("parallel.zero.allgather_bucket_elems", 500_000_000)
    for name in ("offload.optimizer", "offload.params"):
        draft.default(name, "none", "DeepSpeed edaa7221 runtime/zero/config.py:157")
    if stage is not None and stage < 3 and draft.get("offload.params") != "none":
        # "Valid only with stage 3" (runtime/zero/config.py:157): ignored below it.
        draft.override("offload.params", "none", "parallel.zero.stage")
    if stage == 0 and draft.get("offload.optimizer") != "none":
        draft.override("offload.optimizer", "none", "parallel.zero.stage")
    if not under_trainer:
        _batch_from_json(draft)


def _batch_from_json(draft: Draft) -> None:
    """micro x accumulation x ranks = train_batch_size; DeepSpeed derives what is missing
    (runtime/config.py:942-985)."""
    micro, accum = draft.get("ds.micro"), draft.get("ds.grad_accum")
    total, dp = draft.get("ds.train_batch"), draft.get("parallel.dp")
    if micro is None and total and dp:
        micro = max(1, total // (dp * (accum or 1)))
    if accum is None and total and dp and micro:
        accum = max(1, total // (dp * micro))
    draft.derive("batch.micro", micro, "ds.micro", "ds.train_batch")
    draft.derive("batch.grad_accum", accum or (1 if micro else None), "ds.grad_accum")


def finish_trainer_precision(
    draft: Draft, *, amp: str, load_dtype: str | None, fsdp_keeps: bool = False
) -> None:
    """The dtype law of transformers' Trainer over accelerate, DeepSpeed, FSDP and peft.

    Args:
        amp: mixed precision in force: ``bf16``, ``fp16`` or ``no``.
        load_dtype: what the weights are loaded in; ``None`` where not known.
        fsdp_keeps: sharding leaves the weights in that dtype, whatever accelerate does.
    """
    _note_arithmetic(draft)
    backend = draft.get("parallel.backend")
    if backend == "zero":
        _zero_precision(draft, amp)
    elif backend in ("fsdp1", "fsdp2"):
        _fsdp_precision(draft, amp, load_dtype, keeps=fsdp_keeps)
    else:
        _plain_precision(draft, amp, load_dtype)
    draft.derive("precision.logits", draft.get("precision.compute"), "precision.compute")


def _note_arithmetic(draft: Draft) -> None:
    """What the arithmetic makes of the version of transformers in a plan stays open without one."""
    if quantizes_experts(draft):
        draft.has(STACKED_EXPERTS)
    draft.has(NARROW_LOGITS)


def quantizes_experts(draft: Draft) -> bool:
    """Whether it depends on how transformers holds experts that bitsandbytes packs them."""
    dims = draft.get("model.dims")
    packs = draft.get("quant.method") in ("bnb4", "bnb8") and dims is not None
    return packs and bool(dims.moe) and draft.get("quant.quantises_moe_experts") is None


def _take_older_bf16(draft: Draft) -> None:
    """DeepSpeed's BF16_Optimizer is stage 1 with gradients that add up in fp32."""
    if draft.get("parallel.zero.stage") == 0 and not draft.has(BF16_BELOW_STAGE_1):
        source = BF16_BELOW_STAGE_1.source
        draft.override("parallel.zero.stage", 1, "ds.bf16", "amp", source=source)
        draft.derive("ds.grad_accum_dtype", "fp32", "parallel.zero.stage", source=source)


def _zero_precision(draft: Draft, amp: str) -> None:
    half = amp if amp in ("bf16", "fp16") else None
    if draft.get("ds.bf16") is True:
        half = "bf16"
    elif draft.get("ds.fp16") is True:
        half = "fp16"
    if half == "bf16":
        _take_older_bf16(draft)
    cast = half or "fp32"
    master, states = ("fp32" if half else "none"), "fp32"
    if half == "bf16" and draft.get("ds.bf16_master"):
        # DeepSpeed edaa7221 runtime/precision_config.py:63-70.
        master, states = "bf16", "bf16" if draft.get("ds.bf16_states") else "fp32"
    inputs = ("ds.bf16", "ds.fp16", "amp", "ds.bf16_master", "ds.bf16_states")
    frozen = _frozen_dtype(draft, cast)
    derive = draft.derive
    derive("precision.param", frozen, *inputs, source=_ENGINE_CASTS)
    derive("precision.grad", cast, *inputs, source=_ENGINE_CASTS)
    derive("precision.grad_accum", draft.get("ds.grad_accum_dtype"), "ds.grad_accum_dtype")
    derive("precision.master", master, *inputs, source=_ENGINE_CASTS)
    derive("precision.optim_state", states, *inputs, source=_ENGINE_CASTS)
    derive("precision.compute", cast, *inputs, source=_ENGINE_CASTS)
    derive("precision.autocast", False, *inputs, source="accelerate leaves autocast to DeepSpeed")
    if is_adapter_run(draft):
        derive("trainable.adapter_dtype", cast, *inputs, source=_ENGINE_CASTS)


def _fsdp_precision(draft: Draft, amp: str, load_dtype: str | None, *, keeps: bool) -> None:
    mixed = amp in ("bf16", "fp16")
    upcasts = mixed and load_dtype != "fp32" and not keeps and _upcasts_trained(draft)
    stored = "fp32" if upcasts else load_dtype
    compute = amp if mixed else load_dtype
    adapters = is_adapter_run(draft)
    source = _ACCELERATE_UPCASTS if upcasts else _STEP_1_IN_DTYPE_OF_PARAM
    inputs = ("amp", "load.dtype", "fsdp.enabled")
    trained = _adapter_dtype(draft, load_dtype) if adapters and not upcasts else stored
    if adapters and upcasts and not _leaves_frozen(draft):
        load_dtype = "fp32"
    draft.derive(
        "precision.param",
        _frozen_dtype(draft, load_dtype) if adapters else stored,
        *inputs,
        source=source,
    )
    draft.derive("precision.grad", trained, *inputs, source=source)
    draft.derive("precision.master", "none", *inputs, source=source)
    draft.derive("precision.optim_state", trained, *inputs, source=source)
    draft.derive("precision.compute", compute, *inputs, source=source)
    draft.derive("precision.comm", compute, *inputs, source=source)
    # accelerate 1.15: autocast under FSDP1, none under FSDP2 (accelerator.py _prepare_fsdp2).
    draft.derive("precision.autocast", mixed and draft.get("parallel.backend") == "fsdp1", *inputs)
    if adapters:
        draft.derive("trainable.adapter_dtype", trained, *inputs, source=_PEFT_UPCASTS)


def _upcasts_trained(draft: Draft) -> bool:
    """Whether accelerate makes what FSDP trains in mixed precision fp32."""
    if draft.get("parallel.backend") == "fsdp1":
        return draft.has(FSDP1_UPCASTS)
    return draft.has(FSDP2_UPCASTS) or not draft.has(FSDP2_LEAVES_FROZEN)


def _leaves_frozen(draft: Draft) -> bool:
    return draft.get("parallel.backend") == "fsdp1" or draft.has(FSDP2_LEAVES_FROZEN)


def _adapter_dtype(draft: Draft, load_dtype: str | None) -> str | None:
    """What peft makes adapters in; beside packed weights they always were fp32."""
    if draft.get("peft.autocast_adapters") is False:
        return load_dtype
    if _frozen_dtype(draft, None) is not None or load_dtype == "fp32":
        return "fp32"
    return "fp32" if draft.has(FP32_ADAPTERS) else load_dtype


def _plain_precision(draft: Draft, amp: str, load_dtype: str | None) -> None:
    mixed = amp in ("bf16", "fp16")
    inputs = ("amp", "load.dtype")
    if is_adapter_run(draft):
        trained = _adapter_dtype(draft, load_dtype)
        draft.derive("precision.param", _frozen_dtype(draft, load_dtype), *inputs)
        draft.derive("trainable.adapter_dtype", trained, *inputs, source=_PEFT_UPCASTS)
        source = _PEFT_UPCASTS
    else:
        trained = load_dtype
        draft.derive("precision.param", load_dtype, *inputs, source=_AUTOCAST_KEEPS)
        source = _STEP_1_IN_DTYPE_OF_PARAM
    draft.derive("precision.grad", trained, *inputs, source=source)
    draft.derive("precision.master", "none", *inputs, source=_AUTOCAST_KEEPS)
    draft.derive("precision.optim_state", trained, *inputs, source=source)
    draft.derive("precision.compute", amp if mixed else load_dtype, *inputs)
    draft.derive("precision.autocast", mixed, *inputs, source=_AUTOCAST_KEEPS)


def _frozen_dtype(draft: Draft, otherwise: str | None) -> str | None:
    """The dtype of what is not trained: quantized weights are storage of their own."""
    return {"bnb4": "nf4", "bnb8": "int8", "nf4_torchao": "nf4"}.get(
        str(draft.get("quant.method")), otherwise
    )


def finish_quant(draft: Draft, *, bits: int | None, method: str | None = None) -> None:
    """bitsandbytes' 4 and 8 bit from a framework's flags; a base that is quantized already
    stays as it is."""
    if method is None and bits is not None:
        method = {4: "bnb4", 8: "bnb8"}.get(bits)
    native = draft.get("model.native_quant")
    if native in ("bnb4", "gptq", "awq", "hqq", "aqlm"):
        # transformers 5.23 quantizers/auto.py merge_quantization_configs: the checkpoint's own wins.
        method = native
    elif native == "gptq8":
        method = "gptq"
        draft.derive("quant.bits", 8.0, "model.native_quant")
    draft.derive("quant.method", method or "none", "quant.bits", "model.native_quant")
