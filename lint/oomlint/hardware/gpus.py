"""GPUs: what torch can use of each, what a CUDA context takes, and what the hardware can do."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from oomlint.errors import UsageError
from oomlint.hardware import tables
from oomlint.hardware.spelling import Folded, fold_gpu

MIB: Final = 2**20
GIB: Final = 2**30


class Range(Struct, frozen=True):
    """A planning figure with honest bounds; bytes, or MiB where the name says so."""

    typical: int
    low: int
    high: int


class Gpu(Struct, frozen=True, kw_only=True):
    """One kind of GPU (or NPU), by the name that reports use; ``variants`` are its form factors.

    ``total_bytes`` is what torch reports as ``total_memory`` (``total capacity`` in an
    out-of-memory message) and hence what allocator, context and NCCL share; ``total_low``
    and ``total_high`` bound it over drivers and form factors. ``driver_total_mib`` is what
    nvidia-smi prints. ``context_mib`` is one process's CUDA context. ``supported`` is
    ``"partial"`` where predictions were never compared with measurements (Ascend, Gaudi,
    Intel, unified memory). Bandwidth in GB/s (10**9), TFLOPS dense.
    """

    name: str
    vendor: str
    arch: str | None = None
    compute_capability: str | None = None
    nameplate_gb: int | None = None
    total_bytes: int
    total_low: int
    total_high: int
    driver_total_mib: int | None = None
    context_mib: Range
    bf16: bool
    fp8: bool
    flash2: bool
    tf32: bool = False
    unified_memory: bool = False
    memory_bandwidth_gb_s: float | None = None
    bf16_tflops: float | None = None
    fp16_tflops: float | None = None
    nvlink_gb_s: float | None = None
    pcie_gen: int | None = None
    cublas_workspace_bytes: int = 0
    supported: Literal["yes", "partial"] = "yes"
    variants: tuple[str, ...] = ()
    rare: bool = False
    """A later size of a GPU that goes by the same name: meant only where the size is given."""
    source: str = ""
    context_source: str = ""
    note: str | None = None

    @property
    def interconnect(self) -> str:
        """How GPUs of one node talk to each other, in words."""
        if self.nvlink_gb_s:
            link = "NVLink" if self.vendor == "NVIDIA" else "GPU-to-GPU links"
            return f"{link} {self.nvlink_gb_s:g} GB/s"
        return f"PCIe gen {self.pcie_gen}" if self.pcie_gen else "unknown"


def usable_bytes(gpu: Gpu) -> int:
    """What context, NCCL and torch's allocator together may take of the GPU; typical."""
    return gpu.total_bytes


def usable_low(gpu: Gpu) -> int:
    """:func:`usable_bytes` with the driver and form factor that leave the least."""
    return gpu.total_low


def usable_high(gpu: Gpu) -> int:
    """:func:`usable_bytes` with the driver and form factor that leave the most."""
    return gpu.total_high


def list_gpus() -> list[Gpu]:
    """Every GPU of the catalogue, in its order (by vendor and generation)."""
    return [_gpu(entry) for entry in tables.entries("gpus")]


def find_gpus(text: str) -> tuple[Gpu, ...]:
    """Every GPU that a spelling may mean: one if it is clear, several if the size is missing
    (``A100``), none if it is unknown."""
    folded = fold_gpu(text)
    found = [_gpu(entry) for entry in tables.find("gpus", folded.key)]
    if not found and folded.gigabytes is None:
        found, folded = _with_bare_size(folded)
    if folded.gigabytes is not None:
        found = _of_size(found, folded.gigabytes)
    if folded.mig is not None:
        found = [sliced for gpu in found if (sliced := _mig_slice(gpu, folded.mig)) is not None]
    return tuple(found)


def _with_bare_size(folded: Folded) -> tuple[list[Gpu], Folded]:
    """``A100-80`` and ``a10080``: a size without its unit, which only counts where a GPU has it."""
    written = re.fullmatch(r"(.*[a-z]\d+[a-z]*?)(\d{2,3})", folded.key)
    if written is None:
        return [], folded
    found = [_gpu(entry) for entry in tables.find("gpus", written[1])]
    size = int(written[2])
    if not any(gpu.nameplate_gb == size for gpu in found):
        return [], folded
    return found, Folded(written[1], size, folded.mig)


@lru_cache(maxsize=64)
def find_gpu(text: str, counts: str = "") -> Gpu:
    """The GPU of a spelling; :class:`~oomlint.errors.UsageError` with the nearest names if it
    is unknown, ambiguous or not predicted. ``counts`` (``2x8x``) stood before it."""
    found = find_gpus(text)
    # H20-3e, 910B4 and the like are named in full by those who have them.
    usual = [gpu for gpu in found if not gpu.rare]
    if len(found) == 1 or len(usual) == 1:
        return (usual or found)[0]
    if found:
        names = [f"{counts}{gpu.name}" for gpu in (usual or found)[:_MOST_NAMES]]
        choice = " or ".join([", ".join(names[:-1]), names[-1]])
        raise UsageError(f"{text!r} comes in {len(usual or found)} sizes: write {choice}")
    folded = fold_gpu(text)
    for entry in tables.find("unsupported", folded.key):
        raise UsageError(
            f"{entry['name']} is known but cannot be predicted: oomlint covers CUDA and ROCm "
            "GPUs, Ascend NPUs and Gaudi"
        )
    raise UsageError(_unknown(text, folded))


def _unknown(text: str, folded: Folded) -> str:
    from difflib import get_close_matches

    # The same GPU in a size that does not exist, instances with a typo, GPUs that look alike.
    if re.fullmatch(r"\d{1,3}", text.strip()):
        return f"unknown GPU or cloud instance {text!r}: any card of that size is {text.strip()}GB"
    nearest = [gpu["name"] for gpu in tables.find("gpus", folded.key)]
    instances = sorted(set(tables.keys("instances")))
    nearest += _that_begin_so(text)
    nearest += get_close_matches(text.lower(), instances, n=2, cutoff=0.8)
    keys = sorted(set(tables.keys("gpus")))
    for key in get_close_matches(folded.key, keys, n=3, cutoff=0.6):
        nearest += [gpu["name"] for gpu in tables.find("gpus", key)]
    names = list(dict.fromkeys(nearest))[:_MOST_NAMES]
    hint = f"; nearest: {', '.join(names)}" if names else ""
    return f"unknown GPU or cloud instance {text[:80]!r}{hint} (`oomlint hardware` lists them)"


# What one can choose from at a glance.
_MOST_NAMES: Final = 3


def _that_begin_so(text: str) -> list[str]:
    """The machine types of a family: ``p4d``, ``colab pro``."""
    family = (text.lower().split() or [""])[0]
    if len(family) < 2:
        return []
    heads = tuple(f"{family}{mark}" for mark in (" ", ".", "-", "_"))
    found = (e["name"] for e in tables.entries("instances") if e["name"].lower().startswith(heads))
    return list(found)[:_MOST_NAMES]


# The size in a name is a nameplate, and those are loose: B200 is sold as 180 and 192 GB,
# GB200 as 186 and 192, H200 as 141. No GPU's two sizes are closer than 10 and 12 GB.
_SIZE_TOLERANCE: Final = 0.08
# NVIDIA names the GH200 by the memory of its CPU: "NVIDIA GH200 480GB" has 96 GB on the GPU
# and "NVIDIA GH200 144G HBM3e" 144.
_GH200_CPU_GB: Final = (120, 480)


def _of_size(gpus: list[Gpu], gigabytes: int) -> list[Gpu]:
    close = [
        gpu
        for gpu in gpus
        if abs((gpu.nameplate_gb or 0) - gigabytes) <= _SIZE_TOLERANCE * gigabytes
        or (gpu.name == "GH200-96GB" and gigabytes in _GH200_CPU_GB)
    ]
    exact = [gpu for gpu in close if gpu.nameplate_gb == gigabytes]
    return exact or close


def _gpu(entry: dict[str, Any]) -> Gpu:
    flags = entry["flags"]
    return Gpu(
        name=entry["name"],
        vendor=entry["vendor"],
        arch=entry.get("arch"),
        compute_capability=entry.get("cc"),
        nameplate_gb=entry.get("gb"),
        total_bytes=entry["total"],
        total_low=entry["low"],
        total_high=entry["high"],
        driver_total_mib=entry.get("driver_mib"),
        context_mib=Range(*entry["context"]),
        bf16="bf16" in flags,
        fp8="fp8" in flags,
        flash2="flash2" in flags,
        tf32="tf32" in flags,
        unified_memory="unified" in flags,
        memory_bandwidth_gb_s=entry.get("bandwidth"),
        bf16_tflops=entry.get("bf16_tflops"),
        fp16_tflops=entry.get("fp16_tflops"),
        nvlink_gb_s=entry.get("nvlink"),
        pcie_gen=entry.get("pcie"),
        cublas_workspace_bytes=_cublas_workspace(entry["vendor"], entry.get("cc")),
        supported="partial" if entry.get("partial") else "yes",
        rare=bool(entry.get("rare")),
        variants=tuple(entry.get("variants", ())),
        source="; ".join(entry["src"]),
        context_source="; ".join(entry["context_src"]),
        note=entry.get("note"),
    )


def _cublas_workspace(vendor: str, capability: str | None) -> int:
    """The workspace that torch gives each cuBLAS handle and stream, out of its allocator.

    pytorch aten/src/ATen/cuda/CublasHandlePool.cpp: 4096 KiB x 8 where the major compute
    capability is 9, 10 or 12, else :4096:2:16:8; ROCm 32 MiB, 128 MiB on gfx94x and gfx95x.
    """
    if vendor == "AMD":
        large = (capability or "").startswith(("gfx94", "gfx95"))
        return 128 * MIB if large else 32 * MIB
    if vendor != "NVIDIA" or capability is None:
        return 0
    major = capability.partition(".")[0]
    return 32 * MIB if major in ("9", "10", "12") else (4096 * 2 + 16 * 8) * 1024


# MIG memory in MiB: nvidia-smi with driver 590.48.01 for H100 and H200 (github.com/
# utkuozdemir/nvidia_gpu_exporter internal/captures), NVIDIA/go-nvml pkg/nvml/mock/gpus
# for A100 and A30.
_MIG_MIB: Final = {
    "H100-80GB": {"1g.10gb": 9984, "2g.20gb": 20096, "3g.40gb": 40448},
    "H200-141GB": {"1g.18gb": 16384, "2g.35gb": 33280, "3g.71gb": 71424},
    "A100-80GB": {
        "1g.10gb": 9856, "1g.20gb": 19968, "2g.20gb": 19968, "3g.40gb": 40192,
        "4g.40gb": 40192, "7g.80gb": 80384,
    },
    "A100-40GB": {
        "1g.5gb": 4864, "1g.10gb": 9856, "2g.10gb": 9856, "3g.20gb": 19968,
        "4g.20gb": 19968, "7g.40gb": 40192,
    },
    "A30-24GB": {"1g.6gb": 5836, "2g.12gb": 11672, "4g.24gb": 23344},
}  # fmt: skip
# torch saw 9728 MiB of an A100's 1g.10gb slice of 9856: 130 to 260 MiB are lost on the way.
_MIG_GAP: Final = Range(130 * MIB, 0, 260 * MIB)
# A context is smaller on a slice: 248 MiB on 3g.40gb of an H100, 146 on 3g.71gb of an H200,
# against 518 on the whole card (same captures).
_MIG_CONTEXT_MIB: Final = Range(250, 140, 518)


def _mig_slice(gpu: Gpu, profile: str) -> Gpu | None:
    mib = _MIG_MIB.get(gpu.name, {}).get(profile)
    if mib is None:
        return None
    return replace(
        gpu,
        name=f"{gpu.name}-MIG-{profile}",
        total_bytes=mib * MIB - _MIG_GAP.typical,
        total_low=mib * MIB - _MIG_GAP.high,
        total_high=mib * MIB - _MIG_GAP.low,
        driver_total_mib=mib,
        context_mib=_MIG_CONTEXT_MIB,
        nvlink_gb_s=None,
        source=f"MIG profile {profile}: nvidia-smi and go-nvml readings",
    )


def custom_gpu(mem_bytes: int) -> Gpu:
    """A GPU of which only the usable bytes are known, presumed to be a recent NVIDIA card.

    Raises :class:`~oomlint.errors.UsageError` if ``mem_bytes`` is not positive.
    """
    if mem_bytes <= 0:
        raise UsageError(f"a GPU needs a positive amount of memory, not {mem_bytes} bytes")
    return Gpu(
        name=f"custom-{mem_bytes / GIB:.3g}GiB",
        vendor="NVIDIA",
        total_bytes=mem_bytes,
        total_low=mem_bytes,
        total_high=mem_bytes,
        # Measured contexts lie between 256 (RTX 3090) and 518 MiB (H100), see the catalogue.
        context_mib=Range(450, 256, 650),
        bf16=True,
        fp8=False,
        flash2=True,
        cublas_workspace_bytes=(4096 * 2 + 16 * 8) * 1024,
        source="given as an amount of memory",
        context_source="between the measured RTX 3090 and H100",
    )


def card_of_size(gigabytes: int) -> Gpu:
    """Any card that is sold as having so much memory: as the NVIDIA cards of that size have it at the
    median, between the least and the most of them.

    Raises :class:`~oomlint.errors.UsageError` if no GPU could have so much.
    """
    if not 1 <= gigabytes <= _MOST_GIGABYTES:
        raise UsageError(f"no GPU has {gigabytes} GB; a card of any size is written like 24GB")
    named = {"name": f"custom-{gigabytes}GB"}
    alike = [gpu for gpu in list_gpus() if gpu.nameplate_gb == gigabytes and _is_plain(gpu)]
    if not alike:
        driver = derived_total(custom_gpu(gigabytes * GIB), gigabytes * 1024)
        return replace(driver, **named, nameplate_gb=gigabytes, driver_total_mib=None)
    return replace(
        custom_gpu(_middle([gpu.total_bytes for gpu in alike])),
        **named,
        nameplate_gb=gigabytes,
        total_low=min(gpu.total_low for gpu in alike),
        total_high=max(gpu.total_high for gpu in alike),
        source=f"any card of {gigabytes} GB: between {', '.join(g.name for g in alike)}",
    )


def _middle(sizes: list[int]) -> int:
    """The lower median, without a module that imports fractions and random numbers."""
    return sorted(sizes)[(len(sizes) - 1) // 2]


# Four times what the largest GPU of the catalogue has.
_MOST_GIGABYTES: Final = 1152


def _is_plain(gpu: Gpu) -> bool:
    return gpu.vendor == "NVIDIA" and not gpu.unified_memory and not gpu.rare


def derived_total(gpu: Gpu, driver_mib: int) -> Gpu:
    """``gpu`` with the total of one machine's own driver reading, in MiB.

    torch's total is the driver's less its reserve, 0.3 to 3 % on the cards where both were
    read; the catalogue's own gap is used where it has one.
    """
    gap = 0.015
    if gpu.driver_total_mib:
        gap = max(0.0, 1 - gpu.total_bytes / (gpu.driver_total_mib * MIB))
    total = driver_mib * MIB
    return replace(
        gpu,
        total_bytes=round(total * (1 - gap)),
        total_low=round(total * (1 - max(gap, 0.03))),
        total_high=total,
        driver_total_mib=driver_mib,
    )


_COMMON: Final = (
    "T4-16GB", "V100-16GB", "RTX-4080-16GB", "RTX-3090-24GB", "RTX-4090-24GB", "A10G-24GB",
    "L4-24GB", "V100-32GB", "RTX-5090-32GB", "A100-40GB", "L40S-48GB", "RTX-A6000-48GB",
    "A100-80GB", "H100-80GB", "H200-141GB", "B200-180GB", "MI300X-192GB", "B300-288GB",
)  # fmt: skip


@lru_cache(maxsize=1)
def common_cards() -> tuple[Gpu, ...]:
    """The cards that models are usually trained on, smallest usable memory first."""
    cards = [gpu for gpu in list_gpus() if gpu.name in _COMMON]
    return tuple(sorted(cards, key=lambda gpu: (gpu.total_bytes, gpu.name)))


# What most people can rent: an A100-80GB or H100-80GB; what is above is scarce.
_USUAL_LARGEST: Final = "H100-80GB"


@cache
def usual_limit() -> int:
    """The usable bytes of the largest card that most people can have: what a run is held against
    where nobody says which card it has."""
    return usable_bytes(find_gpu(_USUAL_LARGEST))
