"""``use_ray: true`` of ms-swift: Ray starts the ranks that ``device_groups`` names, a GPU each.

Read from ms-swift 4.6.0 ``swift/ray_utils/resource_manager.py`` and ``base.py`` (3.9 to 4.0 ``swift/ray``): a group has
``ranks``, a number, a list or a text that is evaluated to one, and ``workers``, of which ``default`` trains
(``swift/pipelines/train/sft.py``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from oomlint.dialects.kinds import BadValue

_TRAINS = "default"
# What stands beside the groups (ResourceManager.possible_keys).
_BESIDE = frozenset({"nproc_per_node", "nnodes"})
_RANGE = re.compile(r"\s*(?:list\s*\(\s*)?range\s*\(\s*(?:(\d+)\s*,\s*)?(\d+)\s*\)\s*\)?\s*")
_LIST = re.compile(r"\s*\[\s*\d+\s*(?:,\s*\d+\s*)*,?\s*\]\s*")


class TrainingGroup(Struct, frozen=True):
    """The ranks that train, and how many of them a node has at most."""

    ranks: int
    per_node: int


def read_groups(raw: Any) -> TrainingGroup | None:
    """The group that trains; ``None`` where none does, which leaves it to the process that asks."""
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except ValueError:
            raise BadValue("expected groups of devices") from None
    if not isinstance(raw, Mapping) or not str(raw.get("nproc_per_node", "")).isdigit():
        raise BadValue("expected groups of devices and nproc_per_node")
    for name, group in raw.items():
        if name in _BESIDE or not isinstance(group, Mapping):
            continue
        if _TRAINS in (group.get("workers") or ()):
            ranks = _count(group.get("ranks"))
            return TrainingGroup(ranks, int(raw["nproc_per_node"]))
    return None


def _count(ranks: Any) -> int:
    if isinstance(ranks, int) and not isinstance(ranks, bool):
        return ranks
    if isinstance(ranks, list):
        return len(ranks)
    text = str(ranks)
    if text.isdigit():
        return int(text)
    span = _RANGE.fullmatch(text)
    if span is not None:
        return max(int(span[2]) - int(span[1] or 0), 0)
    if _LIST.fullmatch(text):
        return len(re.findall(r"\d+", text))
    raise BadValue("expected the ranks of a group of devices")
