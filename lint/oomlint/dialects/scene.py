"""The machine that a scheduler's or container's file asks for, as facts of a run.

Each kind of file (Slurm, Kubernetes, compose, SkyPilot) reads its own keys and provides what
they mean under the names here. The facts are weaker than what a launch line says, and weaker
than what the user tells oomlint: :meth:`Draft.fact` fills only what nobody has said.
"""

from __future__ import annotations

import re
from typing import Any

from oomlint.dialects.draft import Draft
from oomlint.dialects.kinds import Kind

NODES = "scene.nodes"
GPUS_PER_NODE = "scene.gpus_per_node"
GPU_NAMES = "scene.gpu_names"
"""Spellings of one GPU in tiers, the most telling first: what they mean is for the hardware
catalogue to say. Where the spellings of a tier mean several GPUs, nothing is known."""
RAM_LIMIT = "scene.ram_limit"
"""Who limits the RAM of a node: ``slurm``, ``container``, or ``slurm default`` where the
script leaves it to the site."""
INSTANCE = "scene.instance"
"""The name of a cloud's machine type."""

_GIB = 2**30
_AMOUNT = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kmgtp]?)(i?)b?", re.IGNORECASE)


def read_gib(raw: Any, *, bare_unit: str = "", decimal: bool = False) -> float | None:
    """An amount of memory in GiB; ``None`` for zero (no limit of its own) and what is none.

    Args:
        bare_unit: the unit of a number without one: ``"M"`` for Slurm, bytes elsewhere.
        decimal: a prefix without ``i`` is a power of 1000 (Kubernetes), else of 1024.
    """
    match = _AMOUNT.fullmatch(str(raw).strip())
    if isinstance(raw, bool) or match is None:
        return None
    number, prefix, binary = match.groups()
    prefix = (prefix or bare_unit).lower()
    power = " kmgtp".index(prefix) if prefix else 0
    amount = float(number) * (1000 if decimal and not binary else 1024) ** power
    return amount / _GIB or None


def whole_units(gib: float) -> tuple[int, str]:
    """An amount in the largest unit that writes it: ``(96, "G")``, ``(1536, "M")``."""
    if float(gib).is_integer():
        return int(gib), "G"
    return max(1, -int(-gib * 1024 // 1)), "M"


def _write_docker(value: Any) -> str:
    number, unit = whole_units(value)
    return f"{number}{unit.lower()}"


# docker run and compose: "64m", "16gb", a bare number is bytes; lower-case letters are usual.
DOCKER_MEMORY = Kind(read_gib, _write_docker)


def provide_counts(
    draft: Draft, nodes: int | None, gpus: int | None, source: str, *inputs: str
) -> None:
    """How many nodes there are, and how many GPUs each has."""
    for field, private, value in (
        ("parallel.nodes", NODES, nodes),
        ("parallel.gpus_per_node", GPUS_PER_NODE, gpus),
    ):
        draft.fact(private, value, source, *inputs)
        draft.fact(field, value, source, *inputs)


def provide_ram(draft: Draft, gib: float | None, who: str, source: str, field: str) -> None:
    """The limit of a node's RAM in GiB, set by ``field``."""
    if gib is not None:
        draft.fact("host.ram_gib", gib, source, field)
        draft.fact(RAM_LIMIT, who, source, field)


def stand_in(draft: Draft) -> None:
    """Counts that a command takes from its scheduler's variables are those it asks it for."""
    why = "the command asks its scheduler for that many"
    nodes, gpus = draft.get(NODES), draft.get(GPUS_PER_NODE)
    total = None if gpus is None else gpus * (nodes or 1)
    for field, value in (
        ("parallel.nodes", nodes),
        ("env.nnodes", nodes),
        ("parallel.gpus_per_node", gpus),
        ("env.nproc_per_node", gpus),
        ("launch.total_processes", total),
    ):
        if value is not None and draft.is_unknown(field):
            draft.unknown.pop(field)
            draft.assume(field, value, why)
