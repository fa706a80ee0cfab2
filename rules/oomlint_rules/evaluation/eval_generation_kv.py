"""Evaluation generates text for several samples at once, each with a cache of its own.

## What it finds

Evaluation that generates (`predict_with_generate`, `do_causal_lm_eval`) with a batch above one,
where the states and the key-value cache of a whole batch do not fit, or are tight;
on unknown hardware where the cache alone takes 8 GiB.

## Why it runs out of memory

Every generated or read token keeps a key and a value in every layer: 2 x layers x key heads x head
size x 2 bytes, 128 KiB a token for Llama-3-8B and 2.5 MiB for a model without grouped keys such as
Llama-1-65B, times the length and the batch. It lies beside weights, optimizer states and
gradients, which stay.

## How to fix it

Generate with a batch of one. The answers are the same, evaluation takes longer. A smaller
`max_new_tokens` helps where answers are short.

## When not to

Where evaluation is off, or generates in another process.

## Sources

* https://github.com/axolotl-ai-cloud/axolotl/issues/3203 (evaluation by loss took 18 to 30 GB, by
  generation all 80)
* Pope et al. 2022, arXiv 2211.05102 (the cache's size); Ainslie et al. 2023, arXiv 2305.13245
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import confidence, settled, severity_of_need, sharding_is_open
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Severity, Where
from oomlint.plan.fields import f
from oomlint.plan.model import ModelDims
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib, of_gib
from oomlint_rules._examples import example, line, llama_factory, mended
from oomlint_rules._remedies import states_exceed

_LLAMA_FACTORY = llama_factory(
    "huggyllama/llama-7b",
    "cutoff_len: 2048\nmax_new_tokens: 1024\npredict_with_generate: {generate}\n",
    "per_device_train_batch_size: 1\nper_device_eval_batch_size: {batch}\n",
    "val_size: 0.1\neval_strategy: steps\noutput_dir: out\nbf16: true\n",
    template="default",
    lora="all",
)
_COMMAND = line(
    """
    python run_clm.py --model_name_or_path huggyllama/llama-7b --torch_dtype bfloat16
    --use_peft true --lora_r 8 --do_train --output_dir out --num_train_epochs 1
    --learning_rate 1e-4 --max_seq_length 4096 --gradient_checkpointing true --bf16 true
    --per_device_train_batch_size 1 --per_device_eval_batch_size {batch}
    --eval_strategy steps --predict_with_generate true
    """
)

# A cache of this size is a large part of any card.
_LARGE = 8 * 2**30


class EvalGenerationKv(Rule, code="OOM605", fixes=Applicability.SAFE, cost=1):
    summary = "evaluation generates for several samples at once, and their caches do not fit"
    only_where = (Where(meant={f.eval.enabled: (True,), f.eval.generate: (True,)}),)

    bad = (
        mended("train.yaml", _LLAMA_FACTORY, generate="true", batch=(8, 1), on="1xRTX-4090-24GB"),
        mended("train.sh", _COMMAND, batch=(8, 1), on="1xRTX-4090-24GB"),
    )
    good = (
        example(
            {"train.yaml": _LLAMA_FACTORY.format(generate="true", batch=1)}, on="1xRTX-4090-24GB"
        ),
        example(
            {"train.yaml": _LLAMA_FACTORY.format(generate="false", batch=8)}, on="1xRTX-4090-24GB"
        ),
        example(
            {"train.yaml": _LLAMA_FACTORY.format(generate="true", batch=8)},
            on="1xH100-80GB",
            why="fits",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        base = settled(run)
        plan, phases = base.plan, base.estimate.gpu.phases
        rows = plan.batch.eval_micro or plan.batch.micro
        if rows is None or rows < 2:
            return
        if plan.model.dims is None or states_exceed(run) or sharding_is_open(run):
            return
        tokens = (plan.seq.max_len or 2048) + (plan.eval.max_new_tokens or 0)
        one = _cache_bytes(plan.model.dims, tokens)
        resident = phases.get("save")
        if one is None or resident is None:
            return
        cache, limit = one * rows, run.limits.gpu_bytes
        room: tuple[str, ...]
        if limit is None:
            if cache < _LARGE:
                return
            severity, room = Severity.INFO, ()
        else:
            risky = severity_of_need(run, "gpu", resident + cache)
            if risky is None:
                return
            severity = min(risky, Severity.WARNING)  # answers may be shorter than they can be
            need = of_gib(resident + cache, limit)
            room = (f"with the {gib(resident)} that stay from training it is {need}",)
        yield self.finding(
            run,
            severity,
            f"evaluation generates for {rows} samples at once: {gib(cache)} of key-value cache",
            at=(f.batch.eval_micro, f.eval.generate),
            details=(
                f"that is for up to {tokens:,} tokens each, {gib(one)} for one sample",
                *room,
            ),
            confidence=confidence(run),
            resource="gpu",
            predicted=resident + cache,
            limit=limit,
            proposals=[Proposal.set("generate for one sample at a time", {f.batch.eval_micro: 1})],
        )


def _cache_bytes(dims: ModelDims, tokens: int) -> float | None:
    """Keys and values of all layers for one sample in 16 bit; latent attention keeps its rank."""
    if dims.mla is not None and dims.mla.kv_rank and dims.layers:
        return 2.0 * dims.layers * tokens * (dims.mla.kv_rank + (dims.mla.qk_rope or 0))
    heads = dims.kv_heads or dims.heads
    if not (dims.layers and heads and dims.hidden and dims.heads):
        return None
    size = dims.head_dim or dims.hidden // dims.heads
    return 2.0 * 2 * dims.layers * heads * size * tokens
