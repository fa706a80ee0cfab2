"""What Megatron-SWIFT makes of its keys, and how they say a wish.

Read from ms-swift 3602360a (4.6.0.dev0); ``SM`` below is ``swift/megatron``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.common.quantization import quantization
from oomlint.dialects.common.world import express_global_batch, world
from oomlint.dialects.machine.meaning import launch_one_process
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.dialects.ms_swift.keys import own
from oomlint.dialects.ms_swift.megatron_keys import ARGS, ROLLOUT_GROUP, megatron
from oomlint.dialects.ms_swift.ranks import ranks
from oomlint.dialects.ms_swift.samples import samples, whole_pack
from oomlint.dialects.ms_swift.weights import weights
from oomlint.errors import CannotEdit
from oomlint.plan.fields import below, f

meaning = Meaning(weights, samples, ranks, world, launch_one_process, quantization)

_P = f.precision

# -- ranks and batches -----------------------------------------------------------------------------

meaning.always(f.parallel.backend, "megatron", ARGS)


@meaning.written(f.parallel.gpus_per_node)
def _(gpus: Any, run: Cells, wishes: Wishes) -> Wishes:
    """A Ray config gives each of its groups a number, and one alone would no longer go with the others."""
    if run.has_block_of(ROLLOUT_GROUP):
        raise CannotEdit("the other groups of the config have GPUs of their own")
    return {f.parallel.gpus_per_node: gpus}


@meaning.override(f.parallel.sp, source=f"{ARGS} __post_init__")
def sequence_parallel(run: Cells) -> Any:
    return False if (run[f.parallel.tp] or 1) <= 1 else None


def _batch(run: Cells) -> tuple[int, int, int] | None:
    """Samples of a step, samples of a micro batch, and the ranks that share them."""
    total, micro, dp = run[megatron.global_batch], run[f.batch.micro], run[f.parallel.dp]
    return (total, micro, dp) if total and micro and dp else None


@meaning.derive(f.batch.grad_accum, source=f"{ARGS} _init_distributed")
def accumulation(run: Cells) -> Any:
    batch = _batch(run)
    if batch is None:
        return None
    total, micro, dp = batch
    return max(1, total // (micro * dp))


@accumulation.written
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    unknown = "global_batch_size follows from the number of GPUs, which is not known"
    return express_global_batch(steps, run, wishes, megatron.global_batch, unknown)


@meaning.derive(f.batch.global_)
def global_batch(run: Cells) -> Any:
    batch = _batch(run)
    return None if batch is None else batch[0]


meaning.takes(f.batch.eval_micro, f.batch.micro)
meaning.cannot_say(
    "Megatron shards by its own degrees", *below(f.parallel.zero), *below(f.parallel.fsdp)
)

# -- what is trained -------------------------------------------------------------------------------

meaning.constant(f.model.vision.freeze_tower, True, f"{ARGS}:451")
meaning.cannot_say("Megatron-SWIFT trains no quantized weights", f.quant.method)


@meaning.derive(f.trainable.method)
def method(run: Cells) -> Any:
    tuner = run[own.tuner]
    return "lora" if tuner == "lora_llm" else tuner


@method.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.tuner: "full" if wanted == "full" else "lora"}


@meaning.default(f.trainable.target_params, source="ms-swift 3602360a megatron/utils/utils.py")
def grouped_experts(run: Cells) -> Any:
    """mcore-bridge: all-linear takes grouped experts in."""
    return "experts" if run[f.trainable.targets] == "all_linear" else None


# -- dtypes ----------------------------------------------------------------------------------------


@meaning.derive(_P.param, _P.compute, _P.logits, source=f"{ARGS} _map_dtype")
def half(run: Cells) -> Any:
    dtype = _half(run)
    return dict.fromkeys((_P.param, _P.compute, _P.logits), dtype)


def _half(run: Cells) -> str | None:
    if run[megatron.fp16]:
        return "fp16"
    if run[megatron.bf16]:
        return "bf16"
    loaded = run[f.load.dtype]
    return "fp16" if loaded == "fp32" and not run[own.dtype] else loaded


@meaning.derive(_P.grad, _P.comm, source=f"{ARGS} _map_dtype")
def gradients(run: Cells) -> Any:
    """Summed in fp32: main_grads_dtype fp32 turns on accumulation in fp32."""
    return dict.fromkeys((_P.grad, _P.comm), run[megatron.main_grads])


@meaning.derive(_P.master, _P.optim_state, source=f"{ARGS} _map_dtype")
def states(run: Cells) -> Any:
    """fp32 weights and states in the optimizer: without the precision-aware one Megatron-core keeps
    all of them so."""
    master, state = "fp32", "fp32"
    if run[f.parallel.megatron.precision_aware_optim]:
        master = run[megatron.main_params]
        if run[megatron.exp_avg] == run[megatron.exp_avg_sq]:
            state = run[megatron.exp_avg]
    return {_P.master: master, _P.optim_state: state}


meaning.follows(_P.optim_state)
meaning.always(_P.autocast, False, f"{ARGS} _map_dtype")


@meaning.derive(f.trainable.adapter_dtype)
def adapters(run: Cells) -> Any:
    return run[own.lora_dtype] or run[_P.param] if is_adapter_run(run) else None


@meaning.derive(_P.fp8_train)
def trains_in_fp8(run: Cells) -> Any:
    return "te" if run[megatron.fp8] else None


# -- the optimizer ---------------------------------------------------------------------------------

_OPTIMIZER_KINDS = {"adam": "adamw", "sgd": "sgd", "muon": "muon", "dist_muon": "muon"}


@meaning.derive(f.optimizer.kind)
def optimizer_kind(run: Cells) -> Any:
    return _OPTIMIZER_KINDS.get(str(run[f.optimizer.name]), "other")


@optimizer_kind.written
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kind not in ("adamw", "sgd"):
        raise CannotEdit(f"Megatron-SWIFT has no optimizer for {kind}")
    return {f.optimizer.name: "adam" if kind == "adamw" else "sgd"}


meaning.always(f.optimizer.fused, True, "Megatron-core: TE or apex FusedAdam")
meaning.always(f.offload.params, "none", ARGS)


@meaning.written(f.offload.params)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if device != "none":
        raise CannotEdit("Megatron-SWIFT offloads the optimizer only (optimizer_cpu_offload)")
    return {}


@meaning.written(f.offload.optimizer)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if device == "cpu" and run[f.optimizer.name] != "adam":
        raise CannotEdit("only Adam can be offloaded here")
    return {f.offload.optimizer: device}


# -- recomputation ---------------------------------------------------------------------------------

meaning.always(f.checkpointing.source, "megatron", ARGS)
meaning.always(f.checkpointing.reentrant, True, ARGS)
meaning.always(f.checkpointing.offload, "none", ARGS)


def _recomputed_layers(run: Cells) -> tuple[int, int] | None:
    """Of the layers of a stage those that are recomputed, where these are but the first:
    ``block`` (Megatron-core transformer_block.py _checkpointed_forward)."""
    layers, dims = run[megatron.recompute_layers], run[f.model.dims]
    if run.base(f.checkpointing.mode) != "full" or run[megatron.recompute_method] != "block":
        return None
    if not layers or dims is None:
        return None
    stage = -(-(dims.layers or 1) // (run[f.parallel.pp] or 1))
    return (layers, stage) if layers < stage else None


@meaning.override(f.checkpointing.mode)
def recomputes_first_layers(run: Cells) -> Any:
    return None if _recomputed_layers(run) is None else "block_partial"


@recomputes_first_layers.written
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode == "none":
        return {f.checkpointing.mode: "none"}
    if mode != "full":
        raise CannotEdit("Megatron-SWIFT recomputes all layers, core attention or nothing")
    # SM arguments: a method and a number of layers belong to full recomputation.
    return {
        f.checkpointing.mode: "full",
        megatron.recompute_method: "uniform",
        megatron.recompute_layers: 1,
    }


@meaning.derive(f.checkpointing.every_n)
def recomputes_every(run: Cells) -> Any:
    found = _recomputed_layers(run)
    return None if found is None else max(1, round(found[1] / found[0]))


# -- samples and their loss ------------------------------------------------------------------------


@meaning.derive(f.seq.max_len)
def length(run: Cells) -> Any:
    """``seq_length`` is what is made room for; packs are filled up to the model's maximum."""
    return whole_pack(run) or run[megatron.seq_length]


@meaning.derive(f.seq.packing)
def packing(run: Cells) -> Any:
    return "bfd" if run[own.packing] else "none"


@meaning.derive(f.seq.pad)
def padding(run: Cells) -> Any:
    return "none" if run[own.packing] or run[own.padding_free] else "longest"


@meaning.derive(f.loss.logits_materialised)
def logits(run: Cells) -> Any:
    """In full, whether one kernel takes them or several."""
    run[megatron.fused_loss]
    return "full"


meaning.cannot_say(
    "Megatron-SWIFT computes its loss from logits that stand in full", f.loss.logits_materialised
)
# Megatron-core fusions/fused_cross_entropy.py works in place on fp32 logits.
meaning.constant(f.loss.upcast_fp32, True, "Megatron-core tensor_parallel/cross_entropy.py")

# -- evaluating and saving -------------------------------------------------------------------------


@meaning.derive(f.eval.enabled, f.eval.strategy)
def evaluation(run: Cells) -> Any:
    is_held_out = bool(run[own.val_dataset]) or (run[own.val_ratio] or 0) > 0
    evaluates = is_held_out and run[megatron.eval_iters] != 0
    return {f.eval.enabled: evaluates, f.eval.strategy: "steps" if evaluates else "no"}


meaning.constant(f.eval.keeps_logits, False, "ms-swift 3602360a megatron/trainers")


@meaning.derive(f.save.contents)
def saved(run: Cells) -> Any:
    contents: tuple[str, ...] = ("adapter",) if is_adapter_run(run) else ("model",)
    return contents if run[f.save.save_only_model] else (*contents, "optimizer", "scheduler", "rng")


@meaning.derive(f.save.unit)
def save_unit(run: Cells) -> Any:
    return "epochs" if run[f.save.strategy] == "epoch" else "steps"


meaning.constant(f.save.keep, "all", f"{ARGS} save_total_limit")
