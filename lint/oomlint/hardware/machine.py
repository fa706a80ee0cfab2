"""Finds the hardware of this machine: nvidia-smi, /proc/meminfo and cgroup limits."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Final

from oomlint.hardware.gpus import MIB, Gpu, custom_gpu, derived_total, find_gpus
from oomlint.hardware.parse import Hardware

_QUERY: Final = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
_TIMEOUT_S: Final = 10
# cgroup v1 writes 2**63 rounded down to a page where there is no limit.
_NO_LIMIT: Final = 2**60


def detect(*, root: str = "/", smi: Callable[[], str | None] | None = None) -> Hardware | None:
    """This machine as :class:`Hardware`; ``None`` without an NVIDIA GPU. Never raises.

    Counts the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves; of different GPUs the smallest
    stands for all. RAM is the least of /proc/meminfo and the memory limits of this
    process's control groups. ``root`` and ``smi`` (the output of nvidia-smi) are for tests.
    """
    text = (smi or _nvidia_smi)()
    gpus = _visible(_parse_smi(text)) if text else []
    if not gpus:
        return None
    gpu = min(gpus, key=lambda g: g.total_bytes)
    count = len(gpus)
    mixed = len({g.name for g in gpus}) > 1
    return Hardware(
        name=f"{count}x{gpu.name}" if count > 1 else gpu.name,
        nodes=1,
        gpus_per_node=count,
        gpu=gpu,
        host_bytes_per_node=host_bytes(root=root),
        source="this machine: nvidia-smi, /proc/meminfo and control groups"
        + (" (GPUs differ: the smallest counts)" if mixed else ""),
    )


def _nvidia_smi() -> str | None:
    import subprocess

    try:
        done = subprocess.run(
            _QUERY, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def _parse_smi(text: str) -> list[Gpu]:
    gpus = []
    for line in text.splitlines():
        name, _, memory = line.rpartition(",")
        mib = memory.strip()
        if name and mib.isascii() and mib.isdigit() and 0 < int(mib) < 2**31:
            gpus.append(_identify(name.strip(), int(mib)))
    return gpus


def _identify(name: str, mib: int) -> Gpu:
    """The catalogue's GPU of this name and nearly this size, with the machine's own total."""
    sized = [
        gpu
        for gpu in find_gpus(name)
        if gpu.driver_total_mib and abs(gpu.driver_total_mib - mib) <= 0.1 * mib
    ]
    if sized:
        best = min(sized, key=lambda gpu: abs((gpu.driver_total_mib or 0) - mib))
        return best if best.driver_total_mib == mib else derived_total(best, mib)
    return derived_total(custom_gpu(mib * MIB), mib)


def _visible(gpus: list[Gpu]) -> list[Gpu]:
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return gpus
    indices = [part.strip() for part in chosen.split(",") if part.strip()]
    if all(part.isascii() and part.isdigit() for part in indices):
        # CUDA stops reading at the first index that does not exist.
        kept = []
        for part in indices:
            if int(part) >= len(gpus):
                break
            kept.append(gpus[int(part)])
        return kept
    return gpus[: len(indices)]  # UUIDs: which ones does not matter, how many does


def host_bytes(*, root: str = "/") -> int | None:
    """RAM that this process may use: /proc/meminfo or a tighter cgroup limit; ``None`` if
    neither can be read."""
    limits = [limit for limit in (_meminfo(root), *_cgroup_limits(root)) if limit is not None]
    return min(limits, default=None)


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except (OSError, ValueError):
        return None


def _meminfo(root: str) -> int | None:
    found = re.search(
        r"^MemTotal:\s+(\d{1,18}) kB", _read(os.path.join(root, "proc/meminfo")) or "", re.MULTILINE
    )
    return int(found[1]) * 1024 if found else None


def _cgroup_limits(root: str) -> list[int]:
    """The limits on the way from this process's control group up to the root, v2 and v1.

    A limit of any ancestor binds. Inside a container the path in /proc/self/cgroup may be
    the host's and not exist here: then /sys/fs/cgroup itself is the container's own group.
    """
    limits = []
    for line in (_read(os.path.join(root, "proc/self/cgroup")) or "").splitlines()[:64]:
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        hierarchy, controllers, path = parts
        if hierarchy == "0" and not controllers:
            base, file = "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        steps = [step for step in path.split("/") if step not in ("", "..")]
        for depth in range(len(steps), -1, -1):
            text = _read(os.path.join(root, base, *steps[:depth], file))
            if text is not None and text.strip().isdigit() and int(text) < _NO_LIMIT:
                limits.append(int(text))
    return limits
