"""Preference training runs two answers for every sample: the batch is twice what it says.

## What it finds

DPO, ORPO, SimPO, CPO and reward-model runs whose predicted peak does not fit and that would
fit, or need much less, if a sample were one sequence. It says how much of the peak the second answer is. Where a smaller micro batch, checkpointing, a fused
loss or more sharding alone is enough, the rules about those lead and this one only informs.

## Why it runs out of memory

The chosen and the rejected answer are concatenated into one batch, so that a micro batch of
B runs 2B sequences: twice the activations, and 2 x B x s x V logits, of which preference
losses take fp32 log-probabilities. A config copied from supervised fine-tuning, where B fits,
does not fit any more.

## How to fix it

Halve the micro batch and double gradient accumulation; the global batch stays the same. At a
micro batch of one only a shorter limit, a fused preference loss (TRL's `use_liger_kernel`) or
a lighter run help. The limit that fits is shown and not written: it cuts samples.

## When not to

KTO has single answers (a batch of B and the KL term of the same batch), and is not meant.

## Sources

* TRL `trainer/dpo_trainer.py` (`concatenated_forward`), LLaMA-Factory `train/dpo/trainer.py`
* https://github.com/hiyouga/LLaMA-Factory/issues/10175 (batch 4 fits in SFT, 2 fails in DPO),
  https://github.com/hiyouga/LLaMA-Factory/issues/5051 (reward model at 8192 tokens),
  https://github.com/hiyouga/LLaMA-Factory/issues/7833
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oomlint.judgement import Relief, judge_gpu, relief
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import example, text, trl
from oomlint_rules._remedies import longest_that_fits, lowered, states_exceed

_LLAMA_FACTORY = text(
    """
    model_name_or_path: meta-llama/Llama-3.1-8B-Instruct
    stage: dpo
    do_train: true
    finetuning_type: lora
    lora_target: all
    pref_beta: 0.1
    dataset: dpo_en_demo
    template: llama3
    cutoff_len: 4096
    per_device_train_batch_size: {micro}
    gradient_accumulation_steps: {accum}
    output_dir: out
    bf16: true
    flash_attn: fa2
    """
)
_TRL = trl(
    "meta-llama/Llama-3.1-8B-Instruct",
    "beta: 0.1\nuse_peft: true\nlora_r: 16\nmax_length: {length}\n",
    "per_device_train_batch_size: 1\ngradient_accumulation_steps: 8\n",
    "gradient_checkpointing: true\nbf16: true\noutput_dir: out\n",
    dataset="trl-lib/ultrafeedback_binarized",
)


class PreferencePairDoublesBatch(Rule, code="OOM601", fixes=Applicability.SAFE, cost=5):
    summary = "chosen and rejected answers run together: twice the batch that the config names"
    explains = ("activations", "logits")
    only_where = (Where(plan={f.objective.pairs_per_sample: (2,)}),)

    bad = (
        example(
            {"train.yaml": _LLAMA_FACTORY.format(micro=4, accum=2)},
            on="1xA100-80GB",
            why="micro-batch-too-large proposes the smaller batch; this one says why",
        ),
        example(
            {"dpo.yaml": _TRL.format(length=8192), "requirements.txt": "trl==1.14.2\n"},
            on="1xA100-40GB",
            why="at a micro batch of one the length decides",
        ),
    )
    good = (
        example({"train.yaml": _LLAMA_FACTORY.format(micro=1, accum=8)}, on="1xA100-80GB"),
        example({"dpo.yaml": _TRL.format(length=1024)}, on="1xA100-40GB"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = run.plan
        micro = plan.batch.micro
        if micro is None or states_exceed(run):
            return
        if plan.objective.kind == "embedding":
            return
        single = {f.objective.pairs_per_sample: 1}
        before = judge_gpu(run)
        found = Relief.of(before, run.assuming(single), single)
        if before is None or found is None or found.severity is None or not found.is_worthwhile:
            return
        if before.limit is None and not before.is_problem:
            return
        yield self.finding(
            run,
            lowered(found.severity, run),
            f"a micro batch of {micro} is {2 * micro} sequences: chosen and rejected answers",
            at=(f.batch.micro, f.objective.kind, f.seq.max_len),
            details=(*before.context, f"the second half of them is {gib(found.saved)} of the peak"),
            judged=before,
            proposals=list(_proposals(run, micro)),
        )


def _proposals(run: Run, micro: int) -> Iterator[Proposal]:
    if micro % 2 == 0:
        changes = {
            f.batch.micro: micro // 2,
            f.batch.grad_accum: 2 * (run.plan.batch.grad_accum or 1),
        }
        if relief(run, changes) is not None:
            yield Proposal.set("halve the micro batch and double gradient accumulation", changes)
        return
    length = run.plan.seq.max_len
    fits = longest_that_fits(run, length, share=run.margin) if length else 0
    if length and 512 <= fits < length:
        yield Proposal.set(
            f"limit samples to {fits} tokens", {f.seq.max_len: fits}, Applicability.DISPLAY
        )
