"""Options of ``docker run`` and keys of compose's services that say what a container may use.

From docker's CLI reference 27 and the Compose Specification.
"""

from __future__ import annotations

import re
from typing import Any

from oomlint.dialects.kinds import BOOLEAN, TEXT, Kind
from oomlint.dialects.machine.fields import docker
from oomlint.dialects.machine.memory_sizes import DOCKER_MEMORY
from oomlint.dialects.table import Row, Table


def _read_gpus(raw: Any) -> int | None:
    """``8`` or ``"device=0,1"``; ``all`` says nothing of how many there are."""
    if isinstance(raw, list):
        return len(raw) or None
    text = str(raw).strip().strip("\"'")
    if text.isdigit():
        return int(text) or None
    devices = re.search(r"device=([^\"']+)", text)
    return len([part for part in devices[1].split(",") if part]) if devices else None


_GPUS = Kind(_read_gpus)


def _read_ulimit(raw: Any) -> str | None:
    """``memlock=-1:-1``: whether locked pages are limited; other limits say nothing of that."""
    name, _, value = str(raw).partition("=")
    return _read_memlock(value) if name == "memlock" else None


def _read_memlock(raw: Any) -> str | None:
    """``-1``, ``-1:-1`` or ``{"soft": -1, "hard": -1}``."""
    soft = raw.get("soft") if isinstance(raw, dict) else str(raw).partition(":")[0]
    return "unlimited" if str(soft).strip() in ("-1", "unlimited") else "limited"


_MEMLOCK = Kind(_read_ulimit, lambda _: "memlock=-1:-1")
_MEMLOCK_SERVICE = Kind(_read_memlock, lambda _: -1)

DOCKER_RUN = Table(
    name="docker run",
    rows=(
        Row("gpus", docker.gpus, _GPUS),
        Row("memory", docker.memory, DOCKER_MEMORY, aliases=("m",)),
        Row("shm-size", docker.shm, DOCKER_MEMORY),
        Row("ipc", docker.ipc, TEXT),
        Row("ulimit", docker.memlock, _MEMLOCK, aliases=("ulimit.memlock",)),
        Row("privileged", docker.privileged, BOOLEAN),
    ),
    known_prefixes=("",),
    loader="yaml12",
    section="scheduler",
)

SERVICE = Table(
    name="service",
    rows=(
        Row("mem_limit", docker.memory, DOCKER_MEMORY, aliases=("deploy.resources.limits.memory",)),
        Row("shm_size", docker.shm, DOCKER_MEMORY),
        Row("ipc", docker.ipc, TEXT),
        Row("ulimits.memlock", docker.memlock, _MEMLOCK_SERVICE),
        Row("privileged", docker.privileged, BOOLEAN),
    ),
    known_prefixes=("",),
    section="scheduler",
)

DEVICES = Table(
    name="devices",
    rows=(Row("device_ids", docker.gpus, _GPUS, aliases=("count",)),),
    known_prefixes=("",),
    section="scheduler",
)
