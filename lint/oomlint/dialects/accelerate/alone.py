"""A config of Accelerate that no run uses: ranks and sharding are its own, the model is unknown."""

from __future__ import annotations

from typing import Any

from oomlint.dialects.accelerate.keys import own
from oomlint.dialects.accelerate.meaning import accelerate, accelerate_amp, express_checkpointing
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import backend
from oomlint.dialects.common.fields import shared
from oomlint.dialects.common.precision import precision
from oomlint.dialects.common.sharding import sharding
from oomlint.dialects.common.world import batch, world
from oomlint.dialects.deepspeed.meaning import deepspeed_json
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.plan.fields import f

alone = Meaning(accelerate, world, sharding, backend, deepspeed_json, batch, precision)


alone.takes(f.batch.grad_accum, own.grad_accum)


@alone.derive(shared.amp)
def amp(run: Cells) -> Any:
    return accelerate_amp(run)


@alone.written(f.checkpointing.mode)
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    return express_checkpointing(mode, run)
