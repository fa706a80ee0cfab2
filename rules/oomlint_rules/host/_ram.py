"""Judging host RAM: against the node's own where it is known, else against usual machines."""

from __future__ import annotations

from functools import cache

from msgspec import Struct

from oomlint.judgement import Peak, judge_host, settled
from oomlint.linting.rule import Severity
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib, of_gib

# Most machines with that many GPUs have less.
_SHARE_THAT_WARNS = 0.5
# Below this, any machine that trains a language model has it.
_NOTEWORTHY = 64 * 2**30
_ENOUGH_MACHINES = 10

UNKNOWN_RAM = "the node's RAM is not known (state it with --host-memory)"


class RamVerdict(Struct, frozen=True):
    """A need of host RAM per node, judged. ``details`` say what a headline does not: what is assumed,
    and where the node's RAM is not known the need and what machines have; ``is_common``: every usual
    machine with as many GPUs has that much."""

    judgement: Peak
    severity: Severity | None
    details: tuple[str, ...]
    is_common: bool


def judge_ram(run: Run, phase: str | None = None) -> RamVerdict | None:
    """Judge a node's RAM as :func:`oomlint.judgement.judge_host` does; where nobody says how much
    the node has, by the machines that clouds offer with as many GPUs."""
    found = judge_host(run, phase=phase)
    if found is None:
        return None
    if found.limit is not None:
        assumed = ("one node of 8 GPUs is assumed",) if run.plan.parallel.world is None else ()
        return RamVerdict(found, found.severity, assumed, False)
    gpus = settled(run).plan.parallel.gpus_per_node or 1
    less, machines = _machines_with_less(found.predicted, gpus)
    if less >= _SHARE_THAT_WARNS * machines:
        severity: Severity | None = Severity.WARNING
    else:
        severity = Severity.INFO if found.predicted >= _NOTEWORTHY else None
    several = f"cloud machines with {gpus} {'GPU' if gpus == 1 else 'GPUs'}"
    usual = f"{less} of {machines} {several} have less" if less else f"{several} have that much"
    details = (
        f"{gib(found.predicted)} a node with the processes{found.proviso}",
        UNKNOWN_RAM,
        usual,
    )
    return RamVerdict(found, severity, details, less == 0)


def against(need: float, limit: int | None) -> tuple[str, ...]:
    """A need that no headline names, because it is none of the run's own phases, beside what a node has."""
    if limit is None:
        return (f"in all {gib(need)}", UNKNOWN_RAM)
    return (f"in all {of_gib(need, limit)} of the node's RAM",)


def copies(run: Run, ranks: int) -> str:
    """``: 8 × 131 GiB``: what the ranks of a node read, to end a title; empty where it is not known."""
    from oomlint.memory import host_load_bytes

    loaded = host_load_bytes(settled(run).plan)
    return f": {ranks} × {gib(loaded / ranks)}" if loaded else ""


def _machines_with_less(need: int, gpus: int) -> tuple[int, int]:
    sizes = _sizes(gpus)
    if len(sizes) < _ENOUGH_MACHINES:
        sizes = _sizes(8)
    return sum(size < need for size in sizes), len(sizes)


@cache
def _sizes(gpus: int) -> tuple[int, ...]:
    from oomlint.hardware import ram_of_instances

    return tuple(ram_of_instances(gpus))
