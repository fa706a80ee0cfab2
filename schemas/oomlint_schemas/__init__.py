"""JSON Schemas of what oomlint reads and prints, generated from its code.

``python -m oomlint_schemas`` writes them anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
OWN = ("oomlint", "plan", "findings", "estimate", "fit", "compare", "diagnose", "baseline")
CONFIGS = (
    "axolotl", "llama-factory", "llama-factory-v1", "deepspeed", "accelerate", "torchtune",
    "torchtitan", "trl", "ms-swift", "megatron-swift", "litgpt", "llm-foundry", "verl", "easyr1", "nemo-rl", "automodel", "roll", "gpt-neox", "nanotron", "olmo", "lingua", "prime-rl", "areal", "nemo",
)  # fmt: skip
NAMES = (*OWN, *CONFIGS)
CATALOG = FOLDER / "catalog.json"


def load(name: str) -> dict[str, Any]:
    """The schema of that name, one of ``NAMES``: settings, plan, the JSON of commands, and the
    config files of frameworks."""
    schema: dict[str, Any] = json.loads(path_of(name).read_text("utf-8"))
    return schema


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.schema.json"
