"""Reentrant checkpointing over frozen embeddings: layers get no gradients, and it is given up.

## What it finds

Checkpointing that is explicitly reentrant (`use_reentrant: true`) while the embeddings are
frozen and only some of the model's own parameters are trained.

## Why it runs out of memory

Reentrant checkpointing passes gradients only where an input of the layer needs one. With frozen
embeddings none does: torch warns "None of the inputs have requires_grad", gradients of the
trained layers are missing, and people switch checkpointing off, which then runs out of memory.

## How to fix it

`use_reentrant: false`, which has no such condition, keeps the same bytes and computes the same.

## When not to

Where `enable_input_require_grads()` is called, as LLaMA-Factory, TRL and PEFT's preparation for
quantized training do; the rule is silent about them. ZeRO-3 with adapters needs the reentrant
kind in some versions.

## Sources

* pytorch `torch/utils/checkpoint.py` (`use_reentrant`)
* https://github.com/huggingface/transformers/issues/26221, https://github.com/huggingface/peft/issues/1142
* Axolotl `utils/schemas/validation.py:718` (`unfrozen_parameters` with reentrant checkpointing)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.trainer.fields import hf
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import axolotl, example, mended

_AXOLOTL = axolotl(
    "Qwen/Qwen2.5-1.5B-Instruct",
    "unfrozen_parameters:\n  - model.layers.2[0-7]+.mlp\nsequence_len: 2048\n",
    "micro_batch_size: 1\ngradient_checkpointing: true\ngradient_checkpointing_kwargs:\n",
    "  use_reentrant: {reentrant}\nbf16: true\n",
)

# They make the inputs of the first layer need gradients themselves (LLaMA-Factory
# model_utils/checkpointing.py, TRL through peft's preparation, ms-swift trainers/mixin.py).
_PREPARES_INPUTS = frozenset({"llama-factory", "trl", "ms-swift", "unsloth"})


class GcReentrantFrozenInputs(Rule, code="OOM112", fixes=Applicability.SAFE, cost=0):
    summary = "reentrant checkpointing over frozen embeddings passes no gradients"
    only_where = (
        Where(plan={f.trainable.method: ("freeze",), f.checkpointing.reentrant: (True,)}),
    )

    bad = (mended("axolotl.yaml", _AXOLOTL, reentrant=("true", "false")),)
    good = (
        example({"axolotl.yaml": _AXOLOTL.format(reentrant="false")}),
        example(
            {
                "axolotl.yaml": _AXOLOTL.format(reentrant="true").replace(
                    "unfrozen_parameters:\n  - model.layers.2[0-7]+.mlp\n", ""
                )
            },
            why="the embeddings are trained",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = run.plan
        if plan.checkpointing.mode in (None, "none") or run.framework in _PREPARES_INPUTS:
            return
        if not run.is_explicit(f.checkpointing.reentrant) and not run.is_explicit(hf.reentrant):
            return
        yield self.warning(
            run,
            "reentrant checkpointing with frozen embeddings: trained layers get no gradients",
            at=f.checkpointing.reentrant,
            details=(
                f"{run.key(f.checkpointing.reentrant)} is true",
                "reentrant checkpointing passes gradients only where the input of a layer needs one",
            ),
            resource="gpu",
            proposals=[
                Proposal.set("checkpoint without reentry", {f.checkpointing.reentrant: False})
            ],
        )
