"""What Megatron-core makes of degrees of parallelism and of batches, whoever gives them.

Read from Megatron-LM d98e8a64 (2026-08-22) and core_v0.7.0.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.meaning import Meaning, Sourced, Wishes
from oomlint.dialects.megatron.fields import ARGUMENTS, mg
from oomlint.errors import CannotEdit
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f

degrees = Meaning()
"""Sequence parallelism and virtual stages as Megatron takes them."""
global_batch = Meaning()
"""Accumulation is what ``mg.global_batch`` leaves after the ranks' micro batches."""
limits = Meaning()
"""What nothing that is built upon Megatron-core can say."""


@degrees.override(f.parallel.sp, source=ARGUMENTS)
def needs_tensor_parallelism(run: Cells) -> Any:
    """ "Disable sequence parallelism when tp=1 to avoid change in numerics"."""
    return False if (run[f.parallel.tp] or 1) <= 1 else None


@degrees.derive(f.parallel.vpp)
def virtual_stages(run: Cells) -> Any:
    each, layers, pp = run[mg.virtual_layers], run[mg.layers], run[f.parallel.pp] or 1
    return max(1, layers // pp // each) if each and layers and pp > 1 else None


@degrees.derive(f.parallel.pp_schedule)
def schedule(run: Cells) -> Any:
    return "1F1B" if (run[f.parallel.pp] or 1) > 1 else None


@global_batch.derive(f.batch.global_, f.batch.grad_accum)
def batches(run: Cells) -> Any:
    micro, total = run[f.batch.micro], run[mg.global_batch]
    if run.is_unread(mg.global_batch) or micro is None:
        return None
    dp = run[f.parallel.dp]
    if total is None:
        return {
            f.batch.grad_accum: Sourced(1, f"{ARGUMENTS}:703"),
            f.batch.global_: micro * dp if dp else None,
        }
    steps = max(1, total // (micro * dp)) if dp else None
    source = "Megatron-core num_microbatches_calculator.py"
    return {f.batch.global_: total, f.batch.grad_accum: Sourced(steps, source)}


@global_batch.written(f.batch.grad_accum)
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    """More steps of a smaller micro batch follow from the same global batch."""
    if steps is None:
        return {}
    micro, before = run[f.batch.micro], run[f.batch.grad_accum]
    rows = (wishes.get(f.batch.micro) or micro or 1) * steps
    if run[mg.global_batch] is not None and rows == (micro or 0) * (before or 0):
        return {}
    dp = run[f.parallel.dp]
    if dp is None or run.level(f.parallel.gpus_per_node) >= Level.ASSUMED:
        raise CannotEdit("the global batch counts all GPUs, whose number is not known")
    return {mg.global_batch: rows * dp}


limits.cannot_say("Megatron shards by its own degrees", f.parallel.zero.stage, f.load.zero3_init)
limits.cannot_say("Megatron builds every rank's part on its GPU", f.load.cpu_ram_efficient)
limits.cannot_say("Megatron offloads optimizer states only", f.offload.params)
limits.cannot_say("Megatron trains no quantized weights", f.quant.method)
limits.cannot_say("Megatron's Adam is always the fused one", f.optimizer.fused)
limits.cannot_say("Megatron has no switch for pinned memory", f.offload.pin_memory)
