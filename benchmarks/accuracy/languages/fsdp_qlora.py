"""Answer.AI's fsdp_qlora: the command of its train.py, which starts a process for each GPU that it sees."""

from __future__ import annotations

from benchmarks.accuracy.facts import Row
from benchmarks.accuracy.languages.words import (
    command,
    gpus_of,
    is_checkpointed,
    lora_of,
    strategy_of,
)


def train(row: Row) -> dict[str, str]:
    """In the words of May 2024, which say ``--use_ddp`` of January otherwise and have other defaults."""
    visible = f"CUDA_VISIBLE_DEVICES={','.join(map(str, range(gpus_of(row))))}"
    strategy = strategy_of(row)
    is_whole = "ddp" in strategy or "no_shard" in strategy
    options = {
        "model_name": row["model"],
        "train_type": row["method"],
        "batch_size": row["micro_batch"],
        "context_length": row["seq_len"],
        "gradient_accumulation_steps": row.get("grad_accum"),
        "precision": "bf16",
        "use_gradient_checkpointing": str(is_checkpointed(row)),
        "reentrant_checkpointing": "True",
        "sharding_strategy": "ddp" if is_whole else "full_shard",
        "use_cpu_offload": str("cpu" in strategy),
        "low_memory": row.get("low_memory"),
        "use_activation_cpu_offload": str("activation offload" in strategy),
        "lora_rank": lora_of(row).get("r"),
    }
    return {"train.sh": command([visible, "python", "train.py"], options)}
