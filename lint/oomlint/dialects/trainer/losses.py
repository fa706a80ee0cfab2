"""The loss under transformers' Trainer, and Liger's kernels.

Read from transformers 5.23 (``HF`` below is ``src/transformers``).
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.liger import check_liger_patches, liger_patches
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.dialects.releases import EVALUATES_FUSED, SKIPS_LOGITS
from oomlint.dialects.trainer.fields import hf
from oomlint.dialects.trainer.own_losses import check_logits_unread
from oomlint.dialects.trainer.own_models import check_class_is_patched
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

losses = Meaning()


def uses_liger(run: Cells) -> bool:
    """TRL's preference losses take hidden states to Liger's functions, whatever the model is."""
    patches = run[f.objective.kind] not in (None, "sft", "pretrain") or liger_patches(run)
    return bool(run[hf.liger]) and patches


@losses.derive(f.loss.label_smoothing)
def smooths(run: Cells) -> Any:
    return (run[hf.label_smoothing] or 0) > 0


@losses.derive(f.loss.logits_materialised)
def logits(run: Cells) -> Any:
    """HF/integrations/liger.py: fused_linear_cross_entropy is on unless its config says no;
    HF/trainer.py compute_loss: the label smoother takes the logits themselves."""
    fused = uses_liger(run) and run[hf.liger_flce] is not False
    return "fused" if fused and not (run[hf.label_smoothing] or 0) > 0 else "full"


@logits.written
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    if kind != "fused":
        raise CannotEdit("the Trainer can only fuse the loss (use_liger_kernel)")
    check_logits_unread(run)
    if run[f.objective.kind] in (None, "sft", "pretrain"):
        check_liger_patches(run)
    check_class_is_patched(run)
    return {hf.liger: True}


@losses.derive(f.loss.liger.rope, f.loss.liger.rms, f.loss.liger.swiglu)
def kernels(run: Cells) -> Any:
    return dict.fromkeys(
        (f.loss.liger.rope, f.loss.liger.rms, f.loss.liger.swiglu), uses_liger(run)
    )


@losses.derive(f.loss.liger.flce)
def fused_by_liger(run: Cells) -> Any:
    return logits(run) == "fused"


@losses.derive(f.eval.fuses_loss)
def fused_in_evaluation(run: Cells) -> Any:
    """Liger's models fuse the loss ``if self.training``, and otherwise where ``skip_logits`` asks for it, as the
    Trainer does that needs no logits. TRL's preference losses are functions of Liger's, which ask for no mode."""
    if not (run[hf.liger] and run[f.loss.liger.flce]):
        return None
    if run[f.objective.kind] not in (None, "sft", "pretrain"):
        return None
    return not run[f.eval.keeps_logits] and run.has(SKIPS_LOGITS) and run.has(EVALUATES_FUSED)


losses.constant(f.loss.upcast_fp32, True, "transformers 5.23 loss/loss_utils.py:61")
