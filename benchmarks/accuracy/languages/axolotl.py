"""Axolotl: its YAML, which rows carry whole; JSON is YAML, and Axolotl's own loader reads both."""

from __future__ import annotations

import json

from benchmarks.accuracy.facts import Row


def config(row: Row) -> dict[str, str]:
    return {"config.yaml": json.dumps(row["raw_args"], indent=1) + "\n"}
