"""RAM that the workers of a DataLoader own, each beside the process that started it.

    python benchmarks/measure/workers.py [WORKERS] [fork|spawn]

torch, transformers and datasets must be installed. The process loads them with the Trainer, makes a tokenizer of 32,000
words and a tokenized data set that Arrow maps from a file, and goes over it with its workers. While these fetch, a line
for each way of fetching says from ``/proc/PID/smaps_rollup`` the median and the highest of ``private`` (dirty pages that
are the worker's alone) and of ``pss`` (with its share of what several have, the mapped file too), in MiB.

``rows`` pads tokenized samples; ``texts`` has the worker tokenize them; ``collected`` pads, after a full garbage
collection in each worker, which writes to every object that Python has and so copies their pages.
"""

from __future__ import annotations

import gc
import random
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import DataLoader

_ROWS, _TOKENS, _BATCH, _STEPS = 40_000, 1024, 8, 60


def main(workers: int, method: str) -> None:
    assert transformers.Trainer is not None  # loads it, and what it needs
    torch.set_num_threads(1)
    words = [f"word{n}" for n in range(32_000)]
    maker = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, "word0"))
    maker.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=maker, pad_token="word0")
    collator = transformers.DataCollatorWithPadding(tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        table = datasets.Dataset.from_generator(_rows, cache_dir=folder)
        table.save_to_disk(f"{folder}/set")
        mapped = datasets.load_from_disk(f"{folder}/set")

        def texts(batch: dict[str, Any]) -> Any:
            return tokenizer([" ".join(words[n] for n in row) for row in batch["input_ids"]])

        ways: dict[str, tuple[Any, Callable[[int], Any] | None]] = {
            "rows": (mapped, None),
            "texts": (mapped.with_transform(texts), None),
            "collected": (mapped, _collect),
        }
        print(f"{workers} workers, {method}; the process itself: {_read('self')['pss']:.0f} MiB")
        for name, (data, at_start) in ways.items():
            if method == "spawn" and name == "texts":
                continue  # a function of a function cannot be sent
            loader: Any = DataLoader(
                data, _BATCH, shuffle=True, num_workers=workers, collate_fn=collator,
                worker_init_fn=at_start, multiprocessing_context=method,
            )  # fmt: skip
            batches = iter(loader)
            for _ in range(_STEPS * workers // _BATCH):
                next(batches)
            read = [_read(str(worker.pid)) for worker in batches._workers]
            said = (
                f"{key} {statistics.median(each[key] for each in read):.0f} to "
                f"{max(each[key] for each in read):.0f}"
                for key in ("private", "pss")
            )
            print(f"  {name}: {', '.join(said)}", flush=True)
            del batches


def _rows() -> Iterator[dict[str, list[int]]]:
    chance = random.Random(0)
    for _ in range(_ROWS):
        yield {"input_ids": [chance.randrange(32_000) for _ in range(_TOKENS)]}


def _collect(_worker: int) -> None:
    gc.collect()


def _read(pid: str) -> dict[str, float]:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    mib = {key: int(kib) / 1024 for key, kib in re.findall(r"^(\w+): +(\d+) kB", text, re.M)}
    return {"private": mib["Private_Dirty"], "pss": mib["Pss"]}


if __name__ == "__main__":
    main(int((sys.argv[1:] or ["16"])[0]), (sys.argv[2:] or ["fork"])[0])
