"""What a script over transformers' Trainer makes of its arguments, its options and its calls.

Read from transformers 5.23 ``examples/pytorch``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.machine.meaning import launch_all_visible
from oomlint.dialects.meaning import NOTHING, Meaning
from oomlint.dialects.setting import Setting
from oomlint.dialects.trainer.custody import custody
from oomlint.dialects.trainer.fields import hf
from oomlint.dialects.trainer.model import asks_gradients_of_patches, loading, model, one_process
from oomlint.dialects.trainer.own_losses import embedding, own_losses
from oomlint.dialects.trainer.own_ways import own_ways
from oomlint.dialects.trainer.scripts import classifier, early_load, scripts
from oomlint.dialects.trainer.statements import idle_flags
from oomlint.dialects.trainer.training_arguments import training_arguments
from oomlint.dialects.trainer.unfollowed import unfollowed
from oomlint.plan.fields import f

usual = Meaning()
"""What holds where nothing else is known of a script."""

meaning = Meaning(
    custody,
    own_ways,
    own_losses,
    classifier,
    early_load,
    scripts,
    embedding,
    model,
    one_process,
    training_arguments,
    launch_all_visible,
    loading,
    idle_flags,
    unfollowed,
    usual,
)


@usual.derive(f.checkpointing.input_grads)
def asks_input_gradients(run: Cells) -> Any:
    return asks_gradients_of_patches(run)


usual.constant(f.objective.kind, "sft", "the Trainer's own loss on labels")
usual.constant(f.objective.ref_model, "none", "the Trainer itself knows no other model")
usual.constant(f.seq.packing, "none", "samples are batched one by one")
usual.constant(f.seq.pad, "longest", "the usual collator pads to the longest sample")


@meaning.override(f.quant.requested_bits)
def asked_by_own_switch(run: Cells) -> Any:
    """A script's own switch does more than ask for 4 bit; whether it is idle is its business."""
    said = run.said(hf.load_4bit)
    is_own = isinstance(said, Setting) and said.origin.key in ("q_lora", "use_qlora")
    return NOTHING if is_own else None
