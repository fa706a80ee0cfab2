"""Configs that xtuner brings along, by the names that ``xtuner train`` takes for them."""

from __future__ import annotations

import json
from collections.abc import Mapping as MappingABC
from functools import cache
from pathlib import Path
from typing import Any

_TABLE = Path(__file__).with_name("shipped_configs.tsv")


# What nine of ten of them have: how often they save moves disks, not memory.
_SAVED = {"save_steps": 500, "save_total_limit": 2}


def shipped_config(name: str) -> str | None:
    """What a shipped config sets, as JSON with the keys of such a file."""
    row = _rows().get(name)
    return None if row is None else json.dumps(_settings(*row.split("\t")), indent=2)


@cache
def _rows() -> MappingABC[str, str]:
    lines = (line for line in _TABLE.read_text("utf-8").splitlines() if not line.startswith("#"))
    return {name: row for name, _, row in (line.partition("\t") for line in lines)}


def _settings(
    model: str, kind: str, method: str, rank: str, alpha: str, micro: str, steps: str, length: str,
    packed: str, varlen: str, parallel: str, targets: str,
) -> dict[str, Any]:  # fmt: skip
    built: dict[str, Any] = {"type": kind, "llm": {}}
    if method == "qlora":
        packing = {"load_in_4bit": True, "bnb_4bit_use_double_quant": True}
        built["llm"] = {"torch_dtype": "float16", "quantization_config": packing}
    if method != "full":
        adapter = {"r": int(rank), "lora_alpha": int(alpha)}
        names = {} if targets == "-" else {"target_modules": targets.split(",")}
        built["lora"] = {**adapter, **names}
    return {
        "pretrained_model_name_or_path": model,
        "model": built,
        "batch_size": int(micro),
        "accumulative_counts": int(steps),
        "max_length": int(length),
        "pack_to_max_length": packed == "1",
        "use_varlen_attn": varlen == "1",
        "sequence_parallel_size": int(parallel),
        "optim_type": "AdamW",
        **_SAVED,
        "optim_wrapper": {"type": "AmpOptimWrapper", "dtype": "float16"},
    }
