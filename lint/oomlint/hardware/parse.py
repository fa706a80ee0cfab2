"""Reads what ``--hardware`` takes: counts, GPU names and cloud instances."""

from __future__ import annotations

import re
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from oomlint.errors import UsageError
from oomlint.hardware import tables
from oomlint.hardware.gpus import GIB, Gpu, card_of_size, custom_gpu, find_gpu, find_gpus
from oomlint.hardware.spelling import fold_gpu

# More than any cluster has; a typo like 88888xH100 is worth an error.
_MAX_NODES: Final = 100_000
_MAX_GPUS_PER_NODE: Final = 1_024
_MAX_TEXT: Final = 200


class Hardware(Struct, frozen=True, kw_only=True):
    """What a run has: ``nodes`` times ``gpus_per_node`` GPUs, and RAM per node if known."""

    name: str
    nodes: int
    gpus_per_node: int
    gpu: Gpu
    host_bytes_per_node: int | None = None
    inter_node_gbps: float | None = None
    """What the network gives a node, Gbit/s, where a machine type says it."""
    only_pcie: bool = False
    """Whether the GPUs of a node have no links of their own here, whatever such GPUs can have."""
    smaller: tuple[Gpu, ...] = ()
    """What else the GPU may be, where its name (``a100``) leaves its size open and it is taken for the largest."""
    source: str = ""

    @property
    def world(self) -> int:
        """GPUs in all."""
        return self.nodes * self.gpus_per_node


class Instance(Struct, frozen=True, kw_only=True):
    """A cloud's machine type (or a well-known server): ``gpus`` of ``gpu``, and the RAM that programs can have there.

    ``allocatable_bytes`` is what a Kubernetes pod can get at most (EKS), where known.
    """

    name: str
    cloud: str
    gpu: Gpu
    gpus: int
    host_bytes: int | None = None
    allocatable_bytes: int | None = None
    intra_node: str | None = None
    inter_node_gbps: float | None = None
    source: str = ""


def find_instance(name: str) -> Instance | None:
    """The machine type of this name, letter case aside; ``None`` if it is not known.

    Raises :class:`~oomlint.errors.UsageError` if its accelerator cannot be predicted.
    """
    for entry in tables.find("instances", name.strip().lower()):
        return _instance(entry)
    return None


def list_instances() -> list[Instance]:
    """Every machine type whose accelerator can be predicted."""
    known = {gpu["name"] for gpu in tables.entries("gpus")}
    return [_instance(entry) for entry in tables.entries("instances") if entry["gpu"] in known]


def ram_of_instances(gpus: int) -> list[int]:
    """Bytes of RAM of every machine type with so many GPUs, of those :func:`list_instances` has."""
    sized = [e for e in tables.entries("instances") if e["gpus"] == gpus and e.get("ram")]
    known = {name for name in {e["gpu"] for e in sized} if tables.find("gpus", fold_gpu(name).key)}
    return [_usable(e["ram"]) for e in sized if e["gpu"] in known]


def _bytes(gib: float) -> int:
    return round(gib * GIB)


# Linux keeps 64 bytes for each page of 4 KiB (struct page, include/linux/mm_types.h), which MemTotal leaves out
# (Documentation/filesystems/proc.rst). Firmware takes a little more: nodes of 30.5, 56 and 128 GiB have 29.9, 55.0 and 125
# (readings in pachyderm pull request 1372, Azure/acs-engine issue 4236 and procps issue 247).
_PAGES = 1 / 64


def _usable(gib: float) -> int:
    """Bytes that programs can have of a machine that is sold with so many GiB."""
    return round(_bytes(gib) * (1 - _PAGES))


def _instance(entry: dict[str, Any]) -> Instance:
    gpu = find_gpu(entry["gpu"])
    share = entry.get("slice")
    if share is not None:
        gpu = _vgpu(gpu, share)
    ram, allocatable = entry.get("ram"), entry.get("allocatable")
    return Instance(
        name=entry["name"],
        cloud=entry["cloud"],
        gpu=gpu,
        gpus=entry["gpus"],
        host_bytes=_usable(ram) if ram else None,
        allocatable_bytes=allocatable * 2**20 if allocatable else None,
        intra_node=entry.get("intra"),
        inter_node_gbps=entry.get("inter"),
        source=entry["src"],
    )


def _vgpu(gpu: Gpu, share: float) -> Gpu:
    """A virtual GPU has its share of the memory."""
    return replace(
        gpu,
        name=f"{gpu.name}-vGPU-{share:g}",
        total_bytes=round(gpu.total_bytes * share),
        total_low=round(gpu.total_low * share),
        total_high=round(gpu.total_high * share),
        driver_total_mib=None,
    )


def parse_hardware(text: str) -> Hardware:
    """The hardware of ``[[NODESx]COUNTx]GPU`` or ``[NODESx]INSTANCE``.

    ``24GB`` for any card of that size, ``colab`` and ``kaggle`` for what these give away.
    ``A100-80GB``, ``8xA100-80GB``, ``2x8xH100-80GB``, ``p4d.24xlarge``, ``2xp5.48xlarge``;
    of GPU names every common spelling (nvidia-smi, Kubernetes labels, ``gpu:a100_80g``,
    SkyPilot's ``A100-80GB:8``), of a GPU with one size also without it. Raises
    :class:`~oomlint.errors.UsageError`, with the nearest names, for anything else.
    """
    text = text.strip()
    if not text or len(text) > _MAX_TEXT:
        raise UsageError("name the hardware like 8xA100-80GB or p4d.24xlarge")
    whole = find_instance(text)
    if whole is not None:
        return _of_instance(whole, 1)
    counts, name = _split_counts(text)
    if len(counts) <= 1:
        instance = find_instance(name)
        if instance is not None:
            return _of_instance(instance, counts[0] if counts else 1)
    if _amount_of(name) is None:
        more, name = _split_other_counts(name)
        counts += more
    if len(counts) > 2:
        raise UsageError(f"{text!r} has too many counts; write nodes x GPUs per node x type")
    gigabytes = _amount_of(name)
    before = "".join(f"{count}x" for count in counts)
    gpu = find_gpu(name, before) if gigabytes is None else _card(gigabytes)
    gpus_per_node = counts[-1] if counts else 1
    nodes = counts[0] if len(counts) == 2 else 1
    _check(text, nodes, gpus_per_node)
    return Hardware(
        name=_canonical(nodes, gpus_per_node, gpu.name),
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        gpu=gpu,
        source=f"{text!r} as given; {gpu.source}",
    )


def _of_instance(instance: Instance, nodes: int) -> Hardware:
    _check(instance.name, nodes, instance.gpus)
    return Hardware(
        name=instance.name if nodes == 1 else f"{nodes}x{instance.name}",
        nodes=nodes,
        gpus_per_node=instance.gpus,
        gpu=instance.gpu,
        host_bytes_per_node=instance.host_bytes,
        inter_node_gbps=instance.inter_node_gbps,
        only_pcie=instance.intra_node == "PCIe",
        source=f"{instance.cloud} instance {instance.name}: {instance.source}",
    )


def _canonical(nodes: int, gpus: int, gpu: str) -> str:
    if nodes > 1:
        return f"{nodes}x{gpus}x{gpu}"
    return f"{gpus}x{gpu}" if gpus > 1 else gpu


def _split_counts(text: str) -> tuple[list[int], str]:
    counts: list[int] = []
    while len(counts) < 3:
        found = re.match(r"(\d{1,9})\s*[x×*]\s*(?=\S)", text, re.IGNORECASE)
        if found is None:
            break
        counts.append(int(found[1]))
        text = text[found.end() :]
    return counts, text


def _split_other_counts(name: str) -> tuple[list[int], str]:
    """SLURM's ``gpu:a100:4`` and SkyPilot's ``A100:8``; and, where that is no name of a GPU,
    ``A100x8`` and ``8 A100``."""
    name = re.sub(r"^gpu:", "", name, flags=re.IGNORECASE)
    found = re.fullmatch(r"(.+?):(\d{1,9})", name)
    if found:
        return [int(found[2])], found[1]
    if find_gpus(name):
        return [], name
    for pattern in _ODD_COUNTS:
        found = re.fullmatch(pattern, name, re.IGNORECASE)
        if found and (find_gpus(found["gpu"]) or _amount_of(found["gpu"]) is not None):
            return [int(found["count"])], found["gpu"]
    return [], name


_ODD_COUNTS: Final = (
    r"(?P<gpu>.+?)\s*[x×*]\s*(?P<count>\d{1,3})",
    r"(?P<count>\d{1,3})\s+(?P<gpu>[a-z].*)",
)
_AMOUNT: Final = r"(?:custom-)?(\d{1,6}(?:\.\d{1,4})?)\s*(?:gb?|gib)"


def _amount_of(name: str) -> str | None:
    """``24`` of ``24GB``, ``24 GiB`` and ``custom-24GB``."""
    found = re.fullmatch(_AMOUNT, name.strip(), re.IGNORECASE)
    return found[1] if found else None


def _card(gigabytes: str) -> Gpu:
    """What is sold has whole gigabytes; what has not is what torch can use."""
    if "." not in gigabytes:
        return card_of_size(int(gigabytes))
    return custom_gpu(round(float(gigabytes) * GIB))


def _check(text: str, nodes: int, gpus: int) -> None:
    if not 1 <= nodes <= _MAX_NODES:
        raise UsageError(f"{text!r}: {nodes} nodes is not a number of nodes")
    if not 1 <= gpus <= _MAX_GPUS_PER_NODE:
        raise UsageError(f"{text!r}: {gpus} GPUs per node is not a number of GPUs")
