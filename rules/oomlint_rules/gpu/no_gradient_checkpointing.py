"""Every activation of the forward pass is kept until the backward pass.

## What it finds

A run without activation (gradient) checkpointing whose predicted peak does not fit,
and that would be lower with it. Some frameworks switch
checkpointing on by default (LLaMA-Factory, TRL, ms-swift), others do not (Axolotl,
transformers, torchtune): what counts is the effective value.

## Why it runs out of memory

Without checkpointing a Llama-like layer saves about 16h + 8i + 4A + 4K bytes a token
(h hidden, i intermediate, A and K query and key width, bf16), all layers at once; with it,
2h a layer and one layer's worth while it is recomputed. ZeRO and FSDP shard parameters,
gradients and optimizer states, never activations, so more GPUs do not help.

## How to fix it

Turn it on. The maths stays the same; a step takes about a third longer, because the
forward pass is computed twice (Chen et al. 2016, arXiv 1604.06174). Under FSDP the
wrapper's own option is set where the framework has one.

## When not to

Where the run fits anyway the rule is silent. Where no file says how long samples are, it only remarks on a run that
checkpointing does not save, or that fits without, with samples like those of short data sets. Some architectures refuse checkpointing in
some frameworks (MPT in Axolotl).

## Sources

* https://github.com/axolotl-ai-cloud/axolotl/issues/2143: Llama-3.2-3B on 8 x 80 GB under
  ZeRO-3 ran out of memory for this reason
* Korthikanti et al. 2022, arXiv 2205.05198 (activation memory of a transformer layer)
* transformers 5.23 `training_args.py:908`, Axolotl `utils/schemas/config.py:600` (defaults)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import Relief, is_needed_by_any_samples, judge_gpu
from oomlint.linting.rule import Applicability, Severity, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import axolotl, example
from oomlint_rules._lowering import LowersPeak

_BASE = axolotl(
    "meta-llama/Llama-3.2-3B", "sequence_len: 4096\nsample_packing: true\nmicro_batch_size: 8\n"
)
_REST = "optimizer: adamw_torch_fused\nbf16: true\nflash_attention: true\n"
_FIXED = _REST.replace("bf16: true\n", "bf16: true\ngradient_checkpointing: true\n")


class NoGradientCheckpointing(LowersPeak, code="OOM101", fixes=Applicability.SAFE, cost=2):
    summary = "activations of every layer are kept because checkpointing is off"
    explains = ("activations",)
    only_where = (Where(plan={f.checkpointing.mode: ("none",)}, has_risk=True),)
    change = {f.checkpointing.mode: "full"}
    at = (f.checkpointing.mode, f.batch.micro, f.seq.max_len)
    fix = "turn on gradient checkpointing"
    even_unsaid = True

    bad = (
        example(
            {"axolotl.yaml": _BASE + _REST}, {"axolotl.yaml": _BASE + _FIXED}, on="1xH100-80GB"
        ),
    )
    good = (
        example({"axolotl.yaml": _BASE + _FIXED}, on="1xH100-80GB"),
        example(
            {"axolotl.yaml": _BASE.replace("size: 8", "size: 1") + _REST},
            on="1xB200-180GB",
            why="fits with room to spare",
        ),
    )

    def concerns(self, run: Run) -> bool:
        judged = judge_gpu(run)
        return judged is not None and judged.may_gain_by("activations", "temporary")

    def severity(self, run: Run, found: Relief) -> Severity | None:
        severity = found.severity
        if severity is None or is_needed_by_any_samples(run, found.changes):
            return severity
        return min(severity, Severity.INFO)

    def cause(self, run: Run, found: Relief) -> str:
        kept = gib(found.before.components.get("activations"))
        return f"no gradient checkpointing: {kept} of activations are kept for backward"

    def gain(self, run: Run, found: Relief) -> Iterable[str]:
        return (*super().gain(run, found), "a step takes about a third longer")
