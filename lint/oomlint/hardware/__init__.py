"""The hardware catalogue: GPUs, cloud instances, and what of them a training run can use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oomlint.hardware.gpus import (
    Gpu,
    Range,
    common_cards,
    custom_gpu,
    find_gpu,
    find_gpus,
    list_gpus,
    usable_bytes,
    usable_high,
    usable_low,
    usual_limit,
)
from oomlint.hardware.nccl import nccl_bytes
from oomlint.hardware.parse import (
    Hardware,
    Instance,
    find_instance,
    list_instances,
    parse_hardware,
    ram_of_instances,
)
from oomlint.hardware.sizes import parse_bytes

if TYPE_CHECKING:
    from oomlint.hardware.machine import detect, host_bytes

__all__ = [
    "Gpu",
    "Hardware",
    "Instance",
    "Range",
    "common_cards",
    "custom_gpu",
    "detect",
    "find_gpu",
    "find_gpus",
    "find_instance",
    "host_bytes",
    "list_gpus",
    "list_instances",
    "nccl_bytes",
    "parse_bytes",
    "parse_hardware",
    "ram_of_instances",
    "usable_bytes",
    "usable_high",
    "usable_low",
    "usual_limit",
]


def __getattr__(name: str) -> Any:
    # Only `--hardware auto` looks at the machine.
    if name in ("detect", "host_bytes"):
        from oomlint.hardware import machine

        return getattr(machine, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
