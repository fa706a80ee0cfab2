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

from collections.abc import Mapping
from typing import Any

from oomlint.judgement import Relief
from oomlint.linting.rule import Applicability, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._conditions import UNDER_ZERO_3
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, under_deepspeed
from oomlint_rules._lowering import LowersPeak

_LOWER = 300_000_000
_LIVE = f.parallel.zero.max_live_params
_REUSE = f.parallel.zero.max_reuse_distance

_ZERO = (
    '"stage": 3, "stage3_max_live_parameters": {size}, "stage3_max_reuse_distance": {size}, '
    '"stage3_gather_16bit_weights_on_model_save": true'
)
_AS_USUAL, _FEWER = (_ZERO.format(size=size) for size in ("1e9", "3e8"))
_AXOLOTL = f"{AXOLOTL}sequence_len: 4096\n"


class Zero3LiveParamsOversized(LowersPeak, code="OOM307", fixes=Applicability.SAFE, cost=3):
    summary = "ZeRO-3 keeps more gathered parameters than a small card has room for"
    explains = ("communication",)
    only_where = (Where(plan=UNDER_ZERO_3, has_card=True, has_risk=True),)
    at = (_LIVE, _REUSE)
    with_it = "with a limit of 3e8 parameters"
    fix = "keep fewer gathered parameters"

    bad = (
        under_deepspeed(_AXOLOTL, _AS_USUAL, _FEWER, on="8xRTX-3090-24GB"),
        under_deepspeed(
            f"{LLAMA_FACTORY}cutoff_len: 3072\n", _AS_USUAL, _FEWER, on="8xRTX-3090-24GB"
        ),
    )
    good = (
        under_deepspeed(_AXOLOTL, _AS_USUAL, on="8xH100-80GB"),
        under_deepspeed(_AXOLOTL, _AS_USUAL),
    )

    def changes(self, run: Run) -> Mapping[Any, Any]:
        return {name: _LOWER for name, said in _limits(run).items() if (said or 0) > _LOWER}

    def cause(self, run: Run, found: Relief) -> str:
        most = gib(2 * max(said or 0 for said in _limits(run).values()))
        return f"ZeRO stage 3 keeps up to {most} of gathered parameters"


def _limits(run: Run) -> dict[Any, int | None]:
    zero = run.plan.parallel.zero
    return {_LIVE: zero.max_live_params, _REUSE: zero.max_reuse_distance}
