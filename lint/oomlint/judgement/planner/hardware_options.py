"""The smallest catalogued cards and machines on which a run fits as it is."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from oomlint.hardware import Gpu, Hardware, common_cards, list_instances, usable_bytes
from oomlint.judgement import Risk, settled
from oomlint.memory import Estimate
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_COUNTS = (1, 2, 4, 8)
_NODES = (1, 2, 4, 8, 16)


class HardwareOption(Struct, frozen=True):
    """So many of one card, the machines that have just that, and what the run needs there."""

    hardware: Hardware
    estimate: Estimate
    machines: tuple[str, ...]


def hardware_options(run: Run) -> list[HardwareOption]:
    """For each common card, and the run's own, the smallest number on which the run fits, the
    smallest card first.

    A number of GPUs that the files themselves fix is kept.
    """
    cards = {card.name: card for card in common_cards()}
    if run.hardware is not None:
        cards[run.hardware.gpu.name] = run.hardware.gpu
    found = (_smallest(run, card) for card in sorted(cards.values(), key=usable_bytes))
    return [option for option in found if option is not None]


def _smallest(run: Run, card: Gpu) -> HardwareOption | None:
    for nodes, per_node in _sizes(run):
        prefix = f"{nodes}x{per_node}x" if nodes > 1 else f"{per_node}x" if per_node > 1 else ""
        machine = Hardware(
            name=prefix + card.name,
            nodes=nodes,
            gpus_per_node=per_node,
            gpu=card,
            source=card.source,
        )
        moved = replace(run, hardware=machine, _cache={}).assuming(
            {f.parallel.nodes: nodes, f.parallel.gpus_per_node: per_node}
        )
        estimate = settled(moved).estimate
        if Risk.by(estimate, usable_bytes(card), None).verdict != "fits":
            continue
        return HardwareOption(machine, estimate, tuple(_machines(card, per_node, estimate)))
    return None


def _sizes(run: Run) -> Iterator[tuple[int, int]]:
    parallel = run.plan.parallel
    said = parallel.gpus_per_node
    if said and run.is_explicit(f.parallel.gpus_per_node):
        yield parallel.nodes or 1, said
        return
    for per_node in _COUNTS:
        yield 1, per_node
    if parallel.backend in ("zero", "fsdp1", "fsdp2", "megatron"):
        for nodes in _NODES[1:]:
            yield nodes, _COUNTS[-1]


def _machines(card: Gpu, count: int, estimate: Estimate) -> Iterator[str]:
    """Machines with just so many of the card, and RAM enough where it is known."""
    need = estimate.host.peak_bytes
    for instance in list_instances():
        if instance.gpu.name != card.name or instance.gpus != count:
            continue
        if need is None or instance.host_bytes is None or need <= 0.95 * instance.host_bytes:
            yield instance.name
