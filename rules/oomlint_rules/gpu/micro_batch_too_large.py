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
depend on it. In packed training the micro batch counts packed rows.

## Sources

* LLaMA-Factory FAQ, item 1: https://github.com/hiyouga/LLaMA-Factory/issues/4614
* https://github.com/hiyouga/LLaMA-Factory/issues/3631, https://github.com/meta-llama/llama-cookbook/pull/898
* transformers PR 34191 (gradient accumulation by tokens, 4.46)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import Relief, judge_gpu, relief, sharding_is_open
from oomlint.plan.fields import f
from oomlint.rule import Applicability, Example, Finding, Proposal, Rule, Severity, gib
from oomlint.run import Run
from oomlint_rules._remedies import states_exceed

_YAML = (
    "base_model: NousResearch/Meta-Llama-3-8B\n"
    "datasets:\n"
    "  - path: tatsu-lab/alpaca\n"
    "    type: alpaca\n"
    "adapter: lora\n"
    "lora_r: 16\n"
    "lora_target_linear: true\n"
    "sequence_len: 4096\n"
    "sample_packing: true\n"
    "gradient_accumulation_steps: {accum}\n"
    "micro_batch_size: {micro}  # per GPU\n"
    "gradient_checkpointing: true\n"
    "bf16: true\n"
    "flash_attention: true\n"
)


class MicroBatchTooLarge(Rule):
    code = "OOM102"
    name = "micro-batch-too-large"
    summary = "the micro batch does not fit; a smaller one with more accumulation does the same"
    applicability = Applicability.SAFE
    explains = ("activations", "logits")
    cost = 5

    bad = (
        Example(
            files={"axolotl.yaml": _YAML.format(micro=16, accum=2)},
            fixed={"axolotl.yaml": _YAML.format(micro=8, accum=4)},
            hardware="1xH100-80GB",
        ),
    )
    good = (
        Example(files={"axolotl.yaml": _YAML.format(micro=1, accum=32)}, hardware="1xH100-80GB"),
        Example(files={"axolotl.yaml": _YAML.format(micro=1, accum=1)}, hardware="1xT4-16GB"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        micro, accum = run.plan.batch.micro, run.plan.batch.grad_accum
        if micro is None or micro < 2 or run.plan.batch.auto_micro:
            return
        judged = judge_gpu(run)
        if judged is None or not judged.is_problem:
            return
        found = smaller_batch(run, micro, accum or 1)
        if found is None or found.severity is None:
            return
        if judged.limit is None and found.severity < Severity.WARNING:
            return
        applicability = _applicability(run)
        if applicability is Applicability.DISPLAY and sharding_is_open(run):
            return
        before = found.before
        held = before.share_of(self.explains)
        now = f"{micro} x {accum or 1}"
        then = f"{found.changes[f.batch.micro]} x {found.changes[f.batch.grad_accum]}"
        yield self.finding(
            run,
            found.severity,
            f"micro batch {micro} holds {gib(held)} of activations and logits at once",
            at=f.batch.micro,
            details=(
                *before.context,
                f"with micro batch x accumulation {then} instead of {now} {found.sentence}",
                "the global batch stays the same",
            ),
            judged=before,
            proposals=[
                Proposal.set(
                    f"train with micro batch {then} accumulation steps",
                    found.changes,
                    applicability,
                )
            ],
            notes=[self.note(run, f.batch.grad_accum, "gradient accumulation")]
            if run.is_explicit(f.batch.grad_accum)
            else (),
        )


def smaller_batch(run: Run, micro: int, accum: int) -> Relief | None:
    """The mildest halving of the micro batch that fits; where none does, one halving.

    Only exact divisors keep the global batch the same.
    """
    first: Relief | None = None
    factor = 2
    while micro % factor == 0:
        changes = {f.batch.micro: micro // factor, f.batch.grad_accum: accum * factor}
        found = relief(run, changes)
        if found is None or not found.is_worthwhile:
            return first
        if found.suffices and not found.after.is_problem:
            return found
        first = first or found
        factor *= 2
    return first


def _applicability(run: Run) -> Applicability:
    """Shown only where the states alone are too much: then no batch size fits."""
    return Applicability.DISPLAY if states_exceed(run) else Applicability.SAFE
