"""What loading a checkpoint takes of a process's RAM, by the dtype that it is loaded in.

    python benchmarks/measure/loading.py FOLDER

Writes a model of 1.5 billion weights in bf16 to FOLDER, where none is, and loads it in a process of its own for each dtype
(transformers as installed), asking ``/proc/self/status`` meanwhile: ``RssAnon`` is the process's own, ``RssFile`` pages of
files, which other ranks share and the kernel takes back.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

SIZES = {
    "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
    "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
}  # fmt: skip


def resident() -> dict[str, float]:
    """GiB of this process by kind."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    found = (line.split(":") for line in lines if line.startswith(("RssAnon", "RssFile")))
    return {name: int(kib.split()[0]) / 2**20 for name, kib in found}


def write(folder: str) -> None:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.set_default_dtype(torch.bfloat16)
    Qwen2ForCausalLM(Qwen2Config(**SIZES)).save_pretrained(folder, max_shard_size="1GB")


def load(folder: str, dtype: str) -> None:
    import torch
    import transformers

    before, highest, done = resident(), resident(), threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            for name, now in resident().items():
                highest[name] = max(highest[name], now)

    watcher = threading.Thread(target=watch)
    watcher.start()
    named = {"torch_dtype": getattr(torch, dtype)}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, **named)
    done.set()
    watcher.join()
    weights = sum(p.numel() * p.element_size() for p in model.parameters()) / 2**30
    taken = {name: round(highest[name] - before[name], 2) for name in highest}
    print(
        f"transformers {transformers.__version__}, {dtype}: weights {weights:.2f} GiB, taken {taken}"
    )


def main(folder: str, dtype: str | None = None) -> None:
    if dtype:
        load(folder, dtype)
        return
    if not Path(folder, "config.json").exists():
        write(folder)
    for each in ("float32", "float16", "bfloat16"):
        subprocess.run([sys.executable, __file__, folder, each], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
