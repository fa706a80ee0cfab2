"""Looking for a batch size that fits, which ZeRO-3 cannot do.

## What it finds

`auto_find_batch_size` together with ZeRO stage 3.

## Why it runs out of memory

transformers raises a `ValueError` when the Trainer is made. Elsewhere the option halves the
micro batch after each out-of-memory error, but a model that ZeRO-3 has divided (16 bytes a
parameter over all ranks) cannot be taken apart and built anew.

## How to fix it

Switch it off and choose the micro batch by the prediction; `oomlint fit` does so.

## When not to

With ZeRO-1, ZeRO-2, FSDP or DDP the option is allowed, though it changes the global batch.

## Sources

* transformers 5.23 `trainer.py:898-905` and `:3304`
* https://github.com/huggingface/transformers/issues/32215
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._conditions import UNDER_ZERO_3
from oomlint_rules._examples import AXOLOTL, command, deepspeed, example
from oomlint_rules.settings._trainer import trainer_compares

_AXOLOTL = f"{AXOLOTL}auto_find_batch_size: true\ndeepspeed: ds.json\n"


class AutoFindBatchSizeZero3(Rule, code="OOM813", fixes=Applicability.SAFE):
    summary = "a batch size cannot be looked for under ZeRO-3"
    only_where = (Where(plan={f.batch.auto_micro: (True,), **UNDER_ZERO_3}),)

    bad = (
        example(
            {"train.yaml": _AXOLOTL, "ds.json": deepspeed('"stage": 3')},
            {"train.yaml": _AXOLOTL.replace("size: true", "size: false")},
        ),
        example(
            {
                "train.sh": command("--deepspeed ds.json --auto_find_batch_size True"),
                "ds.json": deepspeed('"stage": 3'),
            },
            {"train.sh": command("--deepspeed ds.json --auto_find_batch_size False")},
        ),
    )
    good = (example({"train.yaml": _AXOLOTL, "ds.json": deepspeed('"stage": 2')}),)

    def check(self, run: Run) -> Iterable[Finding]:
        if not trainer_compares(run):
            return
        key = run.key(f.batch.auto_micro)
        yield self.error(
            run,
            f"transformers stops with an error at {key} under ZeRO stage 3",
            at=f.batch.auto_micro,
            proposals=[Proposal.set(f"switch {key} off", {f.batch.auto_micro: False})],
            notes=[self.note(run, f.parallel.zero.stage, "the stage is 3")],
        )
