"""LLM Foundry: the YAML of a pre-training run of its throughput tables."""

from __future__ import annotations

import re
from typing import Any

from benchmarks.accuracy.facts import Row
from benchmarks.accuracy.languages.words import gpus_of, is_checkpointed, whole, yaml_text

# Layers, width and heads of scripts/train/yamls/pretrain/mpt-*.yaml.
_SIZES = {
    "125m": (12, 768, 12), "350m": (24, 1024, 16), "760m": (24, 1536, 12), "1b": (24, 2048, 16),
    "3b": (32, 2560, 20), "7b": (32, 4096, 32), "13b": (40, 5120, 40), "30b": (48, 7168, 56),
    "70b": (64, 8192, 64),
}  # fmt: skip


def pretrain(row: Row) -> dict[str, str]:
    layers, width, heads = _SIZES[str(row["model"]).removeprefix("mpt-")]
    dtype, strategy = str(row["dtype"]), str(row["strategy"]).upper()
    gpus, micro = gpus_of(row), whole(row["micro_batch"])
    found = re.search(r"mixed precision (\w+)", dtype)
    length = whole(row["seq_len"])
    text: dict[str, Any] = {"name": "text", "dataset": {"local": "c4", "max_seq_len": length}}
    config: dict[str, Any] = {
        "max_seq_len": length,
        "model": {
            "name": "mpt_causal_lm",
            "init_device": "meta",
            "d_model": width,
            "n_heads": heads,
            "n_layers": layers,
            "expansion_ratio": 4,
            "max_seq_len": length,
            "vocab_size": 50368,
            "norm_type": "low_precision_layernorm",
            "attn_config": {"attn_impl": "flash"},
        },
        "tokenizer": {"name": "EleutherAI/gpt-neox-20b"},
        "train_loader": text,
        "optimizer": {"name": "decoupled_adamw", "lr": 2.0e-4},
        "max_duration": "100ba",
        "global_train_batch_size": micro * gpus * whole(row.get("grad_accum")),
        "device_train_microbatch_size": micro,
        "precision": dtype.split(";")[0].replace("amp_fp8", "amp_bf16"),
        "fsdp_config": {
            "sharding_strategy": "SHARD_GRAD_OP" if "GRAD_OP" in strategy else "FULL_SHARD",
            "mixed_precision": found[1] if found else "DEFAULT",
            "activation_checkpointing": is_checkpointed(row),
            "activation_checkpointing_reentrant": False,
            "activation_cpu_offload": False,
            "limit_all_gathers": True,
        },
    }
    line = f"composer -n {gpus} train.py config.yaml\n"
    return {"run.sh": line, "config.yaml": yaml_text(config)}
