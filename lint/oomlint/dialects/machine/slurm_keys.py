"""Slurm's directives, and the same options on the lines of its commands.

Names and meanings from sbatch(1) of Slurm 24.05. A count of zero, a value that only the site's
configuration would tell and an option that is no GPU's are no facts and leave things unknown.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from oomlint.dialects.kinds import TEXT, Kind
from oomlint.dialects.machine.fields import slurm
from oomlint.dialects.machine.memory_sizes import read_gib, whole_units
from oomlint.dialects.table import Row, Table


class Gres(NamedTuple):
    """Generic resources of the kind ``gpu``: their type, if named, and how many."""

    name: str | None
    number: int


_SOCKETS = r"\(.*?\)"


def _read_gres(raw: Any) -> Gres | None:
    """``gpu``, ``gpu:8``, ``gpu:a100:4``, ``gpu:a100:4(S:0-1)``, ``gpu:4,nvme:1``."""
    for item in re.sub(_SOCKETS, "", str(raw)).split(","):
        kind, _, rest = item.strip().partition(":")
        if kind in ("gpu", "gres/gpu"):
            return _counted(rest)
    return None


def _read_gpus(raw: Any) -> Gres | None:
    """``8`` or ``a100:8`` of the ``--gpus`` options, which some write like a ``--gres``."""
    return _read_gres(raw) or _counted(re.sub(_SOCKETS, "", str(raw)).split(",")[0].strip())


def _counted(text: str) -> Gres | None:
    name, _, count = text.rpartition(":")
    if not count.isdigit():
        name, count = text, "1"
    return Gres(name or None, int(count)) if int(count) else None


def _read_count(raw: Any) -> int | None:
    """A number, of a range such as ``2-4`` the most that it may be."""
    found = re.fullmatch(r"(?:\d+-)?(\d{1,9})", str(raw).strip())
    return int(found[1]) or None if found else None


def _read_memory(raw: Any) -> float | None:
    """GiB; a bare number is MiB, and zero asks for all that the node has."""
    return read_gib(raw, bare_unit="M")


def _write_memory(value: Any) -> str:
    number, unit = whole_units(value)
    return f"{number}{unit}"


_GPUS = Kind(_read_gpus)
_COUNT = Kind(_read_count)
_MEMORY = Kind(_read_memory, _write_memory)

_ROWS = (
    Row("nodes", slurm.nodes, _COUNT, aliases=("N",)),
    Row("gres", slurm.gres, Kind(_read_gres)),
    Row("gpus_per_node", slurm.gpus_per_node, _GPUS),
    Row("gpus", slurm.gpus, _GPUS, aliases=("G",)),
    Row("gpus_per_task", slurm.gpus_per_task, _GPUS),
    Row("ntasks_per_node", slurm.tasks_per_node, _COUNT, aliases=("tasks_per_node",)),
    Row("ntasks", slurm.tasks, _COUNT, aliases=("n",)),
    Row("cpus_per_task", slurm.cpus_per_task, _COUNT, aliases=("c",)),
    Row("mem", slurm.mem, _MEMORY),
    Row("mem_per_cpu", slurm.mem_per_cpu, _MEMORY),
    Row("mem_per_gpu", slurm.mem_per_gpu, _MEMORY),
    Row("constraint", slurm.constraint, TEXT, aliases=("C",)),
)
SBATCH = Table("#SBATCH", _ROWS, known_prefixes=("",), loader="yaml12", section="scheduler")
# The same options on the line of sbatch, salloc or srun win over the script's (sbatch(1)).
SLURM_COMMAND = Table(
    "Slurm command", _ROWS, known_prefixes=("",), loader="yaml12", section="scheduler"
)
