"""Even a single sample of this length is too much for the card.

## What it finds

Samples of 8192 tokens or more whose activations and logits are a large part of a peak that
does not fit, where no smaller micro batch is left to go to. It says
how long samples may be. Where checkpointing, a fused loss or more sharding alone is enough,
the rules about those lead and this one only informs.

## Why it runs out of memory

Checkpointed training still keeps the input of every layer, 2 bytes x tokens x hidden x
layers, the whole of one layer while it is recomputed, and 10 to 12 bytes for each of
tokens x vocabulary logits. An 8B model with a vocabulary of 128256 at 52000 tokens: 70 GB of
logits for one sample. Neither ZeRO nor FSDP divides any of it; only context (sequence)
parallelism does.

## How to fix it

In this order: a fused cross-entropy, activations offloaded to the host, context parallelism
over several cards (`context_parallel_size` in Axolotl, `--sequence_parallel_size` in
ms-swift; every sample is then spread over that many cards), a shorter limit. The longest limit that
fits with room is shown and not written: it cuts or drops samples, which who knows the data decides.

## When not to

Where the limit is only a ceiling that no sample reaches: what counts is the longest sample of
the data, and where no file says how long it is, the rule only remarks on the limit. Unsloth keeps its checkpoints on the host and computes its loss in chunks.

## Sources

* https://github.com/hiyouga/LLaMA-Factory/issues/5545 (8B QLoRA at 51974 tokens on an H100),
  https://github.com/hiyouga/LLaMA-Factory/issues/7938 (DPO at 32768 on A100-80GB),
  https://github.com/hiyouga/LLaMA-Factory/issues/5972 (8k on RTX 4090)
* Korthikanti et al. 2022, arXiv 2205.05198 (activations of a layer)
* Liu et al. 2023, arXiv 2310.01889 (ring attention); Jacobs et al. 2023, arXiv 2309.14509 (Ulysses)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import Peak, Relief, card_holds, judge_gpu, lengths_are_open, settled
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Severity, Where
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import (
    LIGER,
    ONE_SAMPLE,
    ONE_SAMPLE_OF_LF,
    axolotl,
    each,
    example,
    llama_factory,
)
from oomlint_rules._remedies import leading_remedy, longest_that_fits, states_exceed

_AXOLOTL = axolotl(
    "NousResearch/Meta-Llama-3-8B",
    "sequence_len: {length}\nsample_packing: true\n",
    ONE_SAMPLE,
    "flash_attention: true\n",
    plugins=LIGER,
    data=("emozilla/pg19", "completion"),
    lora="[q_proj, v_proj]",
)
_LLAMA_FACTORY = llama_factory(
    "Qwen/Qwen2.5-7B-Instruct",
    "cutoff_len: {length}\nflash_attn: fa2\nenable_liger_kernel: true\n",
    ONE_SAMPLE_OF_LF,
    template="qwen",
    lora="all",
)

_BOTH = {"axolotl.yaml": _AXOLOTL, "train.yaml": _LLAMA_FACTORY}

# Below this many tokens a run is no long-context run, and batch, loss and sharding decide.
_LONG = 8192
# What grows with the length has to be this much of the peak for the length to be the cause.
_SHARE = 0.3


class LongContextOverBudget(Rule, code="OOM106", fixes=Applicability.DISPLAY, cost=8):
    summary = "one sample at the length limit is more than the card holds"
    explains = ("activations", "logits")
    only_where = (Where(has_risk=True),)

    bad = each(_BOTH, length=131072, on="1xA100-40GB")
    good = (
        *each(_BOTH, length=8192, on="1xA100-40GB"),
        example(
            {"axolotl.yaml": _AXOLOTL.format(length=131072)},
            on="1xB200-180GB",
            why="the card holds it",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        length = run.intended.plan.seq.max_len
        if length is None or length < _LONG or run.plan.seq.unbounded:
            return
        before = judge_gpu(run)
        if before is None or before.severity is None:
            return
        if before.limit is None and card_holds("L40S-48GB", before.predicted):
            return
        growing = before.share_of(self.explains)
        if growing < _SHARE * before.predicted or states_exceed(run):
            return
        found = _half_as_long(run, before, length)
        if found is None or found.severity is None or not found.is_worthwhile:
            return
        leading = leading_remedy(run)
        if leading is not None and f.batch.micro in leading.changes:
            return
        is_open = lengths_are_open(settled(run))
        fits = longest_that_fits(run, length, share=run.margin)
        where = "" if run.limits.gpu_bytes else " on an 80 GB card"
        room: tuple[str, ...] = ()
        if fits:
            room = (f"as it stands samples of up to about {fits:,} tokens fit with room{where}",)
        elif (
            run.level(f.parallel.world) < Level.ASSUMED
        ):  # more ranks may share what a short sample leaves
            room = (f"as it stands no length fits without other changes{where}",)
        yield self.finding(
            run,
            found.severity if leading is None and not is_open else Severity.INFO,
            f"samples of {length:,} tokens hold {gib(growing)} of activations and logits",
            at=f.seq.max_len,
            details=(
                *before.context,
                "more GPUs share those only where context parallelism splits each sample",
                *room,
            ),
            judged=before,
            proposals=[
                Proposal.set(
                    f"limit samples to {fits} tokens",
                    {f.seq.max_len: fits},
                    Applicability.DISPLAY,
                )
            ]
            if _LONG // 8 <= fits < length
            else (),
        )


def _half_as_long(run: Run, before: Peak, length: int) -> Relief | None:
    changes = {f.seq.max_len: length // 2}
    return Relief.of(before, run.assuming(changes), changes)
