"""Commands of scripts over transformers' Trainer, each script's options in its own words."""

from __future__ import annotations

import json
import re
from typing import Any

from benchmarks.accuracy.facts import Row
from benchmarks.accuracy.languages.words import (
    command,
    gpus_of,
    is_checkpointed,
    strategy_of,
)


def launcher_of(row: Row) -> list[str]:
    """``python`` on one GPU, else torchrun with a process for each."""
    gpus = gpus_of(row)
    return ["python"] if gpus == 1 else ["torchrun", f"--nproc_per_node={gpus}"]


def stage_of(row: Row) -> int | None:
    """The stage of ZeRO that a row names, if any."""
    found = re.search(r"zero_?-?(\d)", strategy_of(row))
    return int(found[1]) if found else None


def zero_config(row: Row, **settings: Any) -> dict[str, Any]:
    """A DeepSpeed configuration for the Trainer, which fills in what is ``auto``."""
    zero: dict[str, Any] = {"stage": stage_of(row)}
    if "offload" in strategy_of(row):
        zero["offload_optimizer"] = {"device": "cpu"}
        if stage_of(row) == 3:
            zero["offload_param"] = {"device": "cpu"}
    return {
        "zero_optimization": {**zero, **settings},
        "fp16": {"enabled": "auto"},
        "bf16": {"enabled": "auto"},
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
    }


def arguments_of_training(row: Row) -> dict[str, Any]:
    """What TrainingArguments call the settings of every row."""
    dtype = str(row.get("dtype")).lower()
    return {
        "bf16": "True" if "bf16" in dtype else None,
        "fp16": "True" if "fp16" in dtype and "bf16" not in dtype else None,
        "output_dir": "out",
        "per_device_train_batch_size": row["micro_batch"],
        "gradient_accumulation_steps": row.get("grad_accum"),
        "gradient_checkpointing": str(is_checkpointed(row)),
    }


_QWEN_BUCKETS: dict[int | None, dict[str, Any]] = {
    2: {"overlap_comm": True, "reduce_bucket_size": 2e8, "allgather_bucket_size": 2e8},
    3: {
        "overlap_comm": True, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto", "sub_group_size": 1e9,
    },
}  # fmt: skip


def qwen(row: Row) -> dict[str, str]:
    """Qwen's finetune.py, as finetune/finetune_*.sh start it."""
    method = str(row["method"])
    options = {
        "model_name_or_path": row["model"],
        **arguments_of_training(row),
        "model_max_length": row["seq_len"],
        "lazy_preprocess": "True",
        "use_lora": None if method == "full" else "True",
        "q_lora": "True" if method == "qlora" else None,
        "deepspeed": "ds_config.json" if stage_of(row) else None,
    }
    files = {"train.sh": command([*launcher_of(row), "finetune.py"], options)}
    if stage_of(row):
        # finetune/ds_config_zero2.json and ds_config_zero3.json of 73b34d4.
        config = zero_config(row, **_QWEN_BUCKETS[stage_of(row)])
        files["ds_config.json"] = json.dumps(config, indent=1) + "\n"
    return files
