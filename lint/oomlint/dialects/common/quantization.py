"""bitsandbytes' 4 and 8 bit from a framework's flags, and bases that are quantized already.

A dialect says by ``asked.bits`` or ``asked.method`` what its own keys ask for.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import asked, shared
from oomlint.dialects.meaning import Meaning
from oomlint.plan.fields import f

quantization = Meaning()


@quantization.derive(f.quant.method)
def method(run: Cells) -> Any:
    """A base that is quantized already stays as it is."""
    native = run[f.model.native_quant]
    if native in ("bnb4", "gptq", "awq", "hqq", "aqlm"):
        # transformers 5.23 quantizers/auto.py merge_quantization_configs: the checkpoint's own wins.
        return native
    if native == "gptq8":
        return "gptq"
    return run[asked.method] or {4: "bnb4", 8: "bnb8"}.get(run[asked.bits] or 0, "none")


@quantization.derive(f.quant.bits)
def bits(run: Cells) -> Any:
    return 8.0 if run[f.model.native_quant] == "gptq8" else None


WITHOUT_GRADIENT = ("bnb4", "bnb8", "gptq", "awq", "hqq", "aqlm", "eetq")
"""Methods whose packed weights have no gradient."""


@quantization.derive(
    shared.stops, source="transformers 5.23 trainer_utils.py validate_quantization_for_training"
)
def trains_packed_weights(run: Cells) -> Any:
    if run[f.trainable.method] != "full" or run[f.quant.method] not in WITHOUT_GRADIENT:
        return None
    return "quantized weights have no gradient, and no adapter is seen to be trained on them"
