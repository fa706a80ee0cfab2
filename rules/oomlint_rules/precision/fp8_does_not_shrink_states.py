"""FP8 training where model states are what does not fit.

## What it finds

`mixed_precision: fp8` of Accelerate, `fp8: true` of LLaMA-Factory or Axolotl,
`enable_fp8_training` of torchtune, in a run that does not fit and whose model states take more
than half of its peak.

## Why it runs out of memory

FP8 is the type of the matrix products, not of what is stored: weights stay in bf16 or fp32,
gradients and Adam's states as they were, and activations are kept in 16 bit for the backward pass
unless the engine keeps its 8-bit copies. What FP8 buys is time. Only FSDP's FP8 all-gather makes
something smaller, the weights on the wire and while they are gathered.

## How to fix it

What shrinks states: sharding, offloading, an optimizer with lighter states, an adapter. The other
findings of the run propose them with numbers. FP8 may stay.

## When not to

Where activations decide, or the run fits.

## Sources

* torchao documentation, `torchao.float8` (dynamic scaling: high-precision weights are cast for
  each product)
* Transformer Engine documentation, "Using FP8": parameters stay in high precision without
  `fp8_model_init`
* https://github.com/huggingface/accelerate/issues/2624
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import judge_gpu, settled
from oomlint.linting.rule import KNOWN, Finding, Rule, Where
from oomlint.memory import state_bytes
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import LLAMA_FACTORY, accelerate, command, example

_HALF = 0.5
_ACCELERATE = accelerate("MULTI_GPU").replace("bf16", "fp8")
_COMMAND = command("--gradient_checkpointing", "accelerate launch --config_file acc.yaml")


class Fp8DoesNotShrinkStates(Rule, code="OOM214"):
    summary = "FP8 training does not make model states smaller, which are what does not fit"
    only_where = (Where(plan={f.precision.fp8_train: KNOWN}, has_card=True, has_risk=True),)

    bad = (
        example({"train.yaml": f"{LLAMA_FACTORY}fp8: true\n"}, on="1xH100-80GB"),
        example(
            {"train.sh": _COMMAND.replace(" --bf16", ""), "acc.yaml": _ACCELERATE}, on="8xL40S-48GB"
        ),
    )
    good = (
        example({"train.yaml": LLAMA_FACTORY}, on="1xH100-80GB"),
        example(
            {"train.yaml": f"{LLAMA_FACTORY}fp8: true\n".replace("Llama-3.1-8B", "Llama-3.2-1B")},
            on="1xH100-80GB",
            why="fits",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        if run.plan.precision.fp8_train in (None, "none"):
            return
        judged = judge_gpu(run)
        states = state_bytes(settled(run).plan)
        if judged is None or judged.limit is None or states is None:
            return
        if judged.severity is None or states.total < _HALF * judged.predicted:
            return
        yield self.info(
            run,
            f"FP8 does not shrink what is stored: model states take {gib(states.total)}",
            at=f.precision.fp8_train,
            details=(
                *judged.context,
                "it makes matrix products faster",
                "weights, gradients and optimizer states take as much as in 16 bit",
            ),
            judged=judged,
        )
