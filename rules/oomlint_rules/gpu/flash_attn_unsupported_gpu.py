"""FlashAttention 2 is asked for on a card, or in a dtype, that it does not run on.

## What it finds

FlashAttention 2 or 3 requested while the hardware is an NVIDIA card before Ampere: V100, T4,
RTX 20, P100. So it does where weights are loaded in fp32 and no mixed precision is on, on any card.

## Why it runs out of memory

The package is built for compute capability 8.0 and later. It stops with "FlashAttention only
supports Ampere GPUs or newer" at the first batch; frameworks that fall back instead take eager
attention, which holds a matrix of tokens x tokens for every head. For fp32 it has no kernel and stops with
"FlashAttention only support fp16 and bf16 data type".

## How to fix it

PyTorch's `sdpa`, whose memory-efficient kernel runs on these cards and needs hardly more memory
than FlashAttention. The result is the same up to rounding. Where the dtype is what it stops at,
`bf16: true` is the other way, which needs less besides.

## When not to

Forks of FlashAttention for Turing, where they are installed under the same name.

## Sources

* flash-attention README, "NVIDIA CUDA Support" (Ampere, Ada, Hopper; Turing only in 1.x)
* flash-attention `csrc/flash_attn/flash_api.cpp` (the dtypes); transformers 5.23
  `integrations/flash_attention.py` `get_target_dtype`
* https://github.com/hiyouga/LLaMA-Factory/issues/5077 (T4 with `flash_attn: fa2`)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.dialects.common.fields import shared
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Severity, When, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import axolotl, example, llama_factory, mended
from oomlint_rules.precision._cards import severity_of_named_card

_SDPA = Proposal.set("use PyTorch's sdpa attention", {f.model.attn_impl: "sdpa"})
_LLAMA_FACTORY = llama_factory(
    "Qwen/Qwen2.5-1.5B-Instruct",
    "cutoff_len: 512\nflash_attn: {attention}\nper_device_train_batch_size: 1\n",
    "output_dir: out\nfp16: true\n",
    template="qwen",
    lora="all",
)
_AXOLOTL = axolotl(
    "Qwen/Qwen2.5-1.5B-Instruct",
    "sequence_len: 512\nmicro_batch_size: 1\ngradient_checkpointing: true\nbf16: false\n",
    "fp16: true\nattn_implementation: {attention}\n",
    lora="all",
)
_FP32 = _AXOLOTL.replace("fp16: true", "fp16: false")


class FlashAttnUnsupportedGpu(Rule, code="OOM109", may_end=True, fixes=Applicability.SAFE, cost=0):
    summary = "FlashAttention does not run on this card, or in fp32"
    only_where = (
        Where(plan={f.model.attn_impl: ("flash2", "flash3")}, has_card=True),
        Where(plan={f.model.attn_impl: ("flash2", "flash3")}, said=(shared.stops,)),
    )

    bad = (
        mended("train.yaml", _LLAMA_FACTORY, attention=("fa2", "sdpa"), on="2xT4-16GB"),
        mended("axolotl.yaml", _AXOLOTL, attention=("flash_attention_2", "sdpa"), on="1xV100-32GB"),
        mended("axolotl.yaml", _FP32, attention=("flash_attention_2", "sdpa")),
    )
    good = (
        example({"axolotl.yaml": _FP32.format(attention="sdpa")}),
        example({"train.yaml": _LLAMA_FACTORY.format(attention="fa2")}, on="1xL4-24GB"),
        example({"axolotl.yaml": _AXOLOTL.format(attention="sdpa")}, on="1xV100-32GB"),
        example({"train.yaml": _LLAMA_FACTORY.format(attention="fa2")}),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        stops = run.settings.get(shared.stops)
        if stops is not None and f.model.attn_impl in stops.origin.inputs:
            yield self._in_fp32(run, str(stops.value))
            return
        if run.hardware is None:
            return
        gpu = run.hardware.gpu
        if gpu.vendor != "NVIDIA" or gpu.flash2 or gpu.compute_capability is None:
            return
        yield self.finding(
            run,
            severity_of_named_card(run, Severity.ERROR),
            f"FlashAttention 2 does not run on {gpu.name}, which is older than Ampere",
            at=(f.model.attn_impl, f.model.id),
            details=(
                f"it needs compute capability 8.0, and the card has {gpu.compute_capability}",
                "training stops at the first batch, or falls back to eager attention",
            ),
            resource="gpu",
            proposals=[_SDPA],
        )

    def _in_fp32(self, run: Run, cause: str) -> Finding:
        return self.error(
            run,
            cause,
            at=(f.model.attn_impl, f.model.id),
            details=("training stops at the first batch", "with bf16 on it runs, and needs less"),
            rests_on=(shared.stops,),
            ends=When.LOADED,
            proposals=[_SDPA],
        )
