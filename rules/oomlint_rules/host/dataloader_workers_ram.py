"""So many processes load batches that their memory adds up.

## What it finds

`dataloader_num_workers` times the GPUs of a node above the number of its cores, where that is
known, and of 128 and more where it is not. Where the RAM of a node is known and the prediction leaves
room in it, or where nothing is predicted and a GiB for each process is less than half of it, this is a
note: what a prediction does not see are copies of a data set of Python objects.

## Why it runs out of memory

Every rank starts its own. Each process holds `prefetch_factor` batches, and copies the Python
objects of the data set page by page as it counts references to them: with eight ranks and 32
workers these are 256 processes, whose memory grows for hours until the kernel kills one.

## How to fix it

Two to four workers a rank. The batches are the same. The fix is safe where the node's cores are known, or its RAM is
predicted to fill up.

## When not to

For data that is heavy to decode, such as video, on machines with cores and RAM to match.

## Sources

* https://github.com/pytorch/pytorch/issues/13246 (copy on write of data sets in workers)
* https://github.com/hiyouga/LLaMA-Factory/issues/9258 (16 workers)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import judge_host, settled
from oomlint.linting.rule import KNOWN, Applicability, Finding, Proposal, Rule, Severity, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import AXOLOTL, command, example, mended

_MANY = 128
_ENOUGH = 4
# Bytes that a worker with its libraries and some batches may come to: our judgement, no measurement;
# it only tells a note from a warning.
_EACH = 2**30
_FIELD = f.data.workers


class DataloaderWorkersRam(Rule, code="OOM408", fixes=Applicability.SAFE):
    summary = "so many processes load batches that their memory adds up"
    only_where = (Where(plan={f.data.workers: KNOWN}),)
    explains = ("dataloader",)

    bad = (
        mended("train.sh", command("--dataloader_num_workers {workers}"), workers=(32, 4)),
        example(
            {"train.yaml": f"{AXOLOTL}dataloader_num_workers: 8\n"},
            {"train.yaml": f"{AXOLOTL}dataloader_num_workers: 4\n"},
            on="8xA100-80GB",
            values={f.host.cpus: 48},
        ),
    )
    good = (
        example({"train.sh": command("--dataloader_num_workers 8")}),
        example(
            {"train.yaml": f"{AXOLOTL}dataloader_num_workers: 8\n"},
            on="8xA100-80GB",
            values={f.host.cpus: 96},
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        workers, cores = run.plan.data.workers, run.plan.host.cpus
        ranks = settled(run).plan.parallel.gpus_per_node or 1
        if workers is None or workers <= _ENOUGH or not run.is_explicit(_FIELD):
            return
        total = workers * ranks
        if total <= cores if cores else total < _MANY:
            return
        have = (
            f"the run has {cores} core{'s' * (cores > 1)}"
            if cores
            else "few machines have as many cores to spare"
        )
        are_known = run.plan.parallel.gpus_per_node is not None
        judgement, ram = judge_host(run), run.limits.host_bytes
        if judgement is None:
            has_room = ram is not None and total * _EACH <= ram / 2
        else:
            has_room = judgement.limit is not None and not judgement.is_problem
        is_certain = are_known and not has_room and (bool(cores) or total >= 2 * _MANY)
        node = f"a node of {ranks} GPU{'s' * (ranks > 1)}"
        yield self.finding(
            run,
            Severity.WARNING if is_certain else Severity.INFO,
            f"{workers} workers a rank are {total} processes on {node}",
            at=_FIELD,
            details=(
                *(() if are_known else ("how many GPUs the node has nobody says",)),
                have,
                f"their batches and copies of the data set {'may ' * has_room}fill the node's RAM",
            ),
            confidence="medium",
            resource="host",
            # Samples that are decoded as they are read may need the workers that are there, and where neither cores nor
            # RAM are known nobody has seen them fail.
            proposals=[
                Proposal.set(
                    f"use {_ENOUGH} workers a rank",
                    {_FIELD: _ENOUGH},
                    Applicability.SAFE
                    if is_certain and (cores or (judgement is not None and judgement.is_problem))
                    else Applicability.UNSAFE,
                )
            ],
        )
