"""What NeMo 1 makes of its keys about a step, its samples and optimizer, evaluating and saving.

Read from NVIDIA/NeMo v1.23.0 and v2.2.1 (the last releases with ``examples/nlp``).
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import is_adapter_run
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.dialects.megatron.fields import mg
from oomlint.dialects.megatron.recompute import recomputation
from oomlint.dialects.nemo.keys import NEMO, SOURCE, own, section
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

training = Meaning(recomputation)

# -- optimizer -------------------------------------------------------------------------------------


@training.derive(f.optimizer.kind, f.optimizer.fused)
def optimizer(run: Cells) -> Any:
    name = str(run[f.optimizer.name]).lower()
    kind = "adafactor" if "adafactor" in name else "other"
    if "adam" in name or "mcore" in name:
        kind = "adamw"
    elif name == "sgd":
        kind = "momentum_sgd"
    return {f.optimizer.kind: kind, f.optimizer.fused: "fused" in name or "mcore" in name}


@training.written(f.optimizer.kind)
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kind != "adamw":
        raise CannotEdit(f"NeMo's Megatron models are not trained with {kind}")
    return {f.optimizer.name: run[f.optimizer.name]}


training.cannot_say("Megatron's Adam is always the fused one", f.optimizer.fused)

# -- activations and the loss ----------------------------------------------------------------------


@training.derive(f.checkpointing.mode)
def older_checkpointing(run: Cells) -> Any:
    """Before 1.12 there was no granularity: a method recomputed whole layers."""
    named = any(
        "activations_checkpoint_granularity" in section(block.mapping, "model")
        for block in run.blocks
        if block.table is NEMO
    )
    return "full" if run[mg.recompute_method] and not named else None


training.constant(f.checkpointing.mode, "none", SOURCE)


@older_checkpointing.written
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode == "full":
        return {
            f.checkpointing.mode: mode,
            mg.recompute_method: "uniform",
            mg.recompute_layers: 1,
        }
    if mode not in ("none", "selective_op"):
        raise CannotEdit("NeMo recomputes whole layers, core attention or nothing")
    return {f.checkpointing.mode: None if mode == "none" else mode}


@training.derive(f.offload.activations)
def offloads_activations(run: Cells) -> Any:
    return "cpu" if run[own.offloads] and run[own.offloads_activations] else None


training.always(f.loss.logits_materialised, "loss_parallel", SOURCE)
training.always(f.loss.outputs_kept, False, SOURCE)
# Whatever shards the run, DDP or nothing included (0.10.0: the maximum is taken off and the exponential made in place).
_LOSS = "Megatron-core tensor_parallel/cross_entropy.py VocabParallelCrossEntropy"
training.constant(f.loss.upcast_fp32, True, _LOSS)
training.constant(f.loss.algorithm, "in_place", _LOSS)
training.cannot_say(
    "the loss is computed from logits split over the tensor-parallel ranks",
    f.loss.logits_materialised,
)

# -- samples ---------------------------------------------------------------------------------------


@training.derive(f.seq.max_len)
def length(run: Cells) -> Any:
    return run[own.sft_length] or run[own.length]


@length.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.length if run[own.sft_length] is None else own.sft_length: wanted}


@training.derive(f.seq.packing, f.seq.pad, source="NeMo megatron/gpt_dataset.py")
def packing(run: Cells) -> Any:
    if run[own.sft_length] is None:
        return {f.seq.packing: "concat", f.seq.pad: "none"}
    if run[own.packed]:
        return {f.seq.packing: "neat", f.seq.pad: "none"}
    return {f.seq.packing: "none", f.seq.pad: "max_len" if run[own.pads] else "longest"}


# -- evaluating and saving -------------------------------------------------------------------------


def _steps_between(run: Cells) -> float | None:
    """A number of steps; a share of an epoch where it is at most 1."""
    interval = run[own.val_interval]
    return interval if interval is not None and interval > 1 else None


@training.derive(f.eval.enabled, f.eval.strategy)
def evaluation(run: Cells) -> Any:
    batches = run[own.val_batches]
    enabled = batches is None or batches > 0
    return {f.eval.enabled: enabled, f.eval.strategy: "steps" if enabled else "no"}


@training.derive(f.eval.every)
def evaluates_every(run: Cells) -> Any:
    return _steps_between(run)


training.always(f.eval.keeps_logits, False, SOURCE)


training.takes(f.batch.eval_micro, f.batch.micro, SOURCE)


@training.derive(f.total_steps)
def steps(run: Cells) -> Any:
    total = run[own.max_steps]
    return total if total and total > 0 else None


@training.derive(f.save.strategy)
def save_strategy(run: Cells) -> Any:
    return "steps" if run[own.saves] else "no"


@training.derive(f.save.every)
def saves_every(run: Cells) -> Any:
    return run[own.save_every] or _steps_between(run)


@saves_every.written
def _(count: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.save_every: int(count)}


@training.derive(f.save.keep)
def kept(run: Cells) -> Any:
    number = run[own.keep]
    return "all" if number is None or number < 0 else number


@kept.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.keep: -1 if wanted == "all" else wanted}


training.always(f.save.unit, "steps", SOURCE)
training.always(f.save.save_only_model, False, SOURCE)
training.always(f.save.format, "distcp", SOURCE)
training.cannot_say("NeMo saves the optimizer with every checkpoint", f.save.save_only_model)


@training.derive(f.save.contents)
def saved(run: Cells) -> Any:
    return ("adapter", "optimizer") if is_adapter_run(run) else ("model", "optimizer", "scheduler")


@training.derive(f.save.full_gather)
def gathers_to_save(run: Cells) -> Any:
    return run[f.parallel.fsdp.state_dict] == "full" and bool(run[own.fsdp])
