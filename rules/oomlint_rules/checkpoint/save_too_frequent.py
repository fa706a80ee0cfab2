"""A sharded model is gathered and written every few steps.

## What it finds

`save_steps` of ten or fewer (but not one save at the end of a debugging run) for a model that
is sharded over several GPUs, so that each save gathers it.

## Why it runs out of memory

Every save repeats the gather on the cards and the copy of the whole model on rank 0's host.
Each is a chance to meet a fragmented allocator or a full page cache, and between two saves
ten steps apart the machine does little else: a 70B checkpoint with optimizer states is
close to a terabyte.

## How to fix it

Save every few hundred steps and keep the newest two or three. The fix, 500 as is the default
of transformers, is shown and not applied: how much work may be lost is yours to say.

## When not to

Short debugging runs that test saving itself.

## Sources

* https://github.com/hiyouga/LLaMA-Factory/issues/3230 (`save_steps: 5`), https://github.com/hiyouga/LLaMA-Factory/issues/3752
* transformers 5.23 `training_args.py:1171` (`save_steps` 500)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import settled
from oomlint.linting.rule import KNOWN, Applicability, Finding, Proposal, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import ONE_SAMPLE, axolotl, example

_YAML = axolotl(
    "NousResearch/Llama-2-13b-hf",
    "sequence_len: 1024\n",
    ONE_SAMPLE,
    "save_steps: {every}\ndeepspeed: deepspeed_configs/zero3_bf16.json\n",
)

_FREQUENT = 10
_USUAL = 500


class SaveTooFrequent(Rule, code="OOM503", fixes=Applicability.SAFE, cost=1):
    summary = "a sharded model is gathered and saved every few steps"
    only_where = (Where(plan={f.save.every: KNOWN}),)

    bad = (example({"axolotl.yaml": _YAML.format(every=5)}),)
    good = (
        example({"axolotl.yaml": _YAML.format(every=500)}),
        example({"axolotl.yaml": _YAML.format(every=5) + "max_steps: 10\n"}, why="a debugging run"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = run.plan
        every, steps = plan.save.every, plan.total_steps
        if every is None or not 1 <= every <= _FREQUENT or not run.is_explicit(f.save.every):
            return
        if plan.save.strategy not in ("steps", None) or (steps is not None and steps <= 100):
            return
        whole = plan.trainable.method in ("full", "freeze")
        if plan.parallel.zero.stage == 3:
            gathers = whole or plan.parallel.zero.gather16_on_save is True
        else:
            gathers = whole and plan.parallel.backend in ("fsdp1", "fsdp2")
        if not gathers:
            return
        size = settled(run).estimate.disk_checkpoint_bytes
        what = f"a checkpoint of {gib(size)}" if whole and size else "a checkpoint"
        base = () if whole else ("of an adapter transformers 4 gathers the frozen base as well",)
        yield self.info(
            run,
            f"{what} is gathered and written every {'step' if every == 1 else f'{every:g} steps'}",
            at=f.save.every,
            details=(
                *base,
                (
                    "every save repeats the memory peak of gathering, and takes longer than the steps "
                    "between"
                ),
            ),
            resource="host",
            proposals=[Proposal.set(f"save every {_USUAL} steps", {f.save.every: _USUAL})],
        )
