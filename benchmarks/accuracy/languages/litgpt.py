"""LitGPT: the ``litgpt finetune_*`` command that says what a row of its tables says."""

from __future__ import annotations

from typing import Any

from benchmarks.accuracy.facts import Row
from benchmarks.accuracy.languages.words import command, gpus_of, lora_of, whole

_LORA_PARTS = {
    "q": "query", "k": "key", "v": "value", "o": "projection", "mlp": "mlp", "lm_head": "head",
}  # fmt: skip


def finetune(row: Row) -> dict[str, str]:
    method = {"qlora": "lora"}.get(str(row["method"]), str(row["method"]))
    micro, gpus = whole(row.get("micro_batch")), gpus_of(row)
    quant = str(row.get("quant") or "")
    options: dict[str, Any] = {
        "checkpoint_dir": f"checkpoints/{row['model']}",
        "precision": "bf16-mixed" if "mixed" in str(row.get("dtype")) else "bf16-true",
        "devices": gpus,
        "train.micro_batch_size": micro,
        "train.global_batch_size": micro * gpus * whole(row.get("grad_accum")),
        "train.max_seq_length": row["seq_len"],
        "quantize": quant if quant.startswith("bnb") else None,
    }
    lora = lora_of(row)
    if method == "lora" and lora:
        targets = lora.get("targets") or ["q", "v"]
        options["lora_r"] = lora.get("r") or 8
        for short, part in _LORA_PARTS.items():
            options[f"lora_{part}"] = str(short in targets).lower()
    return {"train.sh": command(["litgpt", f"finetune_{method}"], options)}
