"""From the names that schedulers' and containers' files use to GPUs and machines we know."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.draft import Draft
from oomlint.dialects.machine.environments import finish_scene
from oomlint.dialects.machine.named_hardware import hardware_in_files
from oomlint.dialects.machine.scene import GPU_NAMES, GPUS_PER_NODE, INSTANCE, NODES
from oomlint.errors import UsageError
from oomlint.frozen import replace

if TYPE_CHECKING:
    from oomlint.hardware import Gpu, Hardware, Instance

_GIB = 2**30


def add_surroundings(draft: Draft) -> None:
    """Facts about the machine that the run's own files ask for; weaker than all that is said."""
    finish_scene(draft)
    for tier in draft.get(GPU_NAMES, ()):
        known = {gpu.name: name for name in tier if (gpu := _gpu(name)) is not None}
        if len(known) == 1:
            ((gpu_name, spelling),) = known.items()
            source = f"{draft.settings[GPU_NAMES].origin.source} asks for {spelling}"
            draft.fact("device.type", gpu_name, source, GPU_NAMES)
        if known:
            break
    instance = _instance(str(draft.get(INSTANCE, "")))
    if instance is None:
        return
    source = f"{draft.settings[INSTANCE].origin.source} asks for {instance.name}"
    draft.fact("device.type", instance.gpu.name, source, INSTANCE)
    draft.fact(GPUS_PER_NODE, instance.gpus, source, INSTANCE)
    draft.fact("parallel.gpus_per_node", instance.gpus, source, INSTANCE)
    ram = instance.host_bytes
    draft.fact("host.ram_gib", None if ram is None else ram / _GIB, source, INSTANCE)


def inferred_hardware(draft: Any) -> Hardware | None:
    """The hardware that the run's own files name; ``None`` where they leave the GPU open."""
    if isinstance(draft, Cells):
        return hardware_in_files(draft)
    setting = draft.settings.get("device.type")
    if setting is None or setting.origin.kind != "catalog":
        return None
    gpu, nodes = _gpu(str(setting.value)), draft.get("parallel.nodes", draft.get(NODES, 1))
    per_node = draft.get("parallel.gpus_per_node", draft.get(GPUS_PER_NODE, None))
    if gpu is None or per_node is None:
        return None
    from oomlint.hardware import parse_hardware

    try:
        hardware = parse_hardware(f"{nodes}x{per_node}x{gpu.name}")
    except UsageError:
        return None
    ram = draft.get("host.ram_gib", None)
    return replace(
        hardware,
        host_bytes_per_node=None if ram is None else round(ram * _GIB),
        source=setting.origin.source + _place(draft, setting.origin.inputs),
    )


@cache
def _gpu(name: str) -> Gpu | None:
    """The one GPU that a name stands for; ``None`` if it is unknown or could be several."""
    from oomlint.hardware import find_gpu

    try:
        return find_gpu(name)
    except UsageError:
        return None


@cache
def _instance(name: str) -> Instance | None:
    from oomlint.hardware import find_instance

    try:
        return find_instance(name) if name else None
    except UsageError:
        return None


def _place(draft: Any, fields: tuple[str, ...]) -> str:
    """`` (job.sh:5)``: the first place that says one of ``fields``, or what they follow from."""
    for name in fields:
        setting = draft.settings.get(name)
        if setting is None:
            continue
        origin, location = setting.origin, setting.origin.location
        if origin.block is not None and location is not None:
            line, _ = origin.block.document.source.position(location.span.start)
            return f" ({location.path}:{line})"
        further = _place(draft, origin.inputs)
        if further:
            return further
    return ""
