"""prime-rl: the options of one of its two trainers, started alone, and the ``torchrun`` that starts it."""

from __future__ import annotations

from benchmarks.accuracy.facts import Row
from benchmarks.accuracy.languages.words import gpus_of, lora_of, whole


def train(row: Row) -> dict[str, str]:
    """The line of its benchmarks/scripts/run_single_benchmark.py at d8f290ef: an option without a value turns its section on."""
    task, gpus = str(row["task"]), gpus_of(row)
    # A micro batch is a row of `seq_len` tokens; the script counts those of all ranks.
    samples = whole(row.get("grad_accum")) * gpus
    offloads = bool(row.get("activation_offload"))
    words = [
        f"uv run torchrun --nproc-per-node={gpus} src/prime_rl/trainer/{task}/train.py",
        f"--model.name {row['model']} --model.seq-len {row['seq_len']} --model.attn {row['attention']}",
        f"--bench.output-json out.json --model.compile --model.{'ac-offloading' if offloads else 'ac'}",
    ]
    if lora_of(row):
        words.append(f"--model.lora.rank {lora_of(row)['r']} --max-concurrent-runs 4")
    if task == "sft":
        words.append(
            f"--data.type fake --data.batch-size {samples} --data.seq-len {row['seq_len']}"
        )
    else:
        words.append(f"--data.fake.batch-size {samples}")
    return {"run.sh": " ".join(words) + "\n"}
