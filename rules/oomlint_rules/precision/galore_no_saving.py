"""GaLore or APOLLO in a setting that takes back what it saves.

## What it finds

In LLaMA-Factory `use_galore` or `use_apollo` without `pure_bf16`; with transformers' layer-wise
GaLore or APOLLO (Axolotl, TRL, scripts) gradient accumulation or several processes.

## Why it runs out of memory

The low-rank projection shrinks AdamW's two states, 8 bytes a parameter, to about a sixteenth.
Without `pure_bf16` LLaMA-Factory makes the trained weights fp32: 4 bytes of weights and 4 of
gradients a parameter instead of 2 and 2, 30 GiB more for 8B parameters. The layer-wise form
frees each gradient as soon as it is used, so it can neither accumulate nor reduce them over
ranks: transformers stops with an error.

## How to fix it

`pure_bf16: true`, which is unsafe, because the weights are then trained in bf16; for the
layer-wise form one process and `gradient_accumulation_steps: 1`.

## When not to

Where the run fits in fp32 and its numerics are wanted.

## Sources

* LLaMA-Factory ff6d4d12 `src/llamafactory/hparams/parser.py:575` (warning *may significantly
  increases GPU memory usage*) and `model/adapter.py:338`
* transformers 5.23 `trainer_optimizer.py:117` (several processes) and `:166` (accumulation)
* Zhao et al. 2024, arXiv 2403.03507; https://github.com/axolotl-ai-cloud/axolotl/issues/1448
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.llamafactory.keys import lf
from oomlint.judgement import relief
from oomlint.linting.rule import (
    Applicability,
    Finding,
    Proposal,
    Rule,
    Severity,
    When,
    Where,
    short,
)
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import AXOLOTL, LLAMA_FACTORY, command, example

_GALORE = LLAMA_FACTORY + "use_galore: true\n"
_LAYERWISE = f"{AXOLOTL}optimizer: galore_adamw_layerwise\n"
_SWITCHES = (lf.galore, lf.apollo)


class GaloreNoSaving(Rule, code="OOM211", may_end=True, fixes=Applicability.UNSAFE, cost=7):
    summary = "GaLore or APOLLO in a setting that takes back what it saves"
    only_where = (
        Where(plan={f.optimizer.kind: ("galore", "apollo")}),
        Where(said=_SWITCHES),
    )

    bad = (
        example(
            {"train.yaml": _GALORE},
            {"train.yaml": _GALORE.replace("type: full\n", "type: full\npure_bf16: true\n")},
            on="1xRTX-3090-24GB",
        ),
        example({"train.yaml": f"{_LAYERWISE}gradient_accumulation_steps: 4\n"}),
        example(
            {
                "train.sh": command("--optim galore_adamw_layerwise").replace(
                    "gradient_accumulation_steps 8", "gradient_accumulation_steps 1"
                )
            },
            why="eight processes",
        ),
    )
    good = (
        example({"train.yaml": f"{_GALORE}pure_bf16: true\n"}, on="1xRTX-3090-24GB"),
        example({"train.yaml": f"{_LAYERWISE}gradient_accumulation_steps: 1\n"}),
        example({"train.yaml": _GALORE}, on="1xB200-180GB", why="it fits as it is"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        yield from self._upcast(run)
        name = str(run.plan.optimizer.name or "")
        accumulation = run.plan.batch.grad_accum or 1
        if name.endswith("_layerwise") and accumulation > 1:
            yield self.error(
                run,
                f"{short(name)} cannot accumulate gradients over {accumulation} micro batches",
                at=(f.batch.grad_accum, f.optimizer.name),
                details=(
                    f"{name} frees each gradient as soon as it is used",
                    "transformers stops with an error",
                ),
                notes=[self.note(run, f.optimizer.name, "the optimizer is chosen here")],
            )

        if name.endswith("_layerwise") and _starts_several(run):
            yield self.error(
                run,
                f"{short(name)} works in one process only, and the run has {run.plan.parallel.world}",
                at=f.optimizer.name,
                details=("transformers stops with an error",),
                ends=When.LOADED,
            )

    def _upcast(self, run: Run) -> Iterable[Finding]:
        on = [name for name in _SWITCHES if name in run.settings and run.settings[name].value]
        pure = run.settings.get(lf.pure_bf16)
        if not on or pure is None or pure.value is not False:
            return
        found = relief(run, {lf.pure_bf16: True})
        if found is None or not found.is_worthwhile or found.severity is None:
            return
        before = found.before
        yield self.finding(
            run,
            min(found.severity, Severity.WARNING),
            f"{run.key(on[0])} without pure_bf16 trains fp32 copies of the weights",
            at=on[0],
            details=(
                *before.context,
                "that takes back what it saves",
                f"with pure_bf16 {found.sentence}",
            ),
            judged=before,
            confidence="medium",
            proposals=[Proposal.set("train in bf16", {lf.pure_bf16: True}, Applicability.UNSAFE)],
        )


def _starts_several(run: Run) -> bool:
    """Whether a file says that there are several processes, and not the hardware alone."""
    setting = run.settings.get(f.parallel.gpus_per_node)
    said = setting is not None and setting.origin.kind != "catalog"
    return said and (run.plan.parallel.world or 1) > 1
