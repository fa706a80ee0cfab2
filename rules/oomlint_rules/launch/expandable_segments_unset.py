"""The run fits, but what the allocator holds beside it may not.

## What it finds

A run whose predicted peak fits while the memory that torch is likely to *reserve*, which holes
between blocks of changing sizes make larger, does not; and where expandable segments would bring
it back below the card. It is an information where they would lower what is reserved, but not below the
card, and samples differ in length.

## Why it runs out of memory

torch's caching allocator keeps freed blocks for tensors of about the same size. Batches of
changing length leave blocks that fit nothing later: "9.96 GiB reserved by PyTorch but unallocated"
in LLaMA-Factory issue 2744. With expandable segments a block grows in place, and torchtune
measured 10.8 GiB instead of 16.4.

## How to fix it

`export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` before the training starts. Results do
not change.

## When not to

Axolotl, torchtune, Unsloth and `llamafactory-cli` set it themselves. Engines that hand weights over by CUDA IPC
(colocated vLLM, sleep modes) cannot take expandable segments in older versions, and some MIG and
WSL set-ups cannot either: the rule is silent about the former.

## Sources

* pytorch `c10/cuda/CUDACachingAllocator.cpp`, "Memory management" in PyTorch's CUDA notes
* https://github.com/pytorch/torchtune/pull/1185, https://github.com/hiyouga/LLaMA-Factory/issues/2744
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import confidence, settled, sharding_is_open
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib, of_gib
from oomlint_rules._examples import example, line, llama_factory

_YAML = llama_factory(
    "meta-llama/Llama-3.1-8B-Instruct",
    "cutoff_len: 8704\nflash_attn: fa2\nper_device_train_batch_size: {micro}\n",
    "output_dir: out\nbf16: true\n",
    lora="all",
)
_SETTING = "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n"
_LAUNCH = "torchrun --nproc_per_node 1 src/train.py train.yaml\n"
_SWIFT = line(
    """
    swift sft --model Qwen/Qwen2.5-7B-Instruct --dataset our/data.jsonl --tuner_type lora
    --torch_dtype bfloat16 --attn_impl flash_attn --max_length 8192
    --per_device_train_batch_size 4
    """
)

# src/axolotl/utils/__init__.py:84, torchtune/__init__.py:15, unsloth/__init__.py set the
# variable before CUDA starts.
_SET_IT_THEMSELVES = frozenset({"axolotl", "torchtune", "unsloth"})


class ExpandableSegmentsUnset(Rule, code="OOM710", fixes=Applicability.SAFE, cost=0):
    summary = "holes in torch's allocator may take what is left of the card"
    only_where = (Where(has_card=True),)

    bad = (
        example(
            {"train.yaml": _YAML.format(micro=4), "train.sh": _LAUNCH},
            {"train.sh": f"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True {_LAUNCH}"},
            on="1xA100-80GB",
        ),
        example(
            {"train.sh": _SWIFT},
            {"train.sh": f"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True {_SWIFT}"},
            on="1xA100-80GB",
        ),
    )
    good = (
        example(
            {"train.yaml": _YAML.format(micro=4), "train.sh": _SETTING + _LAUNCH}, on="1xA100-80GB"
        ),
        example(
            {"train.yaml": _YAML.format(micro=1), "train.sh": _LAUNCH},
            on="1xA100-80GB",
            why="there is room",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        limit, env = run.limits.gpu_bytes, run.plan.env
        if limit is None or env.expandable_segments is not None or env.alloc_conf is not None:
            return
        rollout = run.plan.objective.rollout.engine
        if run.framework in _SET_IT_THEMSELVES or rollout in ("vllm_colocate", "sglang"):
            return
        base = settled(run)
        peak, held = base.estimate.gpu.peak_bytes, _held(base)
        after = _held(base.assuming({f.env.expandable_segments: True}))
        if peak is None or held is None or after is None or peak > limit or sharding_is_open(run):
            return
        breaks = held > limit >= after
        varied = run.plan.seq.packing == "none" and run.plan.seq.pad != "max_len"
        if not breaks and not (varied and held > limit):
            return
        yield self.info(
            run,  # holes are an estimate on top of one
            f"torch is likely to reserve {of_gib(held, limit)}, with holes between blocks",
            at=(f.env.alloc_conf, f.seq.max_len, f.batch.micro),
            details=(
                f"the run needs {gib(peak)}, in blocks of changing sizes",
                f"expandable segments bring what is reserved to {gib(after)}",
                "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            ),
            confidence="low" if confidence(run) == "low" else "medium",
            resource="gpu",
            predicted=held,
            limit=limit,
            proposals=[
                Proposal.set(
                    "let torch's segments grow", {f.env.alloc_conf: "expandable_segments:True"}
                )
            ],
        )


def _held(run: Run) -> int | None:
    """What torch reserves, and the CUDA context and NCCL beside it, in bytes."""
    gpu = run.estimate.gpu
    return None if gpu.reserved_bytes is None else gpu.reserved_bytes + gpu.context_bytes
