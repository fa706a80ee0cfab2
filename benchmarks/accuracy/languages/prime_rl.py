"""prime-rl: the TOML of one of its two trainers, started alone, and the ``torchrun`` that starts it."""

from __future__ import annotations

from benchmarks.accuracy.facts import Row
from benchmarks.accuracy.languages.words import gpus_of, lora_of, toml_text, whole


def train(row: Row) -> dict[str, str]:
    """``--model.ac`` and the like, said in a file: a section that is there is on."""
    task, gpus = str(row["task"]), gpus_of(row)
    model: dict[str, object] = {
        "name": row["model"],
        "seq_len": row["seq_len"],
        "attn": row["attention"],
        "compile": {},
        "ac_offloading" if row.get("activation_offload") else "ac": {},
    }
    if lora_of(row):
        model["lora"] = {"rank": lora_of(row)["r"]}
    # A micro batch is a row of `seq_len` tokens; the script counts those of all ranks.
    samples = whole(row.get("grad_accum")) * gpus
    data: dict[str, object] = {"fake": {"batch_size": samples}}
    if task == "sft":
        data = {"type": "fake", "batch_size": samples, "seq_len": row["seq_len"]}
    config: dict[str, object] = {
        "model": model,
        "data": data,
        "optim": {"type": "adamw"},
        "monitors": {"file": {"path": "metrics.jsonl"}},
    }
    if lora_of(row) and task == "rl":
        config = {"max_concurrent_runs": row["adapters"], **config}
    script = f"src/prime_rl/trainer/{task}/train.py"
    line = f"uv run torchrun --nproc-per-node={gpus} {script} @ bench.toml\n"
    return {"run.sh": line, "bench.toml": toml_text(config)}
