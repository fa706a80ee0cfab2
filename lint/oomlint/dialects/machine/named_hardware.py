"""From the names that schedulers' and containers' files use to GPUs and machines we know."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from oomlint.dialects.cells import Cells
from oomlint.dialects.machine.fields import scene
from oomlint.dialects.meaning import Meaning, Sourced
from oomlint.errors import UsageError
from oomlint.plan.fields import f

if TYPE_CHECKING:
    from oomlint.hardware import Gpu, Hardware, Instance

named_hardware = Meaning()

_GIB = 2**30


@named_hardware.fact(f.device.type)
def gpu_by_name(run: Cells) -> Any:
    """The GPU that the first tier of spellings with a known one stands for, if it is but one."""
    for tier in run.get(scene.gpu_names, ()):
        known = {gpu.name: name for name in tier if (gpu := gpu_named(name)) is not None}
        if len(known) == 1:
            ((gpu_name, spelling),) = known.items()
            return Sourced(gpu_name, f"{_asker(run, scene.gpu_names)} asks for {spelling}")
        if known:
            return None
    return None


@named_hardware.fact(f.device.type)
def largest_by_name(run: Cells) -> Any:
    """Of a name that comes in several sizes (``a100``) the largest: what does not fit there fits none of them."""
    asked = _in_sizes(run)
    if asked is None:
        return None
    spelling, gpus = asked
    why = f"{_asker(run, scene.gpu_names)} asks for {spelling}, of which this is the largest"
    return Sourced(gpus[-1].name, why)


def _in_sizes(run: Cells) -> tuple[str, tuple[Gpu, ...]] | None:
    """The spelling that stands for GPUs of one kind in several sizes, and these, the largest last, where nothing
    names one of them."""
    spellings = [name for tier in run.get(scene.gpu_names, ()) for name in tier]
    if any(gpu_named(name) is not None for name in spellings):
        return None
    found = {sizes: name for name in spellings if (sizes := _sizes_of(name))}
    if len(found) != 1:
        return None
    ((sizes, spelling),) = found.items()
    return spelling, sizes


@named_hardware.fact(f.device.type)
def gpu_of_instance(run: Cells) -> Any:
    found = _instance(run)
    return None if found is None else Sourced(found.gpu.name, _source(run, found))


@named_hardware.fact(scene.gpus_per_node, f.parallel.gpus_per_node)
def gpus_of_instance(run: Cells) -> Any:
    found = _instance(run)
    if found is None:
        return None
    number = Sourced(found.gpus, _source(run, found))
    return dict.fromkeys((scene.gpus_per_node, f.parallel.gpus_per_node), number)


@named_hardware.fact(f.host.ram_gib)
def ram_of_instance(run: Cells) -> Any:
    found = _instance(run)
    if found is None or found.host_bytes is None:
        return None
    return Sourced(found.host_bytes / _GIB, _source(run, found))


def _instance(run: Cells) -> Instance | None:
    return instance_named(run[scene.instance] or "")


def _source(run: Cells, instance: Instance) -> str:
    return f"{_asker(run, scene.instance)} asks for {instance.name}"


def _asker(run: Cells, field: Any) -> str:
    """Who says a field of the scene: ``Slurm``."""
    setting = run.setting(field)
    return "" if setting is None else setting.origin.source


@cache
def gpu_named(name: str) -> Gpu | None:
    """The one GPU that a name stands for; ``None`` if it is unknown or could be several."""
    from oomlint.hardware import find_gpu

    try:
        return find_gpu(name)
    except UsageError:
        return None


def largest_named(name: str) -> Gpu | None:
    """The GPU that a name stands for, of one that comes in several sizes the largest; ``None`` if it is unknown or could
    be of several kinds."""
    sizes = _sizes_of(name)
    return gpu_named(name) or (sizes[-1] if sizes else None)


# ``A100``, ``MI300X``, ``RTX 4090``, ``4090``.
_CARD = r"(?i)(?<![\w-])(?:RTX[ -]?)?(?:[A-Z]{1,2}\d{1,4}[A-Z]?|\d{4})(?: ?Ti)?(?!\w)"


def cards_in(text: str) -> Iterator[tuple[str, Gpu]]:
    """The GPUs of the catalogue that a text names, each once as it is written there."""
    for name in dict.fromkeys(match[0] for match in re.finditer(_CARD, text)):
        gpu = largest_named(name)
        if gpu is not None:
            yield name, gpu


@cache
def _sizes_of(name: str) -> tuple[Gpu, ...]:
    """The GPUs of one kind that a name may stand for, the largest last; empty where it is clear or unknown."""
    from oomlint.hardware import find_gpus

    usual = [gpu for gpu in find_gpus(name) if not gpu.rare]
    is_one_kind = len({gpu.arch for gpu in usual}) == 1
    return tuple(sorted(usual, key=_memory)) if len(usual) > 1 and is_one_kind else ()


def _memory(gpu: Gpu) -> int:
    return gpu.total_bytes


@cache
def instance_named(name: str) -> Instance | None:
    """The machine type of a name; ``None`` if it is unknown."""
    from oomlint.hardware import find_instance

    try:
        return find_instance(name) if name else None
    except UsageError:
        return None


# -- all of it -------------------------------------------------------------------------------------


def hardware_in_files(run: Cells) -> Hardware | None:
    """The hardware that the run's own files name; ``None`` where they leave the GPU open."""
    setting = run.setting(f.device.type)
    if setting is None or setting.origin.kind != "catalog":
        return None
    gpu = gpu_named(str(setting.value))
    nodes = run[f.parallel.nodes] or run[scene.nodes] or 1
    per_node = run[f.parallel.gpus_per_node] or run[scene.gpus_per_node]
    if gpu is None or per_node is None:
        return None
    from oomlint.hardware import parse_hardware

    try:
        hardware = parse_hardware(f"{nodes}x{per_node}x{gpu.name}")
    except UsageError:
        return None
    ram = run[f.host.ram_gib]
    asked = _in_sizes(run)
    smaller = () if asked is None or asked[1][-1] != gpu else asked[1][:-1]
    return replace(
        hardware,
        smaller=smaller,
        host_bytes_per_node=None if ram is None else round(ram * _GIB),
        source=setting.origin.source + _place(run, setting.origin.inputs),
    )


def _place(run: Cells, fields: tuple[str, ...]) -> str:
    """`` (job.sh:5)``: the first place that says one of ``fields``, or what they follow from."""
    for field in fields:
        setting = run.setting(field)
        if setting is None:
            continue
        origin, location = setting.origin, setting.origin.location
        if origin.block is not None and location is not None:
            line, _ = origin.block.document.source.position(location.span.start)
            return f" ({location.path}:{line})"
        further = _place(run, origin.inputs)
        if further:
            return further
    return ""
