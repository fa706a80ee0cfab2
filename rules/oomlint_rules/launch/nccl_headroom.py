"""What NCCL and the CUDA context take outside torch's allocator may be more than is left.

## What it finds

A run over several cards whose predicted peak fits with so little left that NCCL's buffers, which
differ between versions, topologies and algorithms, could take it. An information.

## Why it runs out of memory

The CUDA context (0.25 to 0.6 GiB) and NCCL's channels and buffers (0.3 to 1.6 GiB a communicator
on eight GPUs and more) are not torch's, and NCCL's come with the first collective of each process
group: data, tensor, pipeline and expert parallelism have groups of their own. The error names "GiB
memory in use" of the process that torch has not allocated.

## How to fix it

Leave 1.5 to 2 GiB: a smaller micro batch, or a little less of what is cached. `NCCL_BUFFSIZE` above
its default of 4 MiB makes the buffers larger; `NCCL_NVLS_ENABLE=0` switches some of them off.
There is no fix of one value.

## When not to

Where the same run has been seen to work on these cards.

## Sources

* NCCL user guide, environment variables (`NCCL_BUFFSIZE`, `NCCL_NVLS_ENABLE`)
* https://github.com/huggingface/trl/pull/2776, https://github.com/modelscope/ms-swift/issues/3456
  ("including non-PyTorch memory")
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.hardware import nccl_bytes
from oomlint.judgement import confidence, settled
from oomlint.linting.rule import Finding, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib, of_gib
from oomlint_rules._examples import (
    ONE_SAMPLE,
    ONE_SAMPLE_OF_LF,
    axolotl,
    each,
    example,
    llama_factory,
)

_AXOLOTL = axolotl(
    "NousResearch/Meta-Llama-3-8B",
    "sequence_len: {length}\nsample_packing: true\n",
    ONE_SAMPLE,
    "flash_attention: true\n",
    lora="all",
)
_LLAMA_FACTORY = llama_factory(
    "NousResearch/Meta-Llama-3-8B",
    "cutoff_len: {length}\nflash_attn: fa2\n",
    ONE_SAMPLE_OF_LF,
    lora="all",
)


class NcclHeadroom(Rule, code="OOM711"):
    summary = "less is left on the cards than NCCL's buffers may take"
    only_where = (Where(has_card=True),)

    bad = (
        example({"axolotl.yaml": _AXOLOTL.format(length=13056)}, on="8xA100-40GB"),
        example({"train.yaml": _LLAMA_FACTORY.format(length=13312)}, on="8xA100-40GB"),
    )
    good = each(
        {"axolotl.yaml": _AXOLOTL, "train.yaml": _LLAMA_FACTORY}, length=4096, on="8xA100-40GB"
    )

    def check(self, run: Run) -> Iterable[Finding]:
        limit, hardware = run.limits.gpu_bytes, run.hardware
        world = run.plan.parallel.world or 1
        peak = settled(run).estimate.gpu.peak_bytes
        if limit is None or hardware is None or peak is None or world < 2 or peak > limit:
            return
        buffers = nccl_bytes(hardware.gpu, world)
        if peak + buffers.high - buffers.typical <= limit:
            return
        yield self.info(
            run,
            f"{gib(limit - peak)} is left for what NCCL's buffers may take beyond the usual",
            at=(f.batch.micro, f.model.id),
            details=(
                f"the run needs {of_gib(peak, limit)}, {gib(buffers.typical)} of buffers in that",
                f"they are up to {gib(buffers.high)} a process group on {world} GPUs",
                "they come with the first exchange of gradients",
            ),
            confidence=confidence(run),
            resource="gpu",
            predicted=peak,
            limit=limit,
        )
