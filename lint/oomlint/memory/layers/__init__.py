"""The blocks of the model families, written as operations on a tape.

Each function follows one module of transformers 5.23 (models/*/modeling_*.py), peft 0.21
(tuners/lora/layer.py) or torch's kernels, operation by operation, in the order in which the
module runs them.
"""

from oomlint.memory.layers.profile import (
    LayerProfile,
    head_profile,
    layer_inputs_profile,
    layer_profile,
    shortened,
    widest,
)
from oomlint.memory.layers.regime import FLASH_HEAD, Kernel, Regime, interned

__all__ = [
    "FLASH_HEAD",
    "Kernel",
    "LayerProfile",
    "Regime",
    "head_profile",
    "interned",
    "layer_inputs_profile",
    "layer_profile",
    "shortened",
    "widest",
]
