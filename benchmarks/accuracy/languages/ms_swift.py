"""ms-swift: the command line of ``swift`` or ``megatron``, with the environment that counts its GPUs."""

from __future__ import annotations

import json
import re
from typing import Any

from benchmarks.accuracy.facts import Row
from benchmarks.accuracy.languages.words import (
    arguments_of,
    command,
    gpus_of,
    is_checkpointed,
    lora_of,
    strategy_of,
    whole,
)

_CONFIG = "train.sh"
# What a launcher in front of the program takes, which stands among the arguments of some rows.
_OF_LAUNCHER = ("nproc_per_node", "master_port")


def current_command(row: Row) -> dict[str, str]:
    """From 3.0 on: the arguments of the row's script, else those that its fields say."""
    arguments = as_measured(row) if arguments_of(row) else _current_fields(row)
    strategy = strategy_of(row)
    if "config_file" in arguments:
        return _under_accelerate(row, "swift/cli/sft.py", arguments)
    program = "megatron" if "megatron" in f"{row.get('framework')} {strategy}" else "swift"
    processes = 1 if "device_map" in strategy else gpus_of(row)
    return {_CONFIG: _line(row, program, processes, arguments)}


def older_command(row: Row) -> dict[str, str]:
    """Up to 2.6."""
    arguments = as_measured(row) if arguments_of(row) else _older_fields(row)
    said = arguments.get("nproc_per_node")
    spreads = "device_map" in strategy_of(row)
    processes = whole(said) if said else 1 if spreads else gpus_of(row)
    arguments = {k: v for k, v in arguments.items() if k not in _OF_LAUNCHER}
    if "config_file" in arguments:
        return _under_accelerate(row, "llm_sft.py", arguments)
    return {_CONFIG: _line(row, "swift", processes, arguments)}


# What examples/train/multi-gpu/*/fsdp*.json of ms-swift 3602360a say beside version and offloading.
_SHARDED = {
    "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "fsdp_cpu_ram_efficient_loading": True,
    "fsdp_state_dict_type": "FULL_STATE_DICT",
}


def _under_accelerate(row: Row, script: str, arguments: dict[str, Any]) -> dict[str, str]:
    """A script that accelerate launches, whose file says in its name what it does (``fsdp_offload.json``)."""
    name = str(arguments["config_file"])
    sharding = {**_SHARDED, "fsdp_offload_params": "offload" in name}
    if "fsdp2" in name:
        sharding |= {
            "fsdp_version": 2, "fsdp_reshard_after_forward": True, "fsdp_activation_checkpointing": True,
        }  # fmt: skip
    else:
        sharding |= {"fsdp_sharding_strategy": "FULL_SHARD", "fsdp_use_orig_params": False}
    config = {
        "distributed_type": "FSDP", "fsdp_config": sharding,
        "mixed_precision": "bf16" if "fsdp2" in name else "no",
        "num_machines": 1, "num_processes": gpus_of(row),
    }  # fmt: skip
    said = {key: value for key, value in arguments.items() if key != "config_file"}
    line = command(["accelerate", "launch", "--config_file", "accelerate.json", script], said)
    return {_CONFIG: line, "accelerate.json": json.dumps(config, indent=1) + "\n"}


def _line(row: Row, program: str, processes: int, arguments: dict[str, Any]) -> str:
    words = [f"CUDA_VISIBLE_DEVICES={','.join(map(str, range(gpus_of(row))))}"]
    if processes > 1:
        words.append(f"NPROC_PER_NODE={processes}")
    return command([*words, program, "rlhf" if "rlhf_type" in arguments else "sft"], arguments)


def as_measured(row: Row) -> dict[str, Any]:
    """The arguments of the variant that was measured.

    Where a script's comment gives figures for several variants ("Not using use_liger_kernel: 4 *
    54GB"), the script's text is one of them and the row's own fields say which was measured.
    """
    raw = dict(arguments_of(row))
    if not row.get("is_one_of_several"):
        return raw
    notes = str(row.get("notes"))
    if row.get("method") == "full" and "full" in notes:
        raw = {k: v for k, v in raw.items() if not k.startswith(("lora_", "target_modules"))}
        raw["tuner_type"] = "full"
    if row.get("gradient_checkpointing") is False:
        raw["gradient_checkpointing"] = "false"
    if "vit gc false" in notes:
        raw["vit_gradient_checkpointing"] = "false"
    if "padding_free" in notes:
        raw["padding_free"] = "true"
    is_off = {
        "use_liger_kernel": not row.get("liger"),
        "packing": not row.get("packing"),
        "padding_free": "without padding_free" in notes,
    }
    raw = {k: v for k, v in raw.items() if not is_off.get(k)}
    if "muon" in raw.get("optimizer", "") and "muon" not in str(row.get("optimizer")):
        del raw["optimizer"]
    if "BF16 variant" in notes:
        raw = {k: v for k, v in raw.items() if not k.startswith("fp8_")}
    return raw


def _zero(row: Row) -> str | None:
    found = re.search(r"zero_?-?(\d)", strategy_of(row))
    return f"zero{found[1]}" if found else None


def _current_fields(row: Row) -> dict[str, Any]:
    """A row without a script of its own."""
    if "megatron" in strategy_of(row):
        parallel = row.get("parallel") or {}
        return {
            "model": row["model"], "tuner_type": row["method"], "torch_dtype": "bfloat16",
            "tensor_model_parallel_size": parallel.get("tp"),
            "sequence_parallel": "true" if (parallel.get("tp") or 1) > 1 else None,
            "micro_batch_size": row["micro_batch"], "max_length": row["seq_len"],
            "packing": str(bool(row.get("packing"))).lower(),
            "recompute_granularity": row.get("gradient_checkpointing"),
        }  # fmt: skip
    return {
        "model": row["model"], "tuner_type": row["method"], "torch_dtype": "bfloat16",
        "attn_impl": row.get("attention"), "deepspeed": _zero(row),
        "per_device_train_batch_size": row["micro_batch"],
        "gradient_accumulation_steps": row.get("grad_accum"), "max_length": row["seq_len"],
        "packing": str(bool(row.get("packing"))).lower(),
        "gradient_checkpointing": str(is_checkpointed(row)).lower(),
    }  # fmt: skip


# What the table of tuners calls a setting, and its option (scripts/benchmark/config/tuner.json).
_TUNER_OPTIONS = {
    "rank": "lora_rank", "target": "lora_target_modules", "alpha": "lora_alpha",
    "lr_ratio": "lora_lr_ratio", "num_blocks": "llamapro_num_new_blocks",
}  # fmt: skip
_BITS = {"int4": 4, "int8": 8}


def _older_fields(row: Row) -> dict[str, Any]:
    lora, method = lora_of(row), str(row["method"])
    is_full = method == "full"
    targets = lora.get("targets")
    attention = str(row.get("attention"))
    arguments: dict[str, Any] = {
        "model_id_or_path": row["model"],
        "sft_type": {"qlora": "lora"}.get(method, method),
        "dtype": "bf16" if is_full else "AUTO",
        "max_length": row["seq_len"],
        "batch_size": row["micro_batch"],
        "gradient_accumulation_steps": row.get("grad_accum"),
        "gradient_checkpointing": str(is_checkpointed(row)).lower(),
        "use_flash_attn": str("flash" in attention and "no flash" not in attention).lower(),
        "lora_rank": lora.get("r"),
        "lora_target_modules": "ALL" if targets == ["all-linear"] else targets,
        "quantization_bit": _quantized_on_load(row),
        "deepspeed": f"default-{_zero(row)}" if _zero(row) else None,
    }
    return {**arguments, **_tuner_settings(str(lora.get("desc") or ""))}


def _quantized_on_load(row: Row) -> int | None:
    text = str(row.get("quant") or "")
    return next((n for word, n in _BITS.items() if word in text and "bnb" in text), None) or (
        4 if text == "bnb-4bit" else None
    )


def _tuner_settings(text: str) -> dict[str, Any]:
    """``rank=8/target=ALL`` as options."""
    pairs = [part.split("=", 1) for part in text.split("/") if "=" in part]
    said = {_TUNER_OPTIONS.get(k, k): v.lower() if v in ("True", "False") else v for k, v in pairs}
    if any(name.startswith("galore") for name in said):
        said["use_galore"] = "true"
    return {name: value for name, value in said.items() if value != "None"}
