"""A paged optimizer whose states fit neither on the card nor in host RAM.

## What it finds

`paged_adamw_32bit`, `paged_adamw_8bit` and their like, where the node's RAM is known and the
states of all its processes, with what else they hold, do not fit into it.

## Why it runs out of memory

bitsandbytes allocates paged states in CUDA's unified memory: the driver moves pages to the host
when the card is full. Host RAM has to hold them, for every process on the node: 8 bytes a trained
parameter in 32 bit, 2 in 8 bit. Eight processes that train 7B parameters each need 399 GiB in
32 bit and 101 in 8, beside the weights that each reads. Where neither has room the kernel kills a
process (exit code -9) or the driver thrashes.

## How to fix it

The 8-bit variant, at a quarter of the size; it changes numerics, so the fix is unsafe. Or shard
the states (ZeRO, FSDP with a plain optimizer), which divides them by the processes.

## When not to

With adapters the states are small; the rule is then silent. Pages move only as far as the card is
too small: a card with room keeps its states, and the host's share is an upper bound.

## Sources

* bitsandbytes `functional.py` (`get_paged`, `cudaMallocManaged`), documentation of paged optimizers
* Dettmers et al. 2023, arXiv 2305.14314 (QLoRA), section 3
* https://github.com/hiyouga/LLaMA-Factory/issues/4616
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import judge_host, relief
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, each, example

_AXOLOTL = AXOLOTL + "sequence_len: 512\noptimizer: {optimizer}\n"
_LF = LLAMA_FACTORY + "optim: {optimizer}\n"
_EIGHT_BIT = {"paged_adamw": "paged_adamw8bit", "paged_lion": "paged_lion8bit"}


class PagedOptimizerHostRam(Rule, code="OOM216", fixes=Applicability.UNSAFE, cost=7):
    summary = "a paged optimizer's states take more host RAM than there is"
    explains = ("offloaded_states",)
    only_where = (
        Where(
            plan={
                f.optimizer.kind: ("paged_adamw", "paged_adamw8bit", "paged_lion", "paged_lion8bit")
            }
        ),
    )

    bad = each(
        {"axolotl.yaml": _AXOLOTL, "train.yaml": _LF},
        optimizer=("paged_adamw_32bit", "paged_adamw_8bit"),
        on="8xA100-40GB, 256GiB",
    )
    good = (
        example(
            {"axolotl.yaml": _AXOLOTL.format(optimizer="paged_adamw_32bit")}, on="8xA100-40GB, 1TiB"
        ),
        example(
            {"axolotl.yaml": _AXOLOTL.format(optimizer="paged_adamw_32bit")},
            on="8xA100-40GB",
            why="the host's RAM is unknown",
        ),
        example(
            {"axolotl.yaml": _AXOLOTL.format(optimizer="adamw_torch_fused")},
            on="8xA100-40GB, 256GiB",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        kind = str(run.plan.optimizer.kind)
        judged = judge_host(run)
        if judged is None or judged.limit is None or not judged.overflows:
            return
        states = judged.components.get("offloaded_states") or 0
        if judged.predicted - states > judged.limit:
            return  # what else is there is too much by itself
        smaller = _EIGHT_BIT.get(kind)
        changes = {f.optimizer.kind: smaller}
        found = relief(run, changes, resource="host") if smaller else None
        details = [
            *judged.context,
            "they move there as the card fills, for every process of the node",
        ]
        if found is not None:
            details.append(f"in 8 bit {found.sentence}")
        yield self.warning(
            run,
            f"the states of a paged optimizer take {gib(states)} of host RAM",
            at=(f.optimizer.name, f.optimizer.kind),
            details=details,
            judged=judged,
            confidence="medium",
            proposals=[
                Proposal.set("keep the paged states in 8 bit", changes, Applicability.UNSAFE)
            ]
            if found is not None
            else (),
        )
