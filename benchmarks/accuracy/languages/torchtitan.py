"""torchtitan: the TOML of its first two years, and the function of a registry that took its place."""

from __future__ import annotations

from typing import Any

from benchmarks.accuracy.facts import Row
from benchmarks.accuracy.languages.words import gpus_of, toml_text, whole


def _flavor(row: Row) -> str:
    return str(row["model"]).rpartition("-")[2]


def _degrees(row: Row) -> dict[str, int]:
    said = row.get("parallel") or {}
    return {name: whole(said.get(name)) for name in ("dp_shard", "tp", "pp", "cp")}


def _launched(row: Row, words: str) -> str:
    return f"torchrun --nproc_per_node={min(8, gpus_of(row))} --nnodes={-(-gpus_of(row) // 8)} {words}\n"


def early(row: Row) -> dict[str, str]:
    """The TOML of 2024, whose degrees stand under training and experimental."""
    degrees = _degrees(row)
    config = {
        "model": {"name": "llama3", "flavor": _flavor(row)},
        "optimizer": {"name": "AdamW", "fused": True},
        "training": {
            "batch_size": row["micro_batch"],
            "seq_len": row["seq_len"],
            "data_parallel_shard_degree": degrees["dp_shard"],
            "tensor_parallel_degree": degrees["tp"],
            "compile": bool(row.get("compile")),
        },
        "experimental": {
            "context_parallel_degree": degrees["cp"],
            "pipeline_parallel_degree": degrees["pp"],
            **_schedule(row, "pipeline_parallel_schedule"),
        },
        "float8": {"enable_float8_linear": "float8" in str(row.get("dtype"))},
        "activation_checkpoint": _checkpoint(row),
    }
    return _toml(row, config)


def config(row: Row) -> dict[str, str]:
    """The TOML from v0.1.0 on."""
    degrees = _degrees(row)
    float8 = "float8" in str(row.get("dtype"))
    config = {
        "model": {
            "name": "llama3",
            "flavor": _flavor(row),
            "converters": ["float8"] if float8 else [],
        },
        "optimizer": {"name": "AdamW"},
        "training": {
            "local_batch_size": row["micro_batch"],
            "seq_len": row["seq_len"],
            "compile": bool(row.get("compile")),
        },
        "parallelism": {
            "data_parallel_shard_degree": degrees["dp_shard"],
            "tensor_parallel_degree": degrees["tp"],
            "pipeline_parallel_degree": degrees["pp"],
            "context_parallel_degree": degrees["cp"],
            **_schedule(row, "pipeline_parallel_schedule"),
        },
        "activation_checkpoint": _checkpoint(row),
    }
    return _toml(row, config)


def registry(row: Row) -> dict[str, str]:
    """A function of a registry, as of 2026."""
    family = str(row["model"]).split("/")[1].split("-")[0].lower()
    function = f"""\
def measured():
    return Trainer.Config(
        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config()),
        model_spec=model_registry({_flavor(row)!r}),
        optimizer=default_adamw(lr=3e-4),
        training=TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank={row["micro_batch"]} * {row["seq_len"]},
            max_context_length={row["seq_len"]},
        ),
        parallelism=ParallelismConfig(data_parallel_shard_degree={_degrees(row)["dp_shard"]}),
        activation_checkpoint=SelectiveAC.Config(),
        compile=CompileConfig(enable={bool(row.get("compile"))}),
    )
"""
    line = _launched(row, f"-m torchtitan.train --module {family} --config measured")
    imports = "from torchtitan.trainer import Trainer\n\nfrom . import model_registry\n\n\n"
    return {
        "run.sh": line,
        f"torchtitan/models/{family}/config_registry.py": imports + function,
    }


def _schedule(row: Row, key: str) -> dict[str, str]:
    name = (row.get("parallel") or {}).get("schedule")
    return {key: str(name)} if name else {}


def _checkpoint(row: Row) -> dict[str, str]:
    text = str(row.get("gradient_checkpointing")).lower()
    if text.startswith("selective"):
        return {"mode": "selective", "selective_ac_option": "op"}
    return {"mode": "full" if text in ("full", "true") else "none"}


def _toml(row: Row, config: dict[str, dict[str, Any]]) -> dict[str, str]:
    words = "-m torchtitan.train --job.config_file train.toml"
    return {"run.sh": _launched(row, words), "train.toml": toml_text(config)}
