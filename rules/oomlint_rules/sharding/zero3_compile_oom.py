"""DeepCompile in a ZeRO-3 run that has no memory to spare.

## What it finds

`deepcompile: true`, in the `compile` object of a DeepSpeed JSON or in Axolotl, under ZeRO stage 3 in
a run that does not fit, or is tight.

## Why it runs out of memory

DeepCompile compiles the model with its gathers and decides anew when weights are gathered and which
stay: it profiles the graph, and fills memory that it finds free with prefetched and persistent
weights. A run of Llama-3.2-1B on two 15 GB cards fitted under ZeRO-3 and not with DeepCompile.
Fixes of July 2026 made it count what activations will need.

## How to fix it

Switch it off. The result is the same, a step takes longer.

## When not to

With room to spare it saves time, and the rule is silent. `offload_activation` and
`offload_opt_states` of the same object move memory to the host.

## Sources

* https://github.com/deepspeedai/DeepSpeed/issues/7434,
  https://github.com/deepspeedai/DeepSpeed/pull/8106
* DeepSpeed edaa7221 `compile/config.py:17`, `compile/passes/selective_gather.py`
* Axolotl 067b021c `utils/schemas/validation.py:1190`
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import judge_gpu
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._conditions import UNDER_ZERO_3
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, deepspeed, example

_SWITCH = f.compile.deepcompile
_STAGE = '"stage": {stage}, "stage3_gather_16bit_weights_on_model_save": true'
_LF = f"{LLAMA_FACTORY}packing: true\ndeepspeed: ds.json\n"
_AXOLOTL = (
    AXOLOTL + "sequence_len: 2048\nsample_packing: true\ndeepspeed: ds.json\ndeepcompile: {on}\n"
)


def _json(on: str, stage: int = 3) -> str:
    more = f'  "compile": {{"deepcompile": {on}}},\n' if on else ""
    return deepspeed(_STAGE.format(stage=stage), more)


class Zero3CompileOom(Rule, code="OOM311", fixes=Applicability.SAFE):
    summary = "DeepCompile in a ZeRO-3 run that has no memory to spare"
    only_where = (Where(plan={f.compile.deepcompile: (True,), **UNDER_ZERO_3}, has_card=True),)

    bad = (
        example(
            {"train.yaml": _LF, "ds.json": _json("true")},
            {"ds.json": _json("false")},
            on="8xRTX-3090-24GB",
        ),
        example(
            {"axolotl.yaml": _AXOLOTL.format(on="true"), "ds.json": _json("")},
            {"axolotl.yaml": _AXOLOTL.format(on="false")},
            on="8xRTX-3090-24GB",
        ),
    )
    good = (
        example({"train.yaml": _LF, "ds.json": _json("true")}, on="8xH100-80GB"),
        example({"train.yaml": _LF, "ds.json": _json("false")}, on="8xRTX-3090-24GB"),
        example({"train.yaml": _LF, "ds.json": _json("true")}),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        judged = judge_gpu(run)
        if judged is None or not judged.is_problem:
            return
        yield self.info(
            run,
            "DeepCompile gathers weights by a plan of its own and fills what it finds free",
            at=_SWITCH,
            details=(*judged.context, "the prediction is without it"),
            judged=judged,
            proposals=[Proposal.set("switch DeepCompile off", {_SWITCH: False})],
        )
