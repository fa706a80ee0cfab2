"""Logits that evaluation moves to RAM add up there instead.

## What it finds

`eval_accumulation_steps` together with `compute_metrics` and nothing that makes the
predictions smaller (`preprocess_logits_for_metrics`, `batch_eval_metrics`,
`prediction_loss_only`). A warning where fewer than a few thousand samples fill the node's RAM.

## Why it runs out of memory

The option moves the explosion from the GPU to the host. Each rank gathers the logits of *all* ranks
and keeps them until the evaluation is over, as fp32: tokens x vocabulary x 4 bytes a sample,
297 MiB for 512 tokens of Qwen's vocabulary. Eight ranks keep eight copies: 1000 samples are
2.3 TiB. Batches of different lengths are padded and concatenated, which takes once more as much for a moment. A
run with 960 GB of RAM died after some twenty steps of its first evaluation.

## How to fix it

`preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1)` keeps one number a token.
`batch_eval_metrics: true` computes the metric batch by batch, with a `compute_metrics` that knows
`compute_result`. The fix sets `prediction_loss_only: true`: the loss is all that is then measured, so
it is unsafe.

## When not to

For a classifier of few classes, or a few dozen samples.

## Sources

* transformers 5.23 `trainer.py:3010-3045` (gathered on every rank, `to_cpu_and_numpy`)
* https://github.com/huggingface/transformers/issues/25313 (8 x A100-80GB, 960 GB),
  https://github.com/huggingface/transformers/issues/28938
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import settled
from oomlint.linting.rule import KNOWN, Applicability, Finding, Proposal, Rule, Severity, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import example, text

# An evaluation set that is worth its time has more samples than this.
_FEW = 2000
_LENGTH = 512

_SCRIPT = text(
    """
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B", torch_dtype="bfloat16")
    arguments = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=4,
        per_device_eval_batch_size=1,
        bf16=True,
        eval_strategy="steps",
        eval_accumulation_steps=8,
    {more})
    Trainer(
        model=model, args=arguments, train_dataset=train, eval_dataset=held_out,
        compute_metrics=accuracy,{trainer}
    ).train()
    """
)
_SFT = text(
    """
    from trl import SFTConfig, SFTTrainer

    arguments = SFTConfig(
        output_dir="out",
        max_length=2048,
        per_device_train_batch_size=2,
        eval_strategy="steps",
        eval_accumulation_steps=4,
    {more})
    SFTTrainer(
        model="Qwen/Qwen2.5-1.5B", args=arguments, train_dataset=train, eval_dataset=held_out,
        compute_metrics=accuracy,
    ).train()
    """
)
_LOSS_ONLY = "    prediction_loss_only=True,\n"


class EvalAccumulationHostRam(Rule, code="OOM609", fixes=Applicability.DISPLAY, cost=7):
    summary = "logits that evaluation moves to RAM add up there"
    only_where = (Where(meant={f.eval.enabled: (True,), f.eval.accumulation_steps: KNOWN}),)

    bad = (
        example({"train.py": _SCRIPT.format(more="", trainer="")}, on="1xA100-80GB, 128GiB"),
        example({"sft.py": _SFT.format(more="")}, why="nobody says how much RAM there is"),
    )
    good = (
        example(
            {
                "train.py": _SCRIPT.format(
                    more="", trainer=" preprocess_logits_for_metrics=best_tokens,"
                )
            },
            on="1xA100-80GB, 128GiB",
        ),
        example(
            {"train.py": _SCRIPT.format(more="    batch_eval_metrics=True,\n", trainer="")},
            on="1xA100-80GB, 128GiB",
        ),
        example({"sft.py": _SFT.format(more=_LOSS_ONLY)}),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = settled(run).plan
        steps = plan.eval.accumulation_steps
        if not plan.eval.keeps_logits or not steps:
            return
        vocab = plan.model.dims.vocab if plan.model.dims else None
        ranks, limit = plan.parallel.gpus_per_node or 1, run.limits.host_bytes
        severity = Severity.INFO
        details = [f"{run.key(f.eval.accumulation_steps)} moves them there"]
        if vocab is not None:
            length = plan.seq.max_len or _LENGTH
            sample = 4 * vocab * length
            each = f" on each of {ranks} ranks" if ranks > 1 else ""
            details.append(f"a sample of {length:,} tokens takes {gib(sample)}{each}")
            if limit is not None:
                holds = int(limit / (sample * ranks))
                details.append(f"{holds:,} samples fill the node's {gib(limit)}")
                severity = Severity.WARNING if holds < _FEW else severity
        details.append("keep the predicted tokens only, with preprocess_logits_for_metrics")
        yield self.finding(
            run,
            severity,
            "the logits of an evaluation add up in RAM until it is over",
            at=(f.eval.accumulation_steps, f.eval.strategy),
            details=details,
            confidence="medium" if plan.seq.max_len else "low",
            resource="host",
            limit=limit,
            proposals=[
                Proposal.set(
                    "measure the loss only", {f.eval.keeps_logits: False}, Applicability.DISPLAY
                )
            ],
        )
