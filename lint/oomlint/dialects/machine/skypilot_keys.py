"""Keys of SkyPilot's tasks that say what they run on.

Keys from SkyPilot 0.10 docs ``reference/yaml-spec``.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from oomlint.dialects.kinds import POSITIVE, TEXT, BadValue, Kind
from oomlint.dialects.machine.fields import sky
from oomlint.dialects.table import Row, Table


class Accelerators(NamedTuple):
    """What is asked for, the same on each node."""

    name: str
    number: int


def _read_accelerators(raw: Any) -> Accelerators | None:
    """``H100``, ``A100-80GB:8``, ``{A100: 8}``; of a choice of several, nothing."""
    if isinstance(raw, dict):
        # YAML takes `{L4:8}` for a key without a value.
        pairs = [name if count is None else f"{name}:{count}" for name, count in raw.items()]
    elif isinstance(raw, list):
        pairs = [str(item) for item in raw]
    else:
        pairs = [str(raw)]
    if len(pairs) != 1:
        return None
    found = re.fullmatch(r"([\w-]+?)(?::(\d{1,4})(?:\.0)?)?", pairs[0].strip())
    return Accelerators(found[1], int(found[2] or 1)) if found else None


def _read_nodes(raw: Any) -> int | None:
    try:
        number: int = POSITIVE.read(raw)
    except BadValue:
        return None
    return number


TASK = Table(
    name="task",
    rows=(
        Row("resources.accelerators", sky.accelerators, Kind(_read_accelerators)),
        Row("resources.instance_type", sky.instance, TEXT),
        Row("num_nodes", sky.nodes, Kind(_read_nodes)),
    ),
    known_prefixes=("",),
    section="scheduler",
)

# SkyPilot's catalogue calls the smaller of two cards by the plain name (catalogs v8).
PLAIN_NAMES = {"A100": "A100-40GB", "V100": "V100-16GB"}
