"""More samples at once than the card has room for.

## What it finds

A micro batch above one whose predicted peak does not fit, where
a smaller one lowers the peak. The largest power-of-two fraction that fits is proposed,
with gradient accumulation raised by the same factor.

## Why it runs out of memory

Activations and logits are linear in the micro batch: b x s tokens times the bytes a layer
keeps, plus 10 to 12 bytes per logit (b x s x vocabulary). Gradient accumulation costs no
activation memory at all: the samples of a global batch are worked off one after the other.

## How to fix it

Halve the micro batch, double the accumulation, until it fits. The global batch, and with
it learning, stays the same; small batches use the card less well. transformers normalises
the loss by the number of tokens over all micro batches since 4.46; before that, batches of
unequal length are weighted slightly differently.

## When not to

Losses that compare the samples of one micro batch with each other (contrastive training)
depend on it. In packed training the micro batch counts packed rows. Where no file says how long samples are, the rule
only remarks on a micro batch that would fit with samples like those of short data sets.

## Sources

* LLaMA-Factory FAQ, item 1: https://github.com/hiyouga/LLaMA-Factory/issues/4614
* https://github.com/hiyouga/LLaMA-Factory/issues/3631, https://github.com/meta-llama/llama-cookbook/pull/898
* transformers PR 34191 (gradient accumulation by tokens, 4.46)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import Relief, is_needed_by_any_samples, judge_gpu, relief, sharding_is_open
from oomlint.linting.rule import Applicability, Note, Severity, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import axolotl, example, mended
from oomlint_rules._lowering import LowersPeak
from oomlint_rules._remedies import states_exceed

_YAML = axolotl(
    "NousResearch/Meta-Llama-3-8B",
    "sequence_len: 4096\nsample_packing: true\ngradient_accumulation_steps: {accum}\n",
    "micro_batch_size: {micro}  # per GPU\ngradient_checkpointing: true\nbf16: true\n",
    "flash_attention: true\n",
    lora="all",
)


class MicroBatchTooLarge(LowersPeak, code="OOM102", fixes=Applicability.SAFE, cost=5):
    summary = "the micro batch does not fit; a smaller one with more accumulation does the same"
    explains = ("activations", "logits")
    at = (f.batch.micro,)
    only_where = (Where(has_risk=True),)

    bad = (mended("axolotl.yaml", _YAML, micro=(16, 8), accum=(2, 4), on="1xH100-80GB"),)
    good = (
        example({"axolotl.yaml": _YAML.format(micro=1, accum=32)}, on="1xH100-80GB"),
        example({"axolotl.yaml": _YAML.format(micro=1, accum=1)}, on="1xT4-16GB"),
    )

    def concerns(self, run: Run) -> bool:
        micro = run.plan.batch.micro
        if micro is None or micro < 2 or run.plan.batch.auto_micro:
            return False
        judged = judge_gpu(run)
        return judged is not None and judged.is_problem

    def found(self, run: Run) -> Relief | None:
        return smaller_batch(run, run.plan.batch.micro or 1)

    def severity(self, run: Run, found: Relief) -> Severity | None:
        severity = found.severity if found.before.share_of(self.explains) else None
        if severity is None or (found.before.limit is None and severity < Severity.WARNING):
            return None
        shown_only = self.level(run, found) is Applicability.DISPLAY
        if shown_only and sharding_is_open(run):
            return None
        is_cause = is_needed_by_any_samples(run, found.changes)
        return severity if is_cause else min(severity, Severity.INFO)

    def cause(self, run: Run, found: Relief) -> str:
        held = gib(found.before.share_of(self.explains))
        return f"micro batch {run.plan.batch.micro} holds {held} of activations and logits at once"

    def gain(self, run: Run, found: Relief) -> Iterable[str]:
        now = f"{run.plan.batch.micro} x {run.plan.batch.grad_accum or 1}"
        return (
            f"with micro batch x accumulation {_product(found)} instead of {now} {found.sentence}",
            "the global batch stays the same",
        )

    def title(self, run: Run, found: Relief) -> str:
        return f"train with micro batch {_product(found)} accumulation steps"

    def level(self, run: Run, found: Relief) -> Applicability:
        """Shown only where the states alone are too much: then no batch size fits."""
        return Applicability.DISPLAY if states_exceed(run) else Applicability.SAFE

    def notes(self, run: Run) -> Iterable[Note]:
        if run.is_explicit(f.batch.grad_accum):
            yield self.note(run, f.batch.grad_accum, "gradient accumulation")


def _product(found: Relief) -> str:
    return f"{found.changes[f.batch.micro]} x {found.changes[f.batch.grad_accum]}"


def smaller_batch(run: Run, micro: int) -> Relief | None:
    """The mildest halving of the micro batch that fits; where none does, one halving.

    Only exact divisors keep the global batch the same.
    """
    first: Relief | None = None
    factor = 2
    while micro % factor == 0:
        steps = run.plan.batch.steps_of(micro // factor, run.plan.parallel.dp)
        changes = {f.batch.micro: micro // factor, f.batch.grad_accum: steps}
        found = relief(run, changes)
        if found is None or not found.is_worthwhile:
            return first
        if found.suffices and not found.after.is_problem:
            return found
        first = first or found
        factor *= 2
    return first
