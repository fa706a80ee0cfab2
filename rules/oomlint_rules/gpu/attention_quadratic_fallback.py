"""Attention that builds the whole tokens x tokens matrix.

## What it finds

A run whose attention resolves to the eager implementation, and whose predicted peak does
not fit while a memory-efficient kernel would lower it.

## Why it runs out of memory

Eager attention holds scores and their fp32 softmax for every head: about 10 to 12 bytes x
b x heads x s² while a layer runs, and 6 bytes of it for every layer until the backward pass
where activations are not checkpointed. At 8192 tokens and 32 heads that is 24 GiB a layer.
Flash and memory-efficient kernels keep 4 bytes a head and token.

## How to fix it

Ask for `sdpa` (part of PyTorch) or FlashAttention 2. The result is the same up to rounding.

## When not to

Models whose attention the kernels cannot express (Gemma 2's soft-capping before its FA2
support, head sizes above 256), GPUs before Ampere for FlashAttention 2, code that reads the
attention weights.

## Sources

* Measured saved bytes of transformers 5.23 layers, eager against sdpa, by allocation tracing
* Dao 2023, arXiv 2307.08691
* https://github.com/modelscope/ms-swift/issues/2010, https://github.com/hiyouga/LLaMA-Factory/issues/5725
"""

from __future__ import annotations

from oomlint.judgement import Relief
from oomlint.linting.rule import Applicability, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import ONE_SAMPLE, axolotl, example, mended
from oomlint_rules._lowering import LowersPeak

_YAML = axolotl(
    "NousResearch/Meta-Llama-3-8B",
    "sequence_len: 16384\n",
    ONE_SAMPLE,
    "attn_implementation: {attention}\n",
    lora="[q_proj, v_proj]",
)


class AttentionQuadraticFallback(LowersPeak, code="OOM104", fixes=Applicability.SAFE, cost=0):
    summary = "eager attention holds a tokens x tokens matrix for every head"
    explains = ("activations",)
    only_where = (Where(plan={f.model.attn_impl: ("eager",)}, has_risk=True),)
    change = {f.model.attn_impl: "sdpa"}
    at = (f.model.attn_impl, f.seq.max_len)
    with_it = "with sdpa"
    fix = "use PyTorch's sdpa attention"

    bad = (mended("axolotl.yaml", _YAML, attention=("eager", "sdpa"), on="1xA100-80GB"),)
    good = (
        example({"axolotl.yaml": _YAML.format(attention="sdpa")}, on="1xA100-80GB"),
        example(
            {"axolotl.yaml": _YAML.format(attention="eager").replace("16384", "1024")},
            on="1xA100-80GB",
            why="short sequences fit with eager attention too",
        ),
    )

    def cause(self, run: Run, found: Relief) -> str:
        length = run.intended.plan.seq.max_len
        size = "tokens x tokens" if length is None else f"{length} x {length} tokens"
        return f"eager attention keeps a matrix of {size} for every head"
