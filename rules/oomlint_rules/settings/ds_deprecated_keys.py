"""Keys of a DeepSpeed config that newer versions read otherwise, or not at all.

## What it finds

In `zero_optimization`: `cpu_offload`, `cpu_offload_param` and `cpu_offload_use_pin_memory`;
`elastic_checkpoint` with stage 3; and `"zero_optimization": true` in place of an object.

## Why it runs out of memory

`cpu_offload: true` still means an optimizer in host RAM (12 bytes a parameter), but leaves
everything else at its default: pinned memory, no NVMe. `cpu_offload_use_pin_memory` is read
by nothing, so the buffers are pinned whatever it says. `true` is stage 1: gradients and
parameters are not divided, 4 bytes a parameter on each card.

## How to fix it

Write `offload_optimizer: {"device": "cpu"}`, with `pin_memory` inside it, and
`"zero_optimization": {"stage": 1}`. The fixes do that, and change nothing else.

## When not to

With a DeepSpeed so old that it knows only those names.

## Sources

* DeepSpeed edaa7221 `runtime/zero/config.py:181-202` (deprecated parameters), `:33`
  (`read_zero_config_deprecated`), `:396` (`elastic_checkpoint`)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oomlint.dialects.deepspeed.keys import ds
from oomlint.linting.rule import (
    Applicability,
    Finding,
    Proposal,
    RemoveKey,
    Rule,
    SetFields,
    Where,
)
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import LLAMA_FACTORY, deepspeed, example
from oomlint_rules._fixes import removal

_OLD = (
    (ds.cpu_offload, f.offload.optimizer, "offload_optimizer"),
    (ds.cpu_offload_param, f.offload.params, "offload_param"),
)


class DsDeprecatedKeys(Rule, code="OOM809", fixes=Applicability.SAFE):
    summary = "keys of a DeepSpeed config that newer versions read otherwise"
    only_where = (
        Where(
            said=(
                *(old for old, _field, _key in _OLD),
                ds.old_pin_memory,
                ds.zero_flag,
                ds.elastic_checkpoint,
            )
        ),
    )

    bad = (
        example(
            {"ds.json": deepspeed('"stage": 2, "cpu_offload": true')},
            {"ds.json": deepspeed('"stage": 2, "offload_optimizer": {\n    "device": "cpu"\n  }')},
        ),
        example(
            {
                "train.yaml": f"{LLAMA_FACTORY}deepspeed: ds.json\n",
                "ds.json": deepspeed(
                    '"stage": 2, "offload_optimizer": {"device": "cpu"}, '
                    '"cpu_offload_use_pin_memory": false'
                ),
            },
            {"ds.json": deepspeed('"stage": 2, "offload_optimizer": {"device": "cpu"}')},
        ),
        example(
            {
                "ds.json": deepspeed("").replace(
                    '"zero_optimization": {}', '"zero_optimization": true'
                )
            }
        ),
    )
    good = (example({"ds.json": deepspeed('"stage": 2, "offload_optimizer": {"device": "cpu"}')}),)

    def check(self, run: Run) -> Iterable[Finding]:
        for old, field, key in _OLD:
            if old in run.settings and run.is_explicit(old):
                yield self._offload(run, old, field, key)
        if run.is_explicit(ds.old_pin_memory):
            yield self.info(
                run,
                f"{run.key('ds.old_pin_memory')} is read by nothing any more",
                at=ds.old_pin_memory,
                details=(
                    "pin_memory belongs into offload_optimizer and offload_param",
                    "it is true by default",
                ),
                proposals=removal("remove it", run.origin(ds.old_pin_memory)),
            )
        flag = run.settings.get(ds.zero_flag)
        if flag is not None and flag.value is True:
            yield self.warning(
                run,
                '"zero_optimization": true is ZeRO stage 1',
                at=ds.zero_flag,
                details=(
                    "that divides the optimizer states only",
                    'write {"stage": 2} or 3 if more was meant',
                ),
            )
        elastic = run.settings.get(ds.elastic_checkpoint)
        if elastic is not None and elastic.value is True and run.plan.parallel.zero.stage == 3:
            yield self.info(
                run,
                "elastic_checkpoint has no effect under ZeRO stage 3 any more",
                at=ds.elastic_checkpoint,
                details=("DeepSpeed's universal checkpoints took its place",),
                proposals=removal("remove elastic_checkpoint", elastic.origin),
            )

    def _offload(self, run: Run, old: str, field: Any, key: str) -> Finding:
        setting = run.settings[old]
        block, entry = setting.origin.block, setting.origin.entry
        proposals = []
        if block is not None and entry is not None:
            wish = SetFields({field: setting.value})
            title = f"write {key} instead"
            proposals.append(Proposal(title, (RemoveKey(block, entry), wish)))
        return self.info(
            run,
            f"{run.key(old)} is an old name of {key}",
            at=old,
            details=(f"{key} says where to and how, pinned or not",),
            proposals=proposals,
        )
