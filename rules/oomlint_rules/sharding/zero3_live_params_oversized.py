"""ZeRO-3 keeps more gathered parameters than a small card has room for.

## What it finds

`stage3_max_live_parameters` and `stage3_max_reuse_distance` (1e9 by default) under ZeRO stage 3
in a run that does not fit, and that lower values bring down.

## Why it runs out of memory

Up to that many parameters stay gathered after their use, in case they are needed again: 1e9
of them are 1.9 GiB in bf16 on each card, whatever the number of cards.

## How to fix it

3e8 for both. Layers are then gathered once more in the backward pass, which costs network
time; the result is the same. The lowest sensible value is the largest layer.

## When not to

On large cards, and where the network is slow.

## Sources

* DeepSpeed edaa7221 `runtime/zero/config.py:238` and `:244`
* Axolotl 067b021c `deepspeed_configs/zero3.json`, which sets both to 0
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import relief
from oomlint.plan.fields import f
from oomlint.rule import Applicability, Example, Finding, Proposal, Rule, Where, gib
from oomlint.run import Run
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, deepspeed

_LOWER = 300_000_000
_LIVE = f.parallel.zero.max_live_params
_REUSE = f.parallel.zero.max_reuse_distance

_ZERO = (
    '"stage": 3, "stage3_max_live_parameters": {size}, "stage3_max_reuse_distance": {size}, '
    '"stage3_gather_16bit_weights_on_model_save": true'
)
_AXOLOTL = f"{AXOLOTL}sequence_len: 4096\ndeepspeed: ds.json\n"


class Zero3LiveParamsOversized(Rule):
    code = "OOM307"
    name = "zero3-live-params-oversized"
    summary = "ZeRO-3 keeps more gathered parameters than a small card has room for"
    applicability = Applicability.SAFE
    explains = ("communication",)
    cost = 3
    only_where = (
        Where(plan={f.parallel.backend: ("zero",), f.parallel.zero.stage: (3,)}, has_card=True),
    )

    bad = (
        Example(
            files={"train.yaml": _AXOLOTL, "ds.json": deepspeed(_ZERO.format(size="1e9"))},
            fixed={"ds.json": deepspeed(_ZERO.format(size="300000000"))},
            hardware="8xRTX-3090-24GB",
        ),
        Example(
            files={
                "train.yaml": f"{LLAMA_FACTORY}cutoff_len: 3072\ndeepspeed: ds.json\n",
                "ds.json": deepspeed(_ZERO.format(size="1e9")),
            },
            fixed={"ds.json": deepspeed(_ZERO.format(size="300000000"))},
            hardware="8xRTX-3090-24GB",
        ),
    )
    good = (
        Example(
            files={"train.yaml": _AXOLOTL, "ds.json": deepspeed(_ZERO.format(size="1e9"))},
            hardware="8xH100-80GB",
        ),
        Example(
            files={"train.yaml": _AXOLOTL, "ds.json": deepspeed(_ZERO.format(size="1e9"))},
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        zero = run.plan.parallel.zero
        limits = {_LIVE: zero.max_live_params, _REUSE: zero.max_reuse_distance}
        changes = {name: _LOWER for name, said in limits.items() if (said or 0) > _LOWER}
        found = relief(run, changes) if changes else None
        if found is None or not found.is_worthwhile or found.severity is None:
            return
        before = found.before
        yield self.finding(
            run,
            found.severity,
            f"ZeRO stage 3 keeps up to {gib(2 * max(v or 0 for v in limits.values()))} of gathered "
            "parameters",
            at=(_LIVE, _REUSE),
            details=(*before.context, f"with a limit of 3e8 parameters {found.sentence}"),
            judged=before,
            proposals=[Proposal.set("keep fewer gathered parameters", changes)],
        )
