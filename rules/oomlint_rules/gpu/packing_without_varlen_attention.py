"""Packed samples with an attention that does not know where one sample ends.

## What it finds

Packing (or padding-free batches) that relies on variable-length attention, with an attention
implementation that has none, eager or `sdpa`, where the mask that keeps samples apart takes
half a GiB or more. It is a warning from 2% of the card on, where the run is not known to fit.

## Why it runs out of memory

FlashAttention takes the boundaries of packed samples as a list. Without it they have to stand
in a mask of tokens x tokens, 2 bytes each for a micro batch of one: 2 GiB at 32768 tokens, and
attention falls back to a kernel that accepts masks. Eager attention builds the same matrix for
every head. Where no mask is made, samples read each other.

## How to fix it

FlashAttention 2 (or flex attention). Where samples read each other before, the result changes
with the fix, so it is unsafe.

## When not to

Cards before Ampere have no FlashAttention 2: switch packing off there. Packing that only
concatenates (`packing` in LLaMA-Factory, `wrapped` in TRL) keeps no boundaries and needs none.

## Sources

* TRL `trainer/sft_trainer.py:1154`, Axolotl `utils/schemas/validation.py:187` (warnings)
* https://github.com/hiyouga/LLaMA-Factory/issues/5725 (masks of neat packing)
* Dao 2023, arXiv 2307.08691
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import judge_gpu
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Severity, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import (
    ONE_SAMPLE,
    ONE_SAMPLE_OF_LF,
    axolotl,
    example,
    llama_factory,
    mended,
)
from oomlint_rules._remedies import card_bytes
from oomlint_rules.precision._cards import is_before_ampere

_LLAMA_FACTORY = llama_factory(
    "Qwen/Qwen2.5-7B-Instruct",
    "cutoff_len: {length}\nneat_packing: true\nflash_attn: {attention}\n",
    ONE_SAMPLE_OF_LF,
    template="qwen",
    lora="all",
)
_AXOLOTL = axolotl(
    "Qwen/Qwen2.5-7B-Instruct",
    "sequence_len: 32768\nsample_packing: true\n",
    ONE_SAMPLE,
    "attn_implementation: {attention}\n",
    lora="all",
)

# A mask below this is nothing beside what else a step holds, and one above this share of the
# card may decide.
_LARGE_MASK = 2**29
_SHARE = 0.02


class PackingWithoutVarlenAttention(Rule, code="OOM111", fixes=Applicability.UNSAFE, cost=7):
    summary = "packed samples are kept apart by a tokens x tokens mask, or not at all"
    explains = ("activations",)
    only_where = (
        Where(
            plan={
                f.seq.packing: ("multipack", "neat", "bfd", "varlen"),
                f.model.attn_impl: ("eager", "sdpa"),
            }
        ),
    )

    bad = (
        mended("train.yaml", _LLAMA_FACTORY, length=32768, attention=("sdpa", "fa2")),
        mended("axolotl.yaml", _AXOLOTL, attention=("sdpa", "flash_attention_2")),
    )
    good = (
        example({"train.yaml": _LLAMA_FACTORY.format(length=32768, attention="fa2")}),
        example(
            {"train.yaml": _LLAMA_FACTORY.format(length=4096, attention="sdpa")},
            why="a mask of 32 MiB: attention-quadratic-fallback speaks of what eager attention costs",
        ),
        example({"axolotl.yaml": _AXOLOTL.format(attention="flash_attention_2")}),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = run.plan
        length, attention = plan.seq.max_len, plan.model.attn_impl
        if length is None:
            return
        rows = 1 if plan.seq.packing in ("bfd", "varlen") else plan.batch.micro or 1
        mask = 2.0 * rows * length * length
        if mask < _LARGE_MASK:
            return
        judged = judge_gpu(run)
        fits = judged is not None and judged.limit is not None and judged.severity is None
        # Of a model whose layers nobody knows it is not sure that they have masks.
        has_layers = plan.model.dims is not None and bool(plan.model.dims.layers)
        large = mask >= _SHARE * card_bytes(run) and not fits and has_layers
        details = [
            f"it has no list of where the samples end, but a mask of {length:,} x {length:,}",
            "where no mask is made the samples read each other",
            "FlashAttention 2 needs none",
        ]
        if attention == "eager":
            details.insert(1, "and scores of that size for every head")
        yield self.finding(
            run,
            Severity.WARNING if large else Severity.INFO,
            f"{attention} attention keeps packed samples apart by a mask of {gib(mask)}",
            at=(f.model.attn_impl, f.seq.packing),
            details=details,
            confidence="medium",
            resource="gpu",
            proposals=[
                Proposal.set(
                    "use FlashAttention 2", {f.model.attn_impl: "flash2"}, Applicability.UNSAFE
                )
            ]
            if not is_before_ampere(run)
            else (),
        )
