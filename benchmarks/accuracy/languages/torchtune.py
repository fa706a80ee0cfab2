"""torchtune: the YAML of a recipe and the ``tune run`` that starts it."""

from __future__ import annotations

import re
from typing import Any

from benchmarks.accuracy.facts import Row
from benchmarks.accuracy.languages.words import (
    arguments_of,
    gpus_of,
    is_checkpointed,
    lora_of,
    strategy_of,
    whole,
    yaml_text,
)

_ATTENTION = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "output_proj"}


def run(row: Row) -> dict[str, str]:
    method, gpus = str(row["method"]), gpus_of(row)
    kind = "full" if method == "full" else "lora"
    place = "single_device" if gpus == 1 else "distributed"
    ranks = f"--nproc_per_node {gpus} " if gpus > 1 else ""
    line = f"tune run {ranks}{kind}_finetune_{place} --config custom.yaml\n"
    return {"train.sh": line, "custom.yaml": yaml_text(_config(row, method))}


def _config(row: Row, method: str) -> dict[str, Any]:
    arguments, optimizer = arguments_of(row), str(row.get("optimizer"))
    packed = bool(row.get("packing"))
    config: dict[str, Any] = {
        "output_dir": "out",
        "model": _model(row, method),
        "tokenizer": {
            "_component_": "torchtune.models.llama3.llama3_tokenizer",
            "path": "tokenizer.model",
            "max_seq_len": row["seq_len"],
        },
        "checkpointer": {
            "_component_": "torchtune.training.FullModelHFCheckpointer",
            "checkpoint_dir": f"/tmp/{row['model']}",
        },
        "dataset": {"_component_": "torchtune.datasets.alpaca_dataset", "packed": packed},
        "optimizer": {"_component_": _optimizer(optimizer), "lr": 2e-5},
        "loss": {"_component_": _loss(arguments)},
        "batch_size": row["micro_batch"],
        "epochs": 1,
        "gradient_accumulation_steps": whole(row.get("grad_accum")),
        "compile": bool(row.get("compile")),
        "device": "cuda",
        "dtype": "bf16",
        "enable_activation_checkpointing": is_checkpointed(row),
    }
    if "fused" in optimizer:
        config["optimizer"]["fused"] = True
    if "in_bwd" in optimizer or arguments.get("optimizer_in_bwd"):
        config["optimizer_in_bwd"] = True
    if "activation_offloading" in arguments:
        config["enable_activation_offloading"] = arguments["activation_offloading"]
    if row.get("custom_sharded_layers"):
        config["custom_sharded_layers"] = row["custom_sharded_layers"]
    if "offload" in strategy_of(row):
        config["fsdp_cpu_offload"] = True
    return config


def _model(row: Row, method: str) -> dict[str, Any]:
    """``meta-llama/Llama-3.1-8B-Instruct`` is built by ``torchtune.models.llama3_1.llama3_1_8b``."""
    found = re.search(r"[Ll]lama-(\d)(?:\.(\d))?-(\d+)[bB]", str(row["model"]))
    assert found is not None
    family = f"llama{found[1]}_{found[2]}" if found[2] else f"llama{found[1]}"
    builder = f"{family}_{found[3]}b"
    if method == "full":
        return {"_component_": f"torchtune.models.{family}.{builder}"}
    lora = lora_of(row)
    targets = lora["targets"]
    return {
        "_component_": f"torchtune.models.{family}.{method}_{builder}",
        "lora_attn_modules": [_ATTENTION[t] for t in targets if t in _ATTENTION],
        "apply_lora_to_mlp": "mlp" in targets,
        "apply_lora_to_output": "output" in targets,
        "lora_rank": lora["r"],
        "lora_alpha": 2 * lora["r"],
    }


def _optimizer(text: str) -> str:
    if "Paged" in text:
        eight = "8bit" if "8bit" in text else ""
        return f"bitsandbytes.optim.PagedAdamW{eight}"
    if "8-bit" in text:
        return "bitsandbytes.optim.AdamW8bit"
    return "torch.optim.AdamW"


def _loss(arguments: Any) -> str:
    """``chunked_cross_entropy`` of a row is the table's word for the chunked class."""
    if arguments.get("chunked_cross_entropy"):
        return "torchtune.modules.loss.CEWithChunkedOutputLoss"
    return "torch.nn.CrossEntropyLoss"
