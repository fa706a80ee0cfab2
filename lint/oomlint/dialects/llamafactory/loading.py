"""The dtype in which LLaMA-Factory loads weights."""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.meaning import Meaning
from oomlint.plan.fields import f

loading = Meaning()


@loading.derive(f.load.dtype, source="LF/model/loader.py")
def stored_dtype(run: Cells) -> Any:
    """``torch_dtype="auto"``, the dtype of the checkpoint."""
    stored = run[f.model.ckpt_dtype]
    if run[f.quant.dequantised_on_load] or stored == "fp8":
        return "bf16"
    return stored if stored in ("fp32", "bf16", "fp16") else None


@loading.assume(f.load.dtype, why="the checkpoint's dtype is not known; most are bf16")
def usual_dtype(run: Cells) -> Any:
    return "bf16"
