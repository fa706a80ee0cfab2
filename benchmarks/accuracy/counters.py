"""What was read of a published run: on which card, by which counter, and what an estimate says of the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from benchmarks.accuracy.facts import known_of

from oomlint.errors import UsageError
from oomlint.hardware import Gpu, Hardware, find_gpu
from oomlint.memory import Bounds, DeviceEstimate, GpuLimits
from oomlint.memory.limits import gpu_limits
from oomlint.plan import Plan
from oomlint.plan.fields import f


def limits_of(row: Mapping[str, Any], plan: Plan) -> GpuLimits | None:
    """The limits of the row's card where it is named and known."""
    read_bare = known_of(row).context_mib
    if read_bare is not None:
        context = read_bare << 20
        return GpuLimits(context=context, context_high=context)
    card, memory = card_of(row), usable_memory(row)
    if card is None:
        return GpuLimits(usable=memory) if memory else None
    gpus = int(row.get("gpus") or 1)
    hardware = Hardware(name=card.name, nodes=1, gpus_per_node=gpus, gpu=card)
    return gpu_limits(hardware, plan)


def card_of(row: Mapping[str, Any]) -> Gpu | None:
    """The row's GPU in the catalogue; ``None`` if it is not named, or not by its size."""
    text = str(row.get("gpu_type") or "")
    size = _nameplate(row)
    name = text.replace("_", "-").split(" ")[0]
    for spelling in (f"{name}-{size}GB", name):
        try:
            return find_gpu(spelling) if name and size else None
        except UsageError:
            continue
    return None


def _nameplate(row: Mapping[str, Any]) -> float | None:
    found = re.search(r"(\d+) ?GB", str(row.get("gpu_type") or ""))
    return row.get("gpu_mem_gb") or (int(found[1]) if found else None)


def usable_memory(row: Mapping[str, Any]) -> int | None:
    """Usable bytes of the row's GPU: the catalogue's card, else the nameplate less a reserve."""
    card, size = card_of(row), _nameplate(row)
    if card is not None:
        return card.total_bytes
    # Drivers keep back about one per cent of a card's nameplate (A100-80GB: 79.2 GiB).
    return int(size * 0.985 * 2**30) if size else None


Kind: TypeAlias = Literal["allocated", "reserved", "device"]


def kind_of(row: Mapping[str, Any]) -> Kind:
    """Which counter was read: torch's of what is allocated or of what is reserved, or nvidia-smi's."""
    text = str(known_of(row).said.get("measure") or row.get("measure") or "").lower()
    if text == "torchtune peak memory" or "active or reserved not said" in text:
        return "allocated"  # its log's first figure (torchtune/training/memory.py get_memory_stats)
    if text.startswith("torchtune peak memory, /1e9"):
        # Of torch's counters, and reserved in that month's tutorials (torchtune 0914d5cf docs/source/tutorials/qlora_finetune.rst).
        return "reserved"
    if text.startswith('"peak memory usage", /1e9'):
        # "peak allocated memory of ~19GB" of the same run (torchtune 0217d44c README.md).
        return "allocated"
    if "allocated" in text or "active" in text:
        return "allocated"
    return "reserved" if "reserved" in text else "device"


def counted(row: Mapping[str, Any], plan: Plan) -> Plan:
    """The plan of what the row's counter can see: torch's knows nothing of an engine that writes answers in a process of
    its own, whichever GPU that is on, and takes the pool of one in its own process for allocated while that sleeps: vLLM
    unmaps the memory behind torch's back (vllm 0.11 device_allocator/cumem.py sleep)."""
    said = known_of(row).said
    if said.get("engine_apart"):
        return plan.with_values({f.objective.rollout.engine: "vllm_server"})
    if said.get("engine_inside"):
        return plan.with_values({f.objective.rollout.sleep: False})
    return plan


def measured(row: Mapping[str, Any], gpu: DeviceEstimate) -> tuple[float, float]:
    """What the estimate says of the quantity that was published, and the published bytes."""
    assert gpu.allocated_bytes is not None
    assert gpu.reserved_bytes is not None
    truth = row["peak_gib_per_gpu"] * 2**30
    kind = kind_of(row)
    if kind == "allocated":
        return gpu.allocated_bytes, truth
    return gpu.reserved_bytes + (gpu.context_bytes if kind == "device" else 0), truth


def bounds_of(row: Mapping[str, Any], gpu: DeviceEstimate) -> Bounds:
    """The bounds of the counter that was read; nvidia-smi shows what is reserved and the context."""
    assert gpu.allocated is not None
    assert gpu.reserved is not None
    assert gpu.high_bytes is not None
    kind = kind_of(row)
    if kind != "device":
        return gpu.allocated if kind == "allocated" else gpu.reserved
    return Bounds(gpu.reserved.low, gpu.high_bytes)
