"""An optimizer that steps inside the backward pass, and accumulation or clipping beside it.

## What it finds

`optimizer_in_bwd: True` in torchtune, or a layer-wise optimizer (`galore_adamw_layerwise`,
`apollo_adamw_layerwise`) in transformers, together with a `gradient_accumulation_steps` above 1;
in torchtune also with `clip_grad_norm`.

## Why it runs out of memory

It does not get that far: the recipe raises *Gradient accumulation is not supported with optimizer
in bwd*, transformers *Layerwise ... does not support gradient accumulation*. Such an optimizer
frees each gradient as soon as it has used it: no whole gradient is left to add up or to measure.
Who then switches it off to keep the accumulation has 2 bytes a parameter more on the card: 15 GiB
for 8B parameters.

## How to fix it

`gradient_accumulation_steps: 1` with a larger micro batch, where activations leave room, and no
clipping. Both change what is learned, so the fix is unsafe. It leaves the micro batch as it is:
the global batch shrinks by as much.

## When not to

Where the memory is enough without it: then switch the optimizer in the backward pass off.

## Sources

* torchtune 0.7.0 `recipes/full_finetune_distributed.py:222`, `full_finetune_single_device.py:153`
* transformers 5.23 `trainer_optimizer.py:164`
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, When, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import command, example, mended, script, text
from oomlint_rules._fixes import removal

_CLIP = f.optimizer.clip_norm
_STEPS = f.batch.grad_accum
# torchtune 0.7.0 recipes/full_finetune_distributed.py:222, full_finetune_single_device.py:153. Clipping alone stops no other: the
# Trainer and torchtitan take the norm of what gradients are left, which is 0.
_REFUSES_CLIPPING = "torchtune"

_TORCHTUNE = text(
    """
    output_dir: /tmp/out
    model:
      _component_: torchtune.models.llama3_1.llama3_1_8b
    tokenizer:
      _component_: torchtune.models.llama3.llama3_tokenizer
      path: /tmp/tokenizer.model
      max_seq_len: 2048
    dataset:
      _component_: torchtune.datasets.alpaca_dataset
    batch_size: 2
    optimizer:
      _component_: bitsandbytes.optim.PagedAdamW8bit
    optimizer_in_bwd: {in_backward}
    {more}loss:
      _component_: torchtune.modules.loss.LinearCrossEntropyLoss
    enable_activation_checkpointing: True
    dtype: bf16
    """
)


class OptimizerInBwdConflict(Rule, code="OOM814", may_end=True, fixes=Applicability.UNSAFE, cost=8):
    summary = "an optimizer that steps in the backward pass, with accumulation or clipping"
    only_where = (Where(plan={f.optimizer.in_backward: (True,)}),)

    bad = (
        mended(
            "full.yaml",
            _TORCHTUNE,
            in_backward="True",
            more=("gradient_accumulation_steps: 8\n", "gradient_accumulation_steps: 1\n"),
        ),
        mended("full.yaml", _TORCHTUNE, in_backward="True", more=("clip_grad_norm: 1.0\n", "")),
        example(
            {"train.py": script("optim='galore_adamw_layerwise'", "gradient_accumulation_steps=4")},
            {"train.py": script("optim='galore_adamw_layerwise'", "gradient_accumulation_steps=1")},
        ),
        example(
            {"train.sh": command("--optim galore_adamw_layerwise", "python")},
            {
                "train.sh": command("--optim galore_adamw_layerwise", "python").replace(
                    "accumulation_steps 8", "accumulation_steps 1"
                )
            },
        ),
    )
    good = (
        example({"full.yaml": _TORCHTUNE.format(in_backward="True", more="")}),
        example(
            {
                "full.yaml": _TORCHTUNE.format(
                    in_backward="False",
                    more="gradient_accumulation_steps: 8\nclip_grad_norm: 1.0\n",
                )
            }
        ),
        example({"train.py": script("optim='galore_adamw_layerwise'")}),
        example(
            {
                "train.toml": (
                    '[model]\nname = "llama3"\nflavor = "8B"\n[optimizer]\nname = "AdamW"\nearly_step_in_backward = true\n'
                    "[training]\nlocal_batch_size = 1\nmax_norm = 1.0\n"
                )
            },
            why="torchtitan clips what gradients are left, and does not stop",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        optimizer, steps = run.plan.optimizer, run.plan.batch.grad_accum
        accumulates = steps is not None and steps > 1 and run.is_explicit(_STEPS)
        if accumulates:
            yield self._conflict(
                run,
                f"{run.key(_STEPS)} is {steps}",
                "such an optimizer keeps no gradient to add to",
                _STEPS,
                (Proposal.set("accumulate no gradients", {_STEPS: 1}, Applicability.UNSAFE),),
            )
        if optimizer.clip_norm is not None and run.dialect.name == _REFUSES_CLIPPING:
            yield self._conflict(
                run,
                f"{run.key(_CLIP)} is set",
                "such an optimizer never has all gradients to take their norm",
                _CLIP,
                removal("clip no gradients", run.origin(_CLIP), Applicability.UNSAFE),
            )

    def _conflict(
        self, run: Run, fault: str, why: str, field: Any, proposals: Iterable[Proposal]
    ) -> Finding:
        return self.error(
            run,
            f"{fault} with an optimizer inside the backward pass",
            at=field,
            details=(why, "the framework stops with an error"),
            proposals=proposals,
            # torchtune's recipe as it is made, the Trainer with its optimizer.
            ends=When.LOADING if run.dialect.name == "torchtune" else When.LOADED,
        )
