"""Evaluation runs with more samples at once than training, and training was all that was tuned.

## What it finds

Evaluation during training whose batch is larger than the training batch: written so, or left
at a default of 8 that transformers, TRL and LLaMA-Factory have. It speaks where the
predicted evaluation peak may not fit; on unknown hardware where
evaluation, not training, decides what card the run needs. Where the model is not known, a
default of 8 beside a training batch of one or two is worth a word.

## Why it runs out of memory

Evaluation keeps no activations for a backward pass, but its logits are whole: batch x s x V x
2 bytes, and 4 more for their fp32 copy; eight samples of 4096 tokens with a vocabulary of
152064 are 30 GB on top of all states. Fused and chunked training losses may not apply to
evaluation. The crash comes at the first evaluation, maybe hours into the run.

## How to fix it

Set the evaluation batch to the training batch. Evaluation takes longer; its result is the
same, up to the weight of the last, smaller batch in the mean.

## When not to

Where evaluation is off. Axolotl takes the training batch by default, ms-swift takes 1.

## Sources

* transformers 5.23 `training_args.py:1128` (`per_device_eval_batch_size` is 8)
* https://github.com/unslothai/unsloth/pull/5168 (trains in 15 GB, out of memory at evaluation),
  https://github.com/Roblox/FAI-RL/pull/109 (default of 8 beside 2)
* https://github.com/huggingface/transformers/issues/32215
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import Peak, judge_gpu, settled, sharding_is_open
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Severity, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import ONE_SAMPLE_OF_LF, example, llama_factory, mended, trl
from oomlint_rules._remedies import states_exceed

_LLAMA_FACTORY = llama_factory(
    "Qwen/Qwen2.5-7B-Instruct",
    "cutoff_len: 6144\nflash_attn: fa2\nenable_liger_kernel: true\n",
    ONE_SAMPLE_OF_LF,
    "val_size: 0.1\neval_strategy: steps\neval_steps: 500\n",
    template="qwen",
    lora="all",
)
_TRL = trl(
    "Qwen/Qwen2.5-7B-Instruct",
    "use_peft: true\nmax_length: 4096\nloss_type: nll\nper_device_train_batch_size: 1\n",
    "{eval}eval_strategy: steps\noutput_dir: out\n",
)
_UNKNOWN = _TRL.replace("Qwen/Qwen2.5-7B-Instruct", "our-team/vision-model").replace(
    "train_batch_size: 1", "train_batch_size: 2"
)


class EvalBatchLargerThanTrain(Rule, code="OOM602", fixes=Applicability.SAFE, cost=1):
    summary = "evaluation runs with a larger batch than training, and does not fit"
    explains = ("activations", "logits")
    only_where = (Where(plan={f.eval.enabled: (True,)}),)

    bad = (
        example(
            {"train.yaml": _LLAMA_FACTORY},
            {
                "train.yaml": _LLAMA_FACTORY.replace(
                    "train_batch_size: 1\n", "train_batch_size: 1\nper_device_eval_batch_size: 1\n"
                )
            },
            on="1xRTX-4090-24GB",
            why="left at the default of 8",
        ),
        mended(
            "sft.yaml",
            _TRL,
            eval=("per_device_eval_batch_size: 16\n", "per_device_eval_batch_size: 1\n"),
            on="1xA100-80GB",
        ),
        example(
            {"sft.yaml": _UNKNOWN.format(eval="")},
            why="nothing is known of the model, but 8 samples beside 2 are a default",
        ),
    )
    good = (
        example(
            {"train.yaml": _LLAMA_FACTORY.replace("6144", "3072")},
            on="1xRTX-4090-24GB",
            why="evaluation needs more than training, and the card has it",
        ),
        example(
            {"sft.yaml": _TRL.format(eval="per_device_eval_batch_size: 1\n")}, on="1xA100-80GB"
        ),
        example(
            {"sft.yaml": _TRL.format(eval="").replace("steps", '"no"')},
            on="1xA100-80GB",
            why="there is no evaluation",
        ),
        example({"train.yaml": _LLAMA_FACTORY}, on="1xB200-180GB", why="fits"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = run.plan
        micro, evaluated = plan.batch.micro, plan.batch.eval_micro
        if micro is None or evaluated is None or evaluated <= micro:
            return
        if plan.batch.micro_unit == "completions":
            return
        if states_exceed(run) or sharding_is_open(run):
            return
        if plan.model.attn_impl == "eager" and _fits_with_sdpa(run):
            return
        changes = {f.batch.eval_micro: micro}
        now = judge_gpu(run, phase="evaluation")
        said = "" if run.is_explicit(f.batch.eval_micro) else ", the default,"
        batch = f"evaluation runs {evaluated} samples at once{said} and training {micro}"
        proposals = [Proposal.set(f"evaluate with a batch of {micro}", changes)]
        if now is None:
            if said and micro <= 2:
                yield self.info(
                    run,
                    batch,
                    at=(f.batch.eval_micro, f.eval.strategy, f.batch.micro),
                    details=(
                        "what fits in training may not fit in the first evaluation",
                        f"{run.key(f.batch.eval_micro)} sets it",
                    ),
                    confidence="low",
                    resource="gpu",
                    proposals=proposals,
                )
            return
        after = judge_gpu(settled(run).assuming(changes), phase="evaluation")
        severity = _severity(run, now)
        if severity is None or after is None or after.predicted > 0.97 * now.predicted:
            return
        yield self.finding(
            run,
            severity,
            batch,
            at=(f.batch.eval_micro, f.eval.strategy, f.batch.micro),
            details=(
                *now.context,
                f"that needs {gib(now.predicted)} in evaluation, {micro} at once {gib(after.predicted)}",
            ),
            judged=now,
            proposals=proposals,
        )


def _fits_with_sdpa(run: Run) -> bool:
    """Whether eager attention, of which another rule speaks, is what makes evaluation large."""
    now = judge_gpu(run.assuming({f.model.attn_impl: "sdpa"}), phase="evaluation")
    return now is not None and not now.is_problem


def _severity(run: Run, now: Peak) -> Severity | None:
    """On a known card as every judgement; else only where evaluation is what decides."""
    phases = settled(run).estimate.gpu.phases
    training = max(phases.get(name) or 0 for name in ("forward", "backward", "optimizer_step"))
    if now.limit is None:
        return now.severity if now.predicted > 1.25 * training else None
    # A run whose training does not fit either has other rules to say so.
    if now.severity is not None and training > now.predicted:
        return Severity.INFO
    return now.severity
