"""Who wraps the model: DeepSpeed, FSDP, DDP, or nobody on one GPU; and whether adapters train."""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import deepspeed, fsdp, ref
from oomlint.dialects.meaning import Meaning
from oomlint.plan.fields import f

backend = Meaning()

ADAPTER_METHODS = frozenset({"lora", "dora", "qlora", "oft", "adapter"})


def is_adapter_run(run: Cells) -> bool:
    return run[f.trainable.method] in ADAPTER_METHODS


def uses_deepspeed(run: Cells) -> bool:
    """Whether a DeepSpeed config takes part, found or not, or Accelerate makes one up."""
    return (
        run.mentions(ref.deepspeed)
        or run.has_block_in("deepspeed")
        or run[ref.deepspeed] is not None
        or run[deepspeed.enabled] is True
    )


@backend.derive(f.parallel.backend)
def wrapper(run: Cells) -> Any:
    if uses_deepspeed(run):
        return "zero"
    if run[fsdp.enabled]:
        return "fsdp2" if run[f.parallel.fsdp.version] == 2 else "fsdp1"
    ranks = run[f.parallel.world]
    return None if ranks is None else "ddp" if ranks > 1 else "none"
