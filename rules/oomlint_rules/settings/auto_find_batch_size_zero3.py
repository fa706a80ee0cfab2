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

With ZeRO-1, ZeRO-2, FSDP or DDP the option is allowed, though it changes the global batch. Up to transformers 4.44 nothing stops
with ZeRO-3 either: it is a remark where no file tells the release.

## Sources

* transformers 5.23 `trainer.py:898-905` and `:3304`; 4.44.2 and 4.45.0 `trainer.py`
* https://github.com/huggingface/transformers/issues/32215
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Severity, When, Where
from oomlint.plan.fields import f
from oomlint.plan.library_changes import LibraryChange
from oomlint.runs.run import Run
from oomlint_rules._conditions import UNDER_ZERO_3
from oomlint_rules._examples import AXOLOTL, command, deepspeed, example
from oomlint_rules.settings._trainer import trainer_compares

_AXOLOTL = f"{AXOLOTL}auto_find_batch_size: true\ndeepspeed: ds.json\n"

STOPS = LibraryChange(
    "transformers",
    (4, 45),
    "nothing stops at auto_find_batch_size under ZeRO stage 3",
    "transformers 4.44.2 and 4.45.0 trainer.py create_accelerator_and_postprocess",
)


class AutoFindBatchSizeZero3(Rule, code="OOM813", may_end=True, fixes=Applicability.SAFE):
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
                "requirements.txt": "transformers==4.57.1\n",
            },
            {"train.sh": command("--deepspeed ds.json --auto_find_batch_size False")},
        ),
    )
    good = (
        example({"train.yaml": _AXOLOTL, "ds.json": deepspeed('"stage": 2')}),
        example(
            {
                "train.sh": command("--deepspeed ds.json --auto_find_batch_size True"),
                "ds.json": deepspeed('"stage": 3'),
                "requirements.txt": "transformers==4.44.2\n",
            },
            why="transformers does not refuse it before 4.45",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        if not trainer_compares(run):
            return
        stops = run.cells.made(STOPS)
        if stops is False:
            return
        key = run.key(f.batch.auto_micro)
        yield self.finding(
            run,
            Severity.ERROR if stops else Severity.INFO,
            f"transformers stops with an error at {key} under ZeRO stage 3",
            at=f.batch.auto_micro,
            details=()
            if stops
            else ("no file pins transformers, and before 4.45 nothing stops there",),
            proposals=[Proposal.set(f"switch {key} off", {f.batch.auto_micro: False})],
            notes=[self.note(run, f.parallel.zero.stage, "the stage is 3")],
            ends=When.LOADED,
        )
