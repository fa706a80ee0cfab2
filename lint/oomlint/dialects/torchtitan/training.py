"""What torchtitan's trainer makes of its configs: a step, its loss and optimizer, evaluating and
saving.

Read from torchtitan b5bcd76c (2026-08-21) and v0.1.0 to v0.2.2; ``TN`` below is its package.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.dialects.torchtitan.keys import CONFIG, is_registry, own
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

training = Meaning()

# -- optimizer -------------------------------------------------------------------------------------

_OPTIMIZERS = {"adam": "adamw", "adamw": "adamw", "muon": "muon", "distributedmuon": "muon"}

training.constant(own.implementation, "fused", f"{CONFIG} Optimizer")


@training.derive(f.optimizer.kind)
def optimizer(run: Cells) -> Any:
    return _OPTIMIZERS.get((run[f.optimizer.name] or "").lower(), "other")


@optimizer.written
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kind != "adamw":
        raise CannotEdit("torchtitan's configs choose between Adam and AdamW")
    return {f.optimizer.name: "AdamW"}


@training.derive(f.optimizer.fused, f.optimizer.foreach)
def implementation(run: Cells) -> Any:
    """Before v0.1.0 ``fused`` was a switch of its own; without it torch picks foreach."""
    if run.says(own.fused):
        chosen = "fused" if run[own.fused] else "foreach"
    else:
        chosen = run[own.implementation] or ""
    return {
        f.optimizer.fused: chosen.startswith("fused"),
        f.optimizer.foreach: chosen == "foreach",
    }


@training.written(f.optimizer.fused)
def _(fused: Any, run: Cells, wishes: Wishes) -> Wishes:
    if run.says(own.fused):
        return {own.fused: bool(fused)}
    return {own.implementation: "fused" if fused else "foreach"}


# -- activations -----------------------------------------------------------------------------------


@training.default(own.ac, source=f"{CONFIG} ActivationCheckpoint")
def default_checkpointing(run: Cells) -> Any:
    return "selective_op" if is_registry(run) else "selective"


def _every(run: Cells) -> int | None:
    """``selective`` keeps the outputs of chosen operators, or wraps every n-th layer
    (distributed/activation_checkpoint.py)."""
    option = run[own.ac_option] or ""
    return (int(option) or None) if option.isdecimal() else None


@training.derive(f.checkpointing.mode)
def checkpointing(run: Cells) -> Any:
    mode = run[own.ac]
    if mode == "memory_budget":
        return "budget"
    if mode != "selective":
        return mode
    every = _every(run)
    return "selective_op" if every is None else "full" if every == 1 else "every_n"


@checkpointing.written
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if is_registry(run):
        if mode != "full":
            raise CannotEdit("only full activation checkpointing can be put in here")
        return {own.ac: "full"}
    if mode in ("full", "none"):
        return {own.ac: mode}
    if mode == "selective_op":
        return {own.ac: "selective", own.ac_option: "op"}
    raise CannotEdit(f"torchtitan has no activation checkpointing that is {mode}")


@training.derive(f.checkpointing.every_n)
def every_nth(run: Cells) -> Any:
    return _every(run) if run[own.ac] == "selective" else None


@training.derive(f.checkpointing.selective_keeps)
def selective_keeps(run: Cells) -> Any:
    """Qwen3's list of operators has neither the grouped products of experts nor all_to_all_single, until one list of torch's
    takes the place of all (models/qwen3/infra/parallelize.py _op_sac_save_list; 114151ad of 2026-03-23, when configs were a
    registry's). Models whose lists have the latter since c4e22911 of 2025-09-06 wrap attention and experts apart where they use
    flex attention; a reading of one fits as if products were kept, though no list has them (issue 1789), so they say nothing."""
    is_listed = run[f.checkpointing.mode] == "selective_op" and not is_registry(run)
    return () if is_listed and run[own.name] == "qwen3" else None


training.constant(f.checkpointing.reentrant, False, "torch checkpoint_wrapper: NO_REENTRANT")
training.constant(f.checkpointing.offload, "none", "torchtitan offloads no activations")
training.cannot_say(
    "torchtitan offloads no activations", f.offload.activations, f.checkpointing.offload
)

# -- compiling -------------------------------------------------------------------------------------


def _compiles(run: Cells, part: str) -> bool:
    return bool(run[own.compile]) and part in (run[own.compiled] or ())


@training.derive(f.compile.enabled)
def compiles_model(run: Cells) -> Any:
    return _compiles(run, "model")


@compiles_model.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.compile: bool(wanted)}


# -- loss ------------------------------------------------------------------------------------------


def _is_chunked(run: Cells) -> bool:
    """ChunkedLossWrapper runs the head, the loss and their backward on one chunk of tokens after
    the other (b5bcd76c components/loss.py)."""
    return "Chunked" in (run[own.loss] or "")


@training.default(f.loss.chunks, source="torchtitan b5bcd76c components/loss.py")
def chunks(run: Cells) -> Any:
    return 8 if _is_chunked(run) else None


@training.derive(f.loss.logits_materialised)
def logits(run: Cells) -> Any:
    if _is_chunked(run):
        return "fused"
    splits = (run[f.parallel.tp] or 1) > 1 and not run[own.no_loss_parallel]
    return "loss_parallel" if splits else "full"


@logits.written
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kind == "loss_parallel" and run[own.no_loss_parallel]:
        return {own.no_loss_parallel: False}
    raise CannotEdit("a config of torchtitan has no key for a chunked loss")


@training.derive(f.loss.upcast_fp32)
def upcasts(run: Cells) -> Any:
    """Cross entropy of fp32 logits; compiled, their fp32 copy is never stored. Until bbb1b616 of
    2 April 2025 the loss was left out ("compiling loss function causes CUDA errors", components/loss.py)."""
    return run.says(own.early) or not _compiles(run, "loss")


@training.derive(f.loss.algorithm)
def fused_loss(run: Cells) -> Any:
    """Inductor keeps the logits and writes their gradient beside them, as a fused kernel does:
    log-probabilities it can make again (``oomlint.memory.logits``)."""
    is_fused = not run.says(own.early) and _compiles(run, "loss")
    return "kernel" if is_fused else None


# train.py: "need to free pred before bwd to avoid peaking memory".
training.always(f.loss.outputs_kept, False, "torchtitan train.py: del pred")

# -- evaluating ------------------------------------------------------------------------------------


@training.derive(f.eval.strategy)
def eval_strategy(run: Cells) -> Any:
    return "steps" if run[f.eval.enabled] else "no"


training.always(f.eval.keeps_logits, False, "components/validate.py")

# -- saving ----------------------------------------------------------------------------------------


def _saves(run: Cells) -> bool:
    return bool(run[own.saves]) and not run[own.load_only]


@training.derive(f.save.strategy)
def save_strategy(run: Cells) -> Any:
    return "steps" if _saves(run) else "no"


@save_strategy.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.saves: wanted != "no"}


@training.derive(f.save.keep)
def keeps(run: Cells) -> Any:
    return run[own.keep] or "all"


@keeps.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    # components/checkpoint.py refuses 1: the last one may still be written.
    if wanted == 1:
        raise CannotEdit("torchtitan keeps two checkpoints at least")
    return {own.keep: 0 if wanted == "all" else wanted}


@training.derive(f.save.save_only_model)
def saves_last_alone(run: Cells) -> Any:
    """Only the last save leaves the optimizer out and converts the weights."""
    every, steps = run[f.save.every], run[f.total_steps]
    is_last = every is not None and steps is not None and every >= steps
    return bool(_saves(run) and run[own.last_alone] and is_last)


training.cannot_say(
    "torchtitan leaves the optimizer out of its last checkpoint only", f.save.save_only_model
)


@training.derive(f.save.contents)
def saved(run: Cells) -> Any:
    return ("model",) if run[f.save.save_only_model] else ("model", "optimizer", "scheduler")


@training.derive(f.save.dtype)
def save_dtype(run: Cells) -> Any:
    return run[own.export_dtype] if run[f.save.save_only_model] else run[own.dtype]


training.always(f.save.unit, "steps", "torchtitan components/checkpoint.py")
training.always(f.save.format, "dcp", "torch distributed checkpoint")
training.always(f.save.full_gather, False, "torch distributed checkpoint")
training.always(f.load.resume, False, "torchtitan components/checkpoint.py")
