"""Layers that take adapters, as lists of names say it: PEFT's word for all of them may stand among these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

Targets: TypeAlias = "Literal['all_linear'] | tuple[str, ...]"

# peft 0.21.2 utils/constants.py INCLUDE_LINEAR_LAYERS_SHORTHAND.
_ALL = "all-linear"

# Megatron-Bridge's names of layers, and those of the checkpoint (src/megatron/bridge/peft/lora.py LoRA.target_modules).
_MEGATRON_LAYERS: Mapping[str, tuple[str, ...]] = {
    "linear_qkv": ("q_proj", "k_proj", "v_proj"),
    "linear_proj": ("o_proj",),
    "linear_fc1": ("gate_proj", "up_proj"),
    "linear_fc2": ("down_proj",),
}


def checkpoint_layers(names: Iterable[str]) -> tuple[str, ...]:
    """Layers by the checkpoint's names, of which some may be Megatron's."""
    return tuple(part for name in names for part in _MEGATRON_LAYERS.get(name, (name,)))


def targets_of(names: Sequence[str]) -> Targets:
    return "all_linear" if _ALL in names else tuple(names)


def names_of(targets: Targets) -> tuple[str, ...]:
    return (_ALL,) if targets == "all_linear" else tuple(targets)
