"""Evaluation keeps the logits of every batch on the GPU until it is over.

## What it finds

Evaluation with `compute_metrics` and nothing that makes the predictions smaller first
(`preprocess_logits_for_metrics`), nothing that moves them away (`eval_accumulation_steps`), and
not `prediction_loss_only` or `batch_eval_metrics`. It speaks where the logits of one batch are
large enough that an ordinary evaluation set would fill the card.

## Why it runs out of memory

transformers gathers what the model returns over the whole evaluation set, on the GPU: samples x
tokens x vocabulary x 4 bytes. A thousand samples of 512 tokens with a vocabulary of 151936 are
311 GB. The crash comes in the first evaluation, some batches in.

## How to fix it

`preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1)` keeps one number a token,
and is the cure where the metric needs the predicted tokens only. The fix sets
`eval_accumulation_steps: 1`, which moves the logits of every batch to host RAM; they still add up
there, so a large evaluation set needs the cure. It is applied where the files say how many samples
are evaluated, and half of the host's RAM holds their logits; else it is shown.

## When not to

Where `compute_metrics` works on few classes: the logits of a classifier are small.

## Sources

* transformers 5.23 `trainer.py:2868` (evaluation_loop gathers logits and labels)
* https://github.com/huggingface/transformers/issues/15466, https://github.com/huggingface/transformers/issues/25313
  (with accumulation, 960 GB of RAM are full after some twenty steps),
  https://github.com/hiyouga/LLaMA-Factory/issues/1595
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import settled
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Severity, Where
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import example, mended, text
from oomlint_rules._remedies import card_bytes

_SCRIPT = text(
    """
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    model = AutoModelForCausalLM.from_pretrained(
        "Qwen/Qwen2.5-1.5B", torch_dtype="bfloat16"
    )
    arguments = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=4,
        per_device_eval_batch_size=8,
        gradient_checkpointing=True,
        bf16=True,
        eval_strategy="steps",
    {more})
    eval_dataset = eval_dataset.select(range(400))
    Trainer(
        model=model,
        args=arguments,
        train_dataset=train,
        eval_dataset=eval_dataset,
        compute_metrics=accuracy,
    {trainer}).train()
    """
)
_SFT = text(
    """
    from trl import SFTConfig, SFTTrainer

    arguments = SFTConfig(
        output_dir="out",
        max_length=2048,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        eval_strategy="steps",
    {more})
    SFTTrainer(
        model="Qwen/Qwen2.5-1.5B",
        args=arguments,
        train_dataset=train,
        eval_dataset=held_out,
        compute_metrics=accuracy,
    ).train()
    """
)
_MOVED = "    eval_accumulation_steps=1,\n"
_REDUCED = "    preprocess_logits_for_metrics=best_tokens,\n"

# An evaluation set of some hundred samples has at least this many batches on a GPU.
_BATCHES = 50


class EvalLogitsAccumulate(Rule, code="OOM604", fixes=Applicability.SAFE, cost=1):
    summary = "evaluation keeps the logits of all batches on the GPU"
    explains = ("logits",)
    only_where = (Where(meant={f.eval.enabled: (True,), f.eval.keeps_logits: (True,)}),)

    bad = (
        mended("train.py", _SCRIPT, more=("", _MOVED), trainer="", on="1xA100-80GB, 256GiB"),
        example(
            {"sft.py": _SFT.format(more="")},
            why="how many samples it evaluates is not known, so that host RAM may not hold them",
        ),
    )
    good = (
        example({"train.py": _SCRIPT.format(more="", trainer=_REDUCED)}, on="1xA100-80GB"),
        example({"train.py": _SCRIPT.format(more=_MOVED, trainer="")}, on="1xA100-80GB"),
        example({"sft.py": _SFT.format(more="").replace('"steps"', '"no"')}),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = settled(run).plan
        if plan.eval.accumulation_steps:
            return
        vocab = plan.model.dims.vocab if plan.model.dims else None
        rows = plan.batch.eval_micro or plan.batch.micro
        length = plan.seq.max_len or 512
        if vocab is None or rows is None:
            text = "they add up to samples x tokens x vocabulary x 4 bytes"
            severity, size = Severity.INFO, None
        else:
            size = 4.0 * vocab * rows * length
            text = (
                f"they add up over all batches, {gib(size)} for {rows} samples of {length:,} tokens"
            )
            full = size * _BATCHES > card_bytes(run)
            severity = Severity.WARNING if full else Severity.INFO
        yield self.finding(
            run,
            severity,
            "compute_metrics makes evaluation keep the logits on the GPU until it ends",
            at=(f.eval.keeps_logits, f.eval.strategy),
            details=(
                text,
                "preprocess_logits_for_metrics can reduce them, to the predicted tokens, say",
                "or they can move to host RAM after every batch",
            ),
            confidence="medium" if plan.seq.max_len else "low",
            resource="gpu",
            limit=run.limits.gpu_bytes,
            proposals=[
                Proposal.set(
                    "move the logits to host RAM after every batch",
                    {f.eval.accumulation_steps: 1},
                    Applicability.SAFE if _host_holds(run, size, rows) else Applicability.DISPLAY,
                )
            ],
        )


def _host_holds(run: Run, size: float | None, rows: int | None) -> bool:
    """Whether a node's RAM is known to hold the logits of all samples, of which each process gathers those of all ranks:
    half of it, since loading and the data take some, too. ``size`` is that of ``rows`` samples."""
    plan, host = settled(run).plan, run.limits.host_bytes
    samples = plan.eval.samples if run.level(f.eval.samples) < Level.ASSUMED else None
    if samples is None or host is None or size is None or not rows:
        return False
    return samples / rows * size * (plan.parallel.gpus_per_node or 1) <= host / 2
