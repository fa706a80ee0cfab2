"""The amounts in messages about memory, in bytes.

PyTorch's allocator has told its figures in three forms:

* 1.0 to 1.3: ``(GPU 0; 10.92 GiB total capacity; 8.57 GiB already allocated; 9.28 MiB free;
  4.68 MiB cached)``, where *cached* is what is reserved beside what is allocated;
* 1.4 to 2.0, and torch_npu until today: ``…; 14.80 GiB reserved in total by PyTorch)``;
* 2.1 on: ``GPU 0 has a total capacity of 79.32 GiB of which 2.39 GiB is free. … Of the allocated
  memory 73.29 GiB is allocated by PyTorch, and 1.60 GiB is reserved by PyTorch but unallocated``
  (c10/cuda/CUDACachingAllocator.cpp; 2.1 and 2.2 spell it *capacty*).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

# format_size of c10/cuda/CUDACachingAllocator.cpp: KiB, MiB, GiB of 1024, or "12 bytes".
_AMOUNT = r"(\d[\d,]*(?:\.\d+)?) ?(bytes|[KMGTP]i?B)\b"
_MOST_DIGITS = 18
_SCALES: Mapping[str, int] = {"bytes": 1} | {
    prefix + ending: 1024**power
    for power, prefix in enumerate("KMGTP", start=1)
    for ending in ("iB", "B")
}

_ALLOCATOR = {
    name: re.compile(pattern.replace("AMOUNT", _AMOUNT))
    for name, pattern in {
        "tried": r"Tried to allocate AMOUNT",
        "total": r"total capaci?ty of AMOUNT|AMOUNT total capacity",
        "free": r"of which AMOUNT is free|; AMOUNT free",
        "allocated": r"Of the allocated memory AMOUNT is allocated|AMOUNT already allocated",
        "unallocated": r"AMOUNT is reserved by PyTorch but unallocated|; AMOUNT cached\)",
        "reserved": r"AMOUNT reserved in total by PyTorch",
        "in_use": r"this process has AMOUNT memory in use",
        "allowed": r"AMOUNT allowed;|max allowed: AMOUNT",
        "private_pools": r"with AMOUNT allocated in private pools",
    }.items()
}
_PROCESS = re.compile(rf"Process (\d{{1,18}}) has {_AMOUNT} memory in use")
_DEVICE = re.compile(r"\b(?:GPU|NPU|XPU|Device) +(\d{1,4})(?: has a total|;)")
_TOO_MUCH = "more than 1EB"


class OutOfMemory(Struct, frozen=True):
    """PyTorch's figures of a failed allocation, in bytes; ``None`` where the message has none."""

    tried: int | None = None
    total: int | None = None
    free: int | None = None
    allocated: int | None = None
    unallocated: int | None = None
    """Reserved by the allocator beside what is allocated: its cache, in pieces too small."""
    in_use: int | None = None
    """All that this process holds of the GPU, the CUDA context included."""
    allowed: int | None = None
    """What ``set_per_process_memory_fraction`` or the like left to the process."""
    private_pools: int | None = None
    others: tuple[tuple[int, int], ...] = ()
    """Process id and bytes of the other processes on this GPU."""
    gpu: int | None = None
    absurd: bool = False
    """More than an exabyte was asked for: sizes that were never received, not a need."""

    @property
    def needed(self) -> int | None:
        """What the process would have held at least: allocated and asked for together."""
        if self.allocated is None or self.tried is None:
            return None
        return self.allocated + self.tried

    @property
    def held(self) -> int | None:
        """What the process would have held of the GPU at least, with all that is not torch's: before it
        gives up, the allocator hands back what it keeps unused."""
        if self.in_use is None or self.tried is None:
            return None
        return self.in_use - (self.unallocated or 0) + self.tried

    @property
    def foreign(self) -> int:
        """What others hold of the GPU: processes that the message names, or cannot see."""
        named = sum(size for _, size in self.others)
        if self.in_use is None or self.total is None or self.free is None:
            return named
        return max(named, self.total - self.free - self.in_use)

    @property
    def is_fragmented(self) -> bool:
        """Whether the allocator's own free pieces would have been enough, put together."""
        if self.tried is None or self.unallocated is None:
            return False
        return self.unallocated >= self.tried and self.unallocated >= _WORTH_DEFRAGMENTING

    def by_name(self) -> Mapping[str, int]:
        """The figures that are known, for JSON."""
        names = (
            "tried", "total", "free", "allocated", "unallocated", "in_use", "allowed",
            "private_pools",
        )  # fmt: skip
        found = {f"{name}_bytes": getattr(self, name) for name in names}
        return {name: value for name, value in found.items() if value is not None}


# torch keeps pieces of up to 20 MiB of small and medium blocks anyway (kLargeBuffer in
# c10/core/CachingDeviceAllocator.h), a dozen of which are no fragmentation to speak of.
_WORTH_DEFRAGMENTING = 256 << 20
# How far a process's use of the GPU may lie above torch's: context, NCCL, cuBLAS (see
# oomlint.memory.result.GpuLimits, upper values).
_OUTSIDE_TORCH = 3 << 30


def amount(text: str) -> int | None:
    """The first amount with a unit in a text, in bytes."""
    match = re.search(_AMOUNT, text)
    return _bytes(match[1], match[2]) if match else None


def _bytes(number: str, unit: str) -> int:
    return round(float(number.replace(",", "")[:_MOST_DIGITS]) * _SCALES[unit])


def out_of_memory(message: str) -> OutOfMemory:
    """Read a message of the allocator. Terminals and ``rich`` may have broken it into lines."""
    text = " ".join(message.split())
    again = text.find("Tried to allocate", text.find("Tried to allocate") + 1)
    if again > 0:  # another rank's message
        text = text[:again]
    found = {
        name: value for name, p in _ALLOCATOR.items() if (value := _found(p, text)) is not None
    }
    reserved = found.pop("reserved", None)
    if reserved is not None and "allocated" in found:
        found["unallocated"] = max(0, reserved - found["allocated"])
    device = _DEVICE.search(text)
    others = [(int(m[1]), _bytes(m[2], m[3])) for m in _PROCESS.finditer(text)]
    if others and "in_use" not in found:
        own = found.get("allocated", 0) + found.get("unallocated", 0)
        near = min(others, key=lambda p: abs(p[1] - own))
        # In a container the driver names processes by ids that this one does not know as its own.
        if own <= near[1] <= own + _OUTSIDE_TORCH:
            others.remove(near)
            found["in_use"] = near[1]
    return OutOfMemory(
        **found,
        others=tuple(others),
        gpu=int(device[1]) if device else None,
        absurd=_TOO_MUCH in text,
    )


def _found(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    if match is None:
        return None
    number, unit = (group for group in match.groups() if group is not None)
    return _bytes(number, unit)
