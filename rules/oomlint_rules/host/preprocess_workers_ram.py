"""So many processes prepare the data that their memory adds up.

## What it finds

`preprocessing_num_workers`, `dataset_processes` or `dataset_num_proc` above 64, or above the
number of the node's cores where that is known, if at 0.5 GiB each they take more than half of the
node's RAM, or more than 16 GiB where nobody says how much there is.

## Why it runs out of memory

Each process holds a batch of 1000 raw samples, what the tokenizer makes of it, and libraries
with thread pools of their own: 512 of them at 0.5 GiB are 256 GiB, with images many times
that. The kernel kills one: *One of the subprocesses has abruptly died during map operation*.

## How to fix it

As many processes as cores at most, 16 where that is not known. The data is the same.

## When not to

Where the machine has that many cores, and the samples are short text.

## Sources

* https://github.com/hiyouga/LLaMA-Factory/issues/5308 (256 and 512 processes, images) and /6762
* https://github.com/huggingface/datasets/issues/6814
* datasets `Dataset.map` (`batch_size=1000`)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.linting.rule import KNOWN, Applicability, Finding, Proposal, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, example

_MANY = 64
_USUAL = 16
# Bytes of a process, by the issues that the page names: 0.5 GiB, about what its libraries take.
_EACH = 2**29
# Where nobody says how much RAM there is: the least that machines for training are sold with, by our
# judgement.
_SMALL_RAM = 32 * 2**30
_FIELD = f.data.preprocess_workers


class PreprocessWorkersRam(Rule, code="OOM407", fixes=Applicability.SAFE):
    summary = "so many processes prepare the data that their memory adds up"
    only_where = (Where(plan={f.data.preprocess_workers: KNOWN}),)

    bad = (
        example(
            {"train.yaml": f"{LLAMA_FACTORY}preprocessing_num_workers: 512\n"},
            why="how many are enough only the machine can tell",
        ),
        example(
            {"train.yaml": f"{AXOLOTL}dataset_processes: 128\n"},
            {"train.yaml": f"{AXOLOTL}dataset_processes: 32\n"},
            values={f.host.cpus: 32},
        ),
    )
    good = (
        example({"train.yaml": f"{LLAMA_FACTORY}preprocessing_num_workers: 16\n"}),
        example({"train.yaml": f"{AXOLOTL}dataset_processes: 128\n"}, values={f.host.cpus: 192}),
        example(
            {"train.yaml": f"{LLAMA_FACTORY}preprocessing_num_workers: 128\n"},
            why="64 GiB are little of the RAM of such a node",
            values={f.host.ram_gib: 1024},
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        workers, cores = run.plan.data.preprocess_workers, run.plan.host.cpus
        if workers is None or workers <= (cores or _MANY) or not run.is_explicit(_FIELD):
            return
        if workers * _EACH <= (run.limits.host_bytes or _SMALL_RAM) / 2:
            return
        fewer = cores or _USUAL
        has = f"the run has {fewer} core{'s' * (fewer > 1)}"
        have = has if cores else "few machines have as many cores"
        yield self.warning(
            run,
            f"{workers} processes prepare the data, and {have}",
            at=_FIELD,
            details=(
                "each holds a batch of samples and its tokens",
                "the kernel kills one when the node's RAM is full",
            ),
            confidence="medium",
            resource="host",
            proposals=[
                Proposal.set(
                    f"use {fewer} process{'es' * (fewer > 1)}",
                    {_FIELD: fewer},
                    # How many are enough only the machine can tell.
                    Applicability.SAFE if cores else Applicability.DISPLAY,
                )
            ],
        )
