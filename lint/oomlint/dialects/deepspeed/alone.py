"""A DeepSpeed JSON that no run uses: batch and dtypes are its own (unless ``"auto"`` leaves them to a
trainer), model and ranks unknown."""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import backend
from oomlint.dialects.common.fields import shared
from oomlint.dialects.common.precision import precision
from oomlint.dialects.common.world import batch, world
from oomlint.dialects.deepspeed.keys import ds
from oomlint.dialects.deepspeed.meaning import deepspeed_alone, deepspeed_json
from oomlint.dialects.meaning import Meaning

alone = Meaning(world, backend, deepspeed_json, deepspeed_alone, batch, precision)


@alone.derive(shared.amp)
def amp(run: Cells) -> Any:
    """``"auto"`` leaves the dtypes open: a trainer decides."""
    return None if run.is_auto(ds.bf16) or run.is_auto(ds.fp16) else "no"
