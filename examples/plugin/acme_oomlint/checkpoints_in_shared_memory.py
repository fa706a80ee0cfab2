"""Checkpoints are written to a folder that lives in RAM.

## What it finds

An output folder below `/dev/shm` or `/run`. Both are tmpfs: their files are pages of RAM.

## Why it runs out of memory

What is written there counts as memory of the host (in a container or a SLURM job, of its limit)
until it is deleted, and cannot be dropped as a page cache can. Every checkpoint that is kept adds
its size: with Adam in fp32 beside bf16 weights about 14 bytes a parameter, 98 GB for 7B. The
shared memory that DataLoader workers and NCCL need is taken from the same place.

## How to fix it

Write to a disk. The fix names `outputs/` in the working directory; it is unsafe in the sense
that what is stored, is stored elsewhere.

## When not to

Runs that save nothing, or whose adapter is small and is copied away by a later step.

## Sources

* Linux, `Documentation/filesystems/tmpfs.rst`: "everything is stored in virtual memory"
* Linux, `Documentation/admin-guide/cgroup-v2.rst`, `memory.stat`: `shmem` counts tmpfs
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint import Applicability, Example, Finding, Proposal, Rule, Run, gib

_IN_RAM = ("/dev/shm", "/run")

_CONFIG = (
    "base_model: meta-llama/Llama-3.2-1B\n"
    "datasets:\n"
    "  - path: tatsu-lab/alpaca\n"
    "    type: alpaca\n"
    "sequence_len: 1024\n"
    "micro_batch_size: 1\n"
    "gradient_checkpointing: true\n"
    "bf16: true\n"
    "output_dir: {folder}\n"
)


class CheckpointsInSharedMemory(Rule, code="ACM501", fixes=Applicability.UNSAFE):
    summary = "checkpoints are written to a folder that lives in RAM"

    bad = (
        Example(
            files={"train.yaml": _CONFIG.format(folder="/dev/shm/llama")},
            fixed={"train.yaml": _CONFIG.format(folder="outputs/llama")},
        ),
        Example(files={"train.yaml": _CONFIG.format(folder="/run/user/1000/llama/")}),
    )
    good = (
        Example(files={"train.yaml": _CONFIG.format(folder="./outputs/llama")}),
        Example(files={"train.yaml": _CONFIG.format(folder="/runs/llama")}),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        save = run.plan.save
        if save.dir is None or save.strategy == "no":
            return
        place = next((p for p in _IN_RAM if f"{save.dir}/".startswith(f"{p}/")), None)
        if place is None:
            return
        folder = save.dir.rstrip("/").rpartition("/")[2]
        size = run.estimate.disk_checkpoint_bytes
        each = f", of {gib(size)}," if size is not None else ""
        yield self.warning(
            run,
            f"checkpoints go to {place}, which lives in RAM",
            at="save.dir",
            details=(f"each one that is kept{each} takes memory of the host until it is deleted",),
            resource="host",
            proposals=[
                Proposal.set(
                    f"write checkpoints to outputs/{folder}",
                    {"save.dir": f"outputs/{folder}"},
                    Applicability.UNSAFE,
                )
            ],
        )
