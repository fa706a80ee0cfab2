"""What Megatron-LM makes of its options about a step, its activations and loss, evaluating and saving.

Read from Megatron-LM d98e8a64 (2026-08-22), core_v0.7.0 and v2.5.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.dialects.megatron.fields import ARGUMENTS, mg
from oomlint.dialects.megatron.recompute import recomputation
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f
from oomlint.plan.library_changes import LibraryChange

training = Meaning(recomputation)

# -- activations -----------------------------------------------------------------------------------


@training.derive(f.checkpointing.mode)
def by_old_options(run: Cells) -> Any:
    """v2.5 had a switch; up to v2.6 a method was enough."""
    return "full" if run[mg.old_checkpointing] or run[mg.recompute_method] else None


training.constant(f.checkpointing.mode, "none", ARGUMENTS)


@training.override(f.checkpointing.mode, source=f"{ARGUMENTS}:607")
def by_switch(run: Cells) -> Any:
    """``--recompute-activations`` overrules the granularity."""
    return "selective_op" if run[mg.recompute_switch] else None


@by_switch.written
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode == "full":
        own: dict[Any, Any] = {f.checkpointing.mode: "full"}
        if run[mg.recompute_method] != "uniform":
            own[mg.recompute_method] = "uniform"
        own[mg.recompute_layers] = 1
    elif mode == "selective_op":
        own = {f.checkpointing.mode: "selective_op"}
        for field in (mg.recompute_method, mg.recompute_layers):
            if run[field] is not None:
                own[field] = None
    else:
        raise CannotEdit("take the options of recomputation out of the command")
    if run.says(mg.recompute_switch):
        own[mg.recompute_switch] = None
    if run.says(mg.old_checkpointing):
        raise CannotEdit("--checkpoint-activations recomputes everything already")
    return own


@training.derive(f.offload.activations)
def offloaded(run: Cells) -> Any:
    return "cpu" if run[mg.offloaded_layers] else None


WEIGHS_WITHIN = LibraryChange(
    "megatron-core", (0, 12, 1), "experts are weighed behind their second product",
    "megatron-core 0.12.0 and 0.12.1 megatron/core/transformer/moe/experts.py TEGroupedMLP",
)  # fmt: skip


@training.derive(
    f.model.experts_impl,
    source="megatron-core 0.12.1 fusions/fused_bias_swiglu.py WeightedSwiGLUFunction",
)
def experts(run: Cells) -> Any:
    """Where there are any: one function activates and weighs, and keeps neither what is activated nor what the second product
    makes."""
    return "weighted" if run.has(WEIGHS_WITHIN) else "grouped"


@training.derive(f.model.attn_impl, source="Transformer Engine DotProductAttention")
def attention(run: Cells) -> Any:
    """Transformer Engine chooses flash or cuDNN's fused attention; the plain implementation
    computes scores unless told to use flash. Recomputing core attention keeps as little of it as
    flash attention does."""
    kernel = run[mg.attention]
    if run[mg.flash]:
        return "flash2"
    if kernel is None:
        kernel = "eager" if (run[mg.implementation] or "").lower() == "local" else "flash2"
    is_selective = kernel == "eager" and run[f.checkpointing.mode] == "selective_op"
    return "flash2" if is_selective else kernel


@attention.written
def _(kernel: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kernel != "flash2":
        raise CannotEdit("Megatron chooses between flash, fused and unfused attention")
    return {mg.attention: "flash2"} if run.says(mg.attention) else {mg.flash: True}


# -- loss ------------------------------------------------------------------------------------------

_LOSS = "Megatron-core tensor_parallel/cross_entropy.py: logits.float()"

training.always(f.loss.logits_materialised, "loss_parallel", _LOSS)
training.cannot_say(
    "Megatron computes its loss from logits split over the tensor-parallel ranks",
    f.loss.logits_materialised,
)
training.always(f.loss.outputs_kept, False, _LOSS)


@training.derive(f.loss.upcast_fp32, source=_LOSS)
def widens_logits(run: Cells) -> Any:
    return not (run[mg.fused_loss] and run[mg.loss_fusion] == "te")


# -- evaluating and saving -------------------------------------------------------------------------


@training.derive(f.eval.enabled, f.eval.strategy)
def evaluation(run: Cells) -> Any:
    enabled = (run[mg.eval_iters] or 0) > 0
    return {f.eval.enabled: enabled, f.eval.strategy: "steps" if enabled else "no"}


training.always(f.eval.keeps_logits, False, ARGUMENTS)


training.takes(f.batch.eval_micro, f.batch.micro, ARGUMENTS)


@training.derive(f.save.strategy)
def save_strategy(run: Cells) -> Any:
    if not run.mentions(f.save.dir):
        return "no"
    return "steps" if run[f.save.every] else "end"


_SAVING = "Megatron-LM training/checkpointing.py"

training.always(f.save.unit, "steps", _SAVING)
training.always(f.save.keep, "all", _SAVING)
training.always(f.save.full_gather, False, _SAVING)


@training.derive(f.save.contents, source=_SAVING)
def saved(run: Cells) -> Any:
    if run[f.save.save_only_model]:
        return ("model",)
    return ("model", "optimizer", "scheduler")


@training.derive(f.save.format, source=_SAVING)
def save_format(run: Cells) -> Any:
    return "bin" if run[mg.format] == "torch" else "distcp"
