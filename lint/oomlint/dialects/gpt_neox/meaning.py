"""What GPT-NeoX makes of its keys, and how they say a wish.

Read from gpt-neox ea7aefd8 (2026-05-20), v1.0 and v2.0; ``NX`` below is its ``megatron`` package.
DeepSpeed trains every model: what of the keys is DeepSpeed's goes on to it as its JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import shared
from oomlint.dialects.common.offloading import to_cpu
from oomlint.dialects.common.precision import precision
from oomlint.dialects.common.world import batch
from oomlint.dialects.deepspeed.keys import ds
from oomlint.dialects.deepspeed.meaning import deepspeed_alone, deepspeed_json
from oomlint.dialects.gpt_neox.keys import ARGUMENTS, DERIVED, own
from oomlint.dialects.gpt_neox.model import kernels_of, model
from oomlint.dialects.gpt_neox.ranks import ranks
from oomlint.dialects.meaning import Bounds, Meaning, Wishes
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

meaning = Meaning(model, ranks, deepspeed_json, deepspeed_alone, batch, precision)

TRAINING = "gpt-neox ea7aefd8 megatron/training.py"


@meaning.requires
def libraries(run: Cells) -> Iterator[Bounds]:
    """EleutherAI's own DeepSpeed of 2025-03 at the newest (requirements/requirements.txt: DeeperSpeed
    91d1c55b), which is one of before 0.17."""
    yield "deepspeed", (), (0, 17)


# -- sharding --------------------------------------------------------------------------------------

meaning.always(f.parallel.backend, "zero", TRAINING)


@meaning.derive(f.parallel.pp, source=DERIVED)
def stages(run: Cells) -> Any:
    """0 is one stage without DeepSpeed's PipelineModule around it."""
    return max(1, run[own.pipes] or 0)


@stages.written
def _(count: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.pipes: count}


@meaning.derive(f.parallel.pp_schedule)
def schedule(run: Cells) -> Any:
    return "1F1B" if (run[f.parallel.pp] or 1) > 1 else None


@meaning.override(f.parallel.sp, source=f"{ARGUMENTS} sequence_parallel")
def needs_tensor_parallelism(run: Cells) -> Any:
    return False if (run[f.parallel.tp] or 1) <= 1 else None


@meaning.written(f.parallel.zero.stage)
def _(stage: Any, run: Cells, wishes: Wishes) -> Wishes:
    """NX/training.py get_model: stages 2 and 3 stop at a pipeline module and at model parallelism."""
    if stage < 2:
        return {f.parallel.zero.stage: stage}
    if (run[f.parallel.tp] or 1) > 1 or (run[own.pipes] or 0) > 1:
        raise CannotEdit("GPT-NeoX refuses ZeRO-2 and 3 beside model or pipeline parallelism")
    if (run[own.experts] or 1) > 1:
        raise CannotEdit("GPT-NeoX refuses ZeRO-2 and 3 for models with experts")
    if run[own.pipes] != 0:
        # NX/training.py: a pipeline module of one stage saves its layers in files of their own, another model whole.
        raise CannotEdit(
            "GPT-NeoX takes ZeRO-2 and 3 only without its pipeline module (pipe_parallel_size: 0), which saves otherwise"
        )
    return {f.parallel.zero.stage: stage}


@meaning.derive(f.load.zero3_init, source=f"{TRAINING} get_model")
def builds_in_shards(run: Cells) -> Any:
    return run[f.parallel.zero.stage] == 3


@meaning.derive(f.load.meta_init, source="gpt-neox ea7aefd8 megatron/mpu/layers.py")
def builds_on_gpu(run: Cells) -> Any:
    """Parameters are made on the GPU; a pipeline module reads a checkpoint layer by layer, and only
    its own. Without one every rank reads the file of its model-parallel part at once."""
    if run[own.on_cpu]:
        return False
    reads_whole = run[own.pipes] == 0 and (run[f.parallel.tp] or 1) == 1
    return not (reads_whole and not run[f.model.from_scratch])


meaning.cannot_say("GPT-NeoX's model is built in shards under ZeRO-3", f.load.zero3_init)
meaning.cannot_say("GPT-NeoX builds every rank's part by itself", f.load.cpu_ram_efficient)
meaning.cannot_say("GPT-NeoX shards with DeepSpeed, not with FSDP", f.parallel.fsdp.state_dict)

# -- batches ---------------------------------------------------------------------------------------


@meaning.written(f.batch.micro)
def _(micro: Any, run: Cells, wishes: Wishes) -> Wishes:
    """Of the three sizes that DeepSpeed has two are enough; all three have to agree."""
    return {ds.micro: micro} if run[ds.micro] is not None else {ds.grad_accum: _steps(wishes, run)}


@meaning.derive(
    f.batch.grad_accum, source="gpt-neox ea7aefd8 megatron/neox_arguments/deepspeed_args.py:45"
)
def steps(run: Cells) -> Any:
    """One where nobody says it: it is not what the batch of all ranks leaves, which has to agree."""
    return None if run.is_unread(ds.grad_accum) else run[ds.grad_accum] or 1


@steps.written
def _(count: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {ds.grad_accum: count}


def _steps(wishes: Wishes, run: Cells) -> int:
    steps = wishes.get(f.batch.grad_accum)
    if steps is None:
        raise CannotEdit("train_batch_size decides on the micro batch with the accumulation")
    return int(steps)


meaning.always(f.seq.packing, "concat", "gpt-neox ea7aefd8 megatron/data/gpt2_dataset.py")
meaning.always(f.seq.pad, "none", "gpt-neox ea7aefd8 megatron/data/gpt2_dataset.py")

# -- what is trained -------------------------------------------------------------------------------

meaning.always(f.trainable.method, "full", TRAINING)
meaning.always(f.quant.method, "none", TRAINING)
meaning.cannot_say("GPT-NeoX trains no quantized weights", f.quant.method)

_TASKS = {"dpo": "dpo", "rm": "rm", "kto": "kto", "reinforce": "rloo"}


@meaning.derive(f.objective.kind, source=ARGUMENTS)
def objective(run: Cells) -> Any:
    return _TASKS.get(run[own.task]) or ("sft" if run[own.finetune] else "pretrain")


@meaning.derive(f.objective.pairs_per_sample, source=f"{TRAINING} get_batch")
def pairs(run: Cells) -> Any:
    return 1 if run[own.task] in ("dpo", "rm") else None


def _needs_reference(run: Cells) -> bool:
    task = run[own.task]
    if task == "reinforce":
        return (run[own.kl] or 0) > 0
    if task not in ("dpo", "kto") or run.mentions(own.precomputed):
        return False
    return task == "kto" or not run[own.no_reference]


@meaning.derive(f.objective.ref_model, source=f"{TRAINING} setup_model_and_optimizer")
def reference_model(run: Cells) -> Any:
    return "copy" if _needs_reference(run) else "none"


@meaning.derive(f.objective.ref_dtype)
def reference_dtype(run: Cells) -> Any:
    return _half(run) if _needs_reference(run) else None


@meaning.derive(f.model.from_scratch)
def starts_from_nothing(run: Cells) -> Any:
    """``load`` is the folder that the run saves to and goes on from, but where it tunes."""
    return not (run[own.finetune] and run.mentions(own.load))


# -- dtypes ----------------------------------------------------------------------------------------


def _half(run: Cells) -> str:
    """NX/neox_arguments/arguments.py calculate_derived: DeepSpeed's switches and ``precision`` say
    the same, or one of them is left out."""
    named = run[own.precision]
    if named is not None:
        return named
    return "fp16" if run[ds.fp16] else "bf16" if run[ds.bf16] else "fp32"


@meaning.derive(shared.amp, shared.loads, f.load.dtype, source=f"{DERIVED}: params_dtype")
def dtypes(run: Cells) -> Any:
    half = _half(run)
    return {shared.amp: "no" if half == "fp32" else half, shared.loads: half, f.load.dtype: half}


meaning.follows(f.precision.optim_state)

# -- optimizer -------------------------------------------------------------------------------------

_BUILT = f"{TRAINING} get_optimizer"
_OPTIMIZERS = {
    "adam": "adamw",
    "onebitadam": "adamw",
    "cpu_adam": "adamw",
    "cpu_torch_adam": "adamw",
    "lion": "lion",
    "sgd": "sgd",
}


@meaning.derive(f.optimizer.kind, source=_BUILT)
def optimizer(run: Cells) -> Any:
    name = str(run[f.optimizer.name]).lower()
    return "adamw8bit" if name == "adam" and run[own.bnb] else _OPTIMIZERS.get(name, "other")


@optimizer.written
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    names = {"adamw": "Adam", "adamw8bit": "Adam", "lion": "Lion"}
    if kind not in names:
        raise CannotEdit(f"GPT-NeoX has no optimizer for {kind}")
    changes: dict[Any, Any] = {f.optimizer.name: names[kind]}
    is_8bit = kind == "adamw8bit"
    return {**changes, own.bnb: is_8bit} if is_8bit != bool(run[own.bnb]) else changes


@meaning.derive(f.optimizer.fused, source=f"{_BUILT}: apex's or DeepSpeed's FusedAdam")
def is_fused(run: Cells) -> Any:
    return run[f.optimizer.kind] in ("adamw", "lion")


meaning.cannot_say("GPT-NeoX's Adam is always the fused one", f.optimizer.fused)


@meaning.written(f.offload.optimizer)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    """DeepSpeed offloads no optimizer that was built for the GPU (runtime/engine.py
    _do_optimizer_sanity_check: a client's optimizer has to be DeepSpeedCPUAdam)."""
    if not to_cpu(device, "GPT-NeoX offloads the optimizer"):
        return {f.offload.optimizer: device}
    if run[f.optimizer.kind] != "adamw":
        raise CannotEdit("GPT-NeoX steps on the CPU with Adam alone")
    return {f.offload.optimizer: device, f.optimizer.name: "cpu_adam"}


# -- activations -----------------------------------------------------------------------------------

_CHECKPOINTS = "gpt-neox ea7aefd8 megatron/initialize.py: deepspeed.checkpointing"


@meaning.derive(f.checkpointing.mode, source=_CHECKPOINTS)
def checkpointing(run: Cells) -> Any:
    """What one checkpoint covers is whole on the card once it is recomputed: one of all layers saves nothing there
    (DeepSpeed 0.18 runtime/pipe/module.py forward: activation_checkpoint_interval)."""
    stage = -(-(run[own.layers] or 0) // max(1, run[own.pipes] or 1))
    saves = not stage or (run[own.interval] or 1) < stage or stage == 1
    return "full" if run[own.checkpoints] and saves else "none"


@checkpointing.written
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode not in ("full", "none"):
        raise CannotEdit("GPT-NeoX checkpoints every layer or none")
    covers_several = mode == "full" and (run[own.interval] or 1) > 1
    return {own.checkpoints: mode == "full", **({own.interval: 1} if covers_several else {})}


meaning.always(f.checkpointing.source, "deepspeed", _CHECKPOINTS)
meaning.always(f.checkpointing.reentrant, True, _CHECKPOINTS)


@meaning.derive(f.checkpointing.offload, source="DeepSpeed runtime/activation_checkpointing")
def checkpoints_on_cpu(run: Cells) -> Any:
    """DeepSpeed moves what it has split over the ranks, and nothing else."""
    moves = run[own.checkpoints] and run[own.partitions] and run[own.checkpoints_on_cpu]
    return "cpu" if moves else "none"


@checkpoints_on_cpu.written
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    offloads = to_cpu(device, "GPT-NeoX offloads checkpoints")
    own_keys: dict[Any, Any] = {own.checkpoints_on_cpu: offloads}
    return {**own_keys, own.partitions: True} if offloads and not run[own.partitions] else own_keys


meaning.always(f.offload.activations, "none", _CHECKPOINTS)
meaning.cannot_say("checkpoint_in_cpu offloads what is checkpointed", f.offload.activations)


@meaning.derive(f.model.attn_impl, source="gpt-neox ea7aefd8 megatron/model/transformer.py:407")
def attention(run: Cells) -> Any:
    """Flash where all of the stack is; else some layer computes its scores."""
    kinds = kernels_of(run)
    if kinds is None:
        return None
    return "flash2" if kinds == {"flash"} else "eager"


@attention.written
def _(kernel: Any, run: Cells, wishes: Wishes) -> Wishes:
    layers = run[own.layers]
    if kernel != "flash2" or layers is None:
        raise CannotEdit("attention_config knows flash attention, and scores of its own")
    return {own.kernels: [[["flash"], layers]]}


# -- loss ------------------------------------------------------------------------------------------

_LOSS = "gpt-neox ea7aefd8 megatron/mpu/cross_entropy.py"

meaning.always(f.loss.logits_materialised, "loss_parallel", _LOSS)
meaning.cannot_say(
    "GPT-NeoX computes its loss from logits split over the tensor-parallel ranks",
    f.loss.logits_materialised,
)
meaning.always(f.loss.outputs_kept, False, _LOSS)


@meaning.derive(f.loss.upcast_fp32, source="gpt-neox ea7aefd8 megatron/model/gpt2_model.py:61")
def widens_logits(run: Cells) -> Any:
    return not run[own.narrow_loss]


# -- evaluating and saving -------------------------------------------------------------------------


@meaning.derive(f.eval.enabled, f.eval.strategy, source=ARGUMENTS)
def evaluation(run: Cells) -> Any:
    enabled = (run[own.eval_iters] or 0) > 0
    return {f.eval.enabled: enabled, f.eval.strategy: "steps" if enabled else "no"}


meaning.always(f.eval.keeps_logits, False, TRAINING)


meaning.takes(f.batch.eval_micro, f.batch.micro, TRAINING)
meaning.cannot_say("GPT-NeoX evaluates with the micro batch of training", f.batch.eval_micro)

_SAVING = "gpt-neox ea7aefd8 megatron/checkpointing.py save_ds_checkpoint"


@meaning.derive(f.save.strategy, f.save.every, source=_SAVING)
def saving(run: Cells) -> Any:
    if not run.mentions(f.save.dir):
        return {f.save.strategy: "no"}
    every = int(run[own.factor] or 0) if run[own.spacing] == "linear" else 0
    return {f.save.strategy: "steps" if every else "end", f.save.every: every or None}


@meaning.written(f.save.every)
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    if run[own.spacing] != "linear":
        raise CannotEdit("checkpoint_scale is not linear: steps between checkpoints grow")
    return {own.factor: int(steps)}


meaning.always(f.save.unit, "steps", _SAVING)
meaning.constant(f.save.keep, "all", ARGUMENTS)
meaning.always(f.save.full_gather, False, _SAVING)
meaning.always(f.save.format, "ds_zero", _SAVING)


@meaning.derive(f.save.contents, source=_SAVING)
def saved(run: Cells) -> Any:
    if run[f.save.save_only_model]:
        return ("model",)
    return ("model", "optimizer", "scheduler")
