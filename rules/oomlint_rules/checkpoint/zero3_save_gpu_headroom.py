"""Saving under ZeRO-3 gathers whole modules on cards that training has filled.

## What it finds

A ZeRO-3 run that fits while it trains and saves checkpoints with gathered 16-bit weights,
where the training peak and the largest module gathered at a save together pass the card.
Such a run dies hours in, at the first checkpoint.

## Why it runs out of memory

To write 16-bit weights DeepSpeed gathers every module's parameters in full on *every* GPU,
one module after the other, before rank 0 copies them to its host. The largest module
decides: the embedding or the output head, and in a mixture-of-experts model whose experts
are stacked in one tensor all experts of a layer (7 GiB in DeepSeek-Coder-V2). PyTorch's
allocator keeps what training has reserved, and gives a gather only a free piece that is
large enough as it lies: with 73 of 79 GiB allocated a request for 3.4 GiB failed.

    needed = training peak + 2 bytes x parameters of the largest module

## How to fix it

Leave room: a smaller micro batch (with accumulation raised to keep the global batch) or shorter
sequences lower the training peak, which is what fills the card. The fix lowers the micro
batch to what leaves room for the largest module. Where that is not possible it turns
`stage3_gather_16bit_weights_on_model_save` off: the checkpoint is then sharded, and
`zero_to_fp32.py` makes a model of it afterwards.

`save_only_model: true` was the advice in the thread below, and the run of the thread survived with
it, as it skips DeepSpeed's own checkpoint. It does *not* remove the gather of the 16-bit weights,
which comes first, so it is offered last, and as unsafe: such a checkpoint holds no optimizer
states and cannot resume.

## When not to

Runs that never save before the end, or only adapters.

## Sources

* https://github.com/hiyouga/LLaMA-Factory/issues/7532: DeepSeek-Coder-V2-Instruct, ZeRO-3
  with offload, 6 x 8 A100-80GB
* DeepSpeed edaa7221 `runtime/engine.py` `_zero3_consolidated_16bit_state_dict`
* https://github.com/hiyouga/LLaMA-Factory/pull/6843 (the gather stays with save_only_model)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from oomlint.judgement import confidence, settled, severity_of_block
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Where
from oomlint.memory import save_peaks
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib, of_gib
from oomlint_rules._examples import axolotl, example, line, llama_factory
from oomlint_rules._fixes import changed
from oomlint_rules.checkpoint._gather import shards_instead

_YAML = axolotl(
    "deepseek-ai/DeepSeek-Coder-V2-Instruct",
    "sequence_len: {length}\nsample_packing: true\nmicro_batch_size: {micro}\n",
    "gradient_checkpointing: true\nbf16: true\nflash_attention: true\n",
    "saves_per_epoch: 4\n{only}deepspeed: ds.json\n",
)
_JSON = line(
    """
    {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"},
    "stage3_gather_16bit_weights_on_model_save": true},
    "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": "auto"}
    """
)


_LLAMA_FACTORY = llama_factory(
    "deepseek-ai/DeepSeek-Coder-V2-Instruct",
    "cutoff_len: 4096\noutput_dir: out\nper_device_train_batch_size: 8\n",
    "gradient_accumulation_steps: 4\nbf16: true\nflash_attn: fa2\ndeepspeed: ds.json\n",
    template="deepseek",
)


class Zero3SaveGpuHeadroom(Rule, code="OOM501", fixes=Applicability.SAFE, cost=4):
    summary = "gathering weights at a save needs more GPU memory than training leaves"
    only_where = (Where(has_card=True),)

    bad = (
        example(
            {"axolotl.yaml": _YAML.format(length=4096, micro=8, only=""), "ds.json": _JSON},
            {
                "axolotl.yaml": _YAML.format(length=4096, micro=4, only="").replace(
                    "micro_batch_size: 4\n", "micro_batch_size: 4\ngradient_accumulation_steps: 2\n"
                )
            },
            on="6x8xA100-80GB, 2TiB",
        ),
        example(
            {"train.yaml": _LLAMA_FACTORY, "ds.json": _JSON},
            {
                "train.yaml": _LLAMA_FACTORY.replace(
                    "train_batch_size: 8", "train_batch_size: 4"
                ).replace("accumulation_steps: 4", "accumulation_steps: 8")
            },
            on="6x8xA100-80GB, 2TiB",
        ),
        example(
            {"axolotl.yaml": _YAML.format(length=32768, micro=1, only=""), "ds.json": _JSON},
            {"ds.json": _JSON.replace('model_save": true', 'model_save": false')},
            on="6x8xA100-80GB, 2TiB",
            why="the micro batch cannot be smaller",
        ),
    )
    good = (
        example(
            {"axolotl.yaml": _YAML.format(length=2048, micro=1, only=""), "ds.json": _JSON},
            on="6x8xA100-80GB, 2TiB",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        base = settled(run)
        plan, limit = base.plan, run.limits.gpu_bytes
        gpu = base.estimate.gpu
        gathers = plan.parallel.zero.stage == 3 and plan.parallel.zero.gather16_on_save is True
        if not gathers or limit is None or plan.save.strategy in ("no", "end"):
            return
        peaks = save_peaks(plan)
        if peaks is None or gpu.peak_bytes is None or gpu.peak_bytes > limit:
            return
        need = gpu.peak_bytes + peaks.gpu
        severity = severity_of_block(run, peaks.gpu)
        if severity is None or plan.trainable.method not in ("full", "freeze"):
            return
        key = run.key(f.parallel.zero.gather16_on_save)
        yield self.finding(
            run,
            severity,
            f"the first checkpoint gathers {gib(peaks.gpu)} of parameters at once on every GPU",
            at=(f.save.strategy, f.save.every, f.parallel.zero.gather16_on_save),
            details=(
                f"{of_gib(need, limit)} in all, where training alone takes {gib(gpu.peak_bytes)}",
                "a smaller micro batch or shorter sequences leave room for it",
                f"{key} off saves sharded weights without it",
                "saving only the model skips DeepSpeed's own checkpoint, the gather remains",
            ),
            confidence="low" if confidence(run) == "low" else "medium",
            resource="gpu",
            predicted=need,
            limit=limit,
            proposals=_proposals(run, peaks.gpu),
            notes=[self.note(run, f.parallel.zero.gather16_on_save, "the gather is asked for here")]
            if run.is_explicit(f.parallel.zero.gather16_on_save)
            else (),
        )


def _proposals(run: Run, gathered: float) -> Iterator[Proposal]:
    smaller = _smaller_micro_batch(run, gathered)
    if smaller is not None:
        yield Proposal.set(f"lower the micro batch to {smaller[f.batch.micro]}", smaller)
    yield from shards_instead(run)
    if not run.plan.save.save_only_model:
        yield Proposal.set(
            "save the model without optimizer states (such a checkpoint cannot resume)",
            {f.save.save_only_model: True},
            Applicability.UNSAFE,
        )


def _smaller_micro_batch(run: Run, gathered: float) -> Mapping[Any, Any] | None:
    """The largest share of the micro batch that leaves room for the gather, same global batch."""
    batch, limit = run.plan.batch, run.limits.gpu_bytes
    micro = batch.micro
    factor = 2
    while micro and batch.grad_accum and limit and micro % factor == 0:
        steps = batch.steps_of(micro // factor, run.plan.parallel.dp)
        changes = {f.batch.micro: micro // factor, f.batch.grad_accum: steps}
        smaller = changed(run, changes)
        if smaller is None:
            return None
        if severity_of_block(smaller, gathered) is None:
            return changes
        factor *= 2
    return None
