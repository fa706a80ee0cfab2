"""JSON Schemas of what oomlint reads and prints, generated from its code.

``python -m oomlint_schemas`` writes them anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
NAMES = ("oomlint", "plan", "findings", "estimate", "compare")


def load(name: str) -> dict[str, Any]:
    """The schema of that name, one of ``NAMES``: settings, plan, and the JSON of commands."""
    schema: dict[str, Any] = json.loads(path_of(name).read_text("utf-8"))
    return schema


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.schema.json"
