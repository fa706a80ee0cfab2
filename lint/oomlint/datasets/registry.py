"""What a ``dataset_info.json`` says of a name (LLaMA-Factory data/README.md)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct


class Registered(Struct, frozen=True):
    """A data set under a name of the project's own: a file beside the list, or one that is public."""

    file: str
    public: str


def registered(data: bytes, name: str) -> Registered | None:
    """What a name stands for; ``None`` of one that is not listed."""
    try:
        listed: Any = msgspec.json.decode(data)
    except ValueError:
        return None
    entry = listed.get(name) if isinstance(listed, dict) else None
    if not isinstance(entry, dict):
        return None
    public = entry.get("hf_hub_url") or entry.get("ms_hub_url") or ""
    return Registered(str(entry.get("file_name") or ""), str(public))
