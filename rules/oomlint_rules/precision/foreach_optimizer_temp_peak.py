"""The optimizer step makes one more copy of everything that is trained.

## What it finds

AdamW in its `foreach` form on a run whose predicted peak is the optimizer step and does not fit,
where the fused form would lower it.

## Why it runs out of memory

`foreach` works through all parameters with list operations, each of which makes a temporary
list: the square roots of the second moments alone are as large as the trained parameters. The
fused kernel makes none. Forward and backward fit, and the first optimizer step runs out of
memory (`torch._foreach_sqrt` in the traceback).

## How to fix it

`optim: adamw_torch_fused` (the default of transformers on torch 2.8 and later),
`fused: true` for torch's own AdamW. The result is the same up to rounding.

## When not to

Optimizers that run on the host, and DeepSpeed's own, have no such copy.

## Sources

* Measured: foreach needs one copy of the trained parameters, fused none (torch 2.13)
* pytorch `torch/optim/adamw.py` (`_multi_tensor_adamw`)
* https://github.com/huggingface/trl/pull/2776 (out of memory in `torch._foreach_sqrt`)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import Relief, judge_gpu, sharding_is_open
from oomlint.linting.rule import Applicability, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import ONE_SAMPLE_OF_LF, axolotl, each, example, llama_factory
from oomlint_rules._lowering import LowersPeak

_LLAMA_FACTORY = llama_factory(
    "microsoft/Phi-3-mini-4k-instruct",
    "cutoff_len: 1024\noptim: {optimizer}\n",
    ONE_SAMPLE_OF_LF,
    "pure_bf16: true\n",
    template="phi",
)
_AXOLOTL = axolotl(
    "microsoft/Phi-3-mini-4k-instruct",
    "sequence_len: 512\nmicro_batch_size: 1\ngradient_checkpointing: true\n",
    "optimizer: {optimizer}\nbf16: true\nflash_attention: true\n",
)


class ForeachOptimizerTempPeak(LowersPeak, code="OOM206", fixes=Applicability.SAFE, cost=0):
    summary = "the foreach optimizer step makes a copy of all trained parameters"
    explains = ("temporary",)
    only_where = (Where(plan={f.optimizer.foreach: (True,)}, has_risk=True),)
    change = {f.optimizer.fused: True}
    at = (f.optimizer.name,)
    with_it = "with the fused kernel"
    fix = "use the fused AdamW"

    bad = each(
        {"train.yaml": _LLAMA_FACTORY, "axolotl.yaml": _AXOLOTL},
        optimizer=("adamw_torch", "adamw_torch_fused"),
        on="1xRTX-5090-32GB",
    )
    good = (
        example(
            {"train.yaml": _LLAMA_FACTORY.format(optimizer="adamw_torch_fused")},
            on="1xRTX-5090-32GB",
        ),
        example(
            {"axolotl.yaml": _AXOLOTL.format(optimizer="adamw_torch")}, on="1xH100-80GB", why="fits"
        ),
    )

    def concerns(self, run: Run) -> bool:
        if run.plan.offload.optimizer in ("cpu", "nvme") or sharding_is_open(run):
            return False
        before = judge_gpu(run)
        if before is None or before.phase != "optimizer_step":
            return False
        return before.limit is not None or before.is_problem

    def cause(self, run: Run, found: Relief) -> str:
        return "foreach AdamW makes temporary copies in the optimizer step, and sets the peak"

    def gain(self, run: Run, found: Relief) -> Iterable[str]:
        above = f"it is {gib(found.saved)} above the next highest point"
        return (above, *super().gain(run, found))
