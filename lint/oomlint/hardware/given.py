"""What users say about a machine besides its name: the RAM of a node, and how many GPUs take part."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oomlint.errors import UsageError
from oomlint.hardware.parse import Hardware
from oomlint.hardware.sizes import parse_bytes
from oomlint.plan.fields import f


def with_given(
    machine: Hardware | None, host_memory: int | str | None, gpus: int | str | None
) -> tuple[Hardware | None, dict[Any, Any]]:
    """The machine with that said of it, and the values of a plan that follow.

    Raises:
        UsageError: text that means no size or no count.
    """
    values: dict[Any, Any] = {}
    if host_memory is not None:
        ram = parse_bytes(host_memory) if isinstance(host_memory, str) else host_memory
        values[f.host.ram_gib] = ram / 2**30
        if machine is not None:
            machine = replace(machine, host_bytes_per_node=ram)
    if gpus is not None:
        nodes, per_node = _counts(str(gpus))
        values |= {f.parallel.nodes: nodes, f.parallel.gpus_per_node: per_node}
        if machine is not None:
            counts = f"{nodes}x{per_node}x" if nodes > 1 else f"{per_node}x" if per_node > 1 else ""
            machine = replace(
                machine, name=counts + machine.gpu.name, nodes=nodes, gpus_per_node=per_node
            )
    return machine, values


def _counts(text: str) -> tuple[int, int]:
    """``8`` or ``2x8`` as nodes and GPUs per node."""
    nodes, x, per_node = text.lower().rpartition("x")
    try:
        counts = (int(nodes) if x else 1, int(per_node))
    except ValueError:
        counts = (0, 0)
    if not (0 < counts[0] <= 100_000 and 0 < counts[1] <= 1024):
        raise UsageError(f"--gpus {text}: write GPUs per node, such as 8, or 2x8 for two nodes")
    return counts
