"""The memory model: pure arithmetic on a canonical plan, no files, no network."""

from oomlint.memory.beside import asked_in_host
from oomlint.memory.build import skeleton
from oomlint.memory.checkpoint import SavePeaks, rewritten_bytes, save_peaks
from oomlint.memory.estimate import estimate
from oomlint.memory.host import host_load_bytes
from oomlint.memory.parameters import DecoderBlock, DecoderStructure, Linear
from oomlint.memory.reload import ReadBack, beside_on_gpu, read_back
from oomlint.memory.result import (
    Assumption,
    Bounds,
    DeviceEstimate,
    Estimate,
    GpuLimits,
    HostEstimate,
    StateBytes,
)
from oomlint.memory.states import state_bytes

__all__ = [
    "Assumption",
    "Bounds",
    "DecoderBlock",
    "DecoderStructure",
    "DeviceEstimate",
    "Estimate",
    "GpuLimits",
    "HostEstimate",
    "Linear",
    "ReadBack",
    "SavePeaks",
    "StateBytes",
    "asked_in_host",
    "beside_on_gpu",
    "estimate",
    "host_load_bytes",
    "read_back",
    "rewritten_bytes",
    "save_peaks",
    "skeleton",
    "state_bytes",
]
