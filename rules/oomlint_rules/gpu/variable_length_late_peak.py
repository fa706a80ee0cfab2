"""The batch that fills the card may come late: samples differ in length.

## What it finds

Batches padded to their own longest sample, without packing, on a run that is tight on the card and
would be far below it at half the length. An information: the
prediction is for the longest sample, and the first hours of a run may not have met it.

## Why it runs out of memory

Activations and logits follow the longest sample of each batch. Samples near the limit are rare, so
memory looks fine until one comes; sizes that change from step to step also leave holes in the
allocator, which grow over the run.

## How to fix it

Try the longest batch first (sort the data by length for one step), switch
`expandable_segments` on, or pack samples so that every step has the same size (`sample_packing`
with `pad_to_sequence_len` in Axolotl). None of these is a small edit of one value that leaves
training as it is, so there is no fix.

## When not to

Where the run fits at its full length with room, or does not fit at all: other rules speak then.

## Sources

* Axolotl `utils/schemas/config.py:722` (`pad_to_sequence_len` "reduces memory fragmentation and
  may prevent OOMs")
* https://github.com/unslothai/unsloth/issues/1624, https://github.com/hiyouga/LLaMA-Factory/issues/3631,
  https://github.com/hiyouga/LLaMA-Factory/issues/4616 (memory creeps up, then fails)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import judge_gpu, settled
from oomlint.linting.rule import Finding, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import axolotl, example, llama_factory

_LLAMA_FACTORY = llama_factory(
    "meta-llama/Llama-3.1-8B-Instruct",
    "cutoff_len: 9216\nflash_attn: fa2\n{packing}per_device_train_batch_size: {micro}\n",
    "output_dir: out\nbf16: true\n",
    lora="all",
)
_AXOLOTL = axolotl(
    "NousResearch/Meta-Llama-3-8B",
    "sequence_len: 9216\nmicro_batch_size: {micro}\ngradient_checkpointing: true\n",
    "bf16: true\nflash_attention: true\n",
    lora="all",
)
_SHARE = 0.2


class VariableLengthLatePeak(Rule, code="OOM115"):
    summary = "only the longest batch fills the card, and it may come late"
    only_where = (Where(plan={f.seq.packing: ("none",)}, has_card=True),)
    explains = ("activations", "logits")

    bad = (
        example({"train.yaml": _LLAMA_FACTORY.format(micro=4, packing="")}, on="1xA100-80GB"),
        example({"axolotl.yaml": _AXOLOTL.format(micro=4)}, on="1xA100-80GB"),
    )
    good = (
        example(
            {"train.yaml": _LLAMA_FACTORY.format(micro=4, packing="packing: true\n")},
            on="1xA100-80GB",
            why="every batch is full",
        ),
        example({"axolotl.yaml": _AXOLOTL.format(micro=1)}, on="1xA100-80GB"),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan, limit = run.plan, run.limits.gpu_bytes
        length = plan.seq.max_len
        if limit is None or length is None:
            return
        if plan.seq.pad == "max_len":
            return
        now = judge_gpu(run)
        if now is None or now.severity is None or now.predicted > limit:
            return
        half = settled(run).assuming({f.seq.max_len: length // 2}).estimate.gpu.peak_bytes
        if half is None or now.predicted - half < _SHARE * limit:
            return
        yield self.info(
            run,
            f"the peak may come late, with the first sample of {length:,} tokens",
            at=(f.seq.max_len, f.batch.micro),
            details=(
                *now.context,
                "a batch is as long as its longest sample",
                f"one of {length // 2:,} tokens needs {gib(half)}",
            ),
            judged=now,
        )
