"""Evaluation between training steps leaves the allocator with pieces of the wrong size.

## What it finds

A run near the limit of a known card that evaluates while it trains, on batches of other shapes, with
neither expandable segments nor `torch_empty_cache_steps`.

## Why it runs out of memory

PyTorch's allocator keeps the blocks that it got and cuts them for later requests. An evaluation
asks for blocks of its own: another batch size, samples that are not packed, logits that training
never has. Back in training the sum is free but no single piece is large enough: *reserved but
unallocated* grows, and the run dies in the first step after an evaluation, often the second or third.
Where there is room for both sets of blocks nothing happens.

## How to fix it

`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` lets blocks grow and is the better cure where it can be
set (expandable-segments-unset). The fix sets `torch_empty_cache_steps: 4`, which gives unused
blocks back every four steps, which costs up to a tenth of the speed. Evaluating with the shapes of training
(the same batch size, packed) avoids the cause.

## When not to

Where the run fits with room, or never evaluates, the rule is silent. Axolotl, torchtune and
`llamafactory-cli` set expandable segments themselves.

## Sources

* transformers 5.23 `training_args.py:983` (*at a cost of ~10% slower performance*), `trainer.py:2086`
* PyTorch documentation, *CUDA semantics*, memory management (`expandable_segments`)
* https://github.com/axolotl-ai-cloud/axolotl/issues/1813 (12B on 2 x 24 GB, only with evaluation)
"""

from __future__ import annotations

from collections.abc import Iterable

from oomlint.judgement import judge_gpu
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import command, example, line
from oomlint_rules._fixes import changed

_STEPS = f.env.empty_cache_steps
_EVERY = 4

_OPTIONS = (
    "--use_peft True --lora_r 8 --model_max_length 3072 --gradient_checkpointing"
    " --eval_strategy {strategy} --eval_steps 100 --per_device_eval_batch_size 2"
)
_EVALUATES = command(_OPTIONS.format(strategy="steps"), "python")
_SFT = line(
    """
    accelerate launch --num_processes 1 trl/scripts/sft.py
    --model_name_or_path meta-llama/Llama-3.1-8B --dataset_name tatsu-lab/alpaca
    --use_peft --lora_r 16 --dtype bfloat16 --gradient_checkpointing --max_length 7168
    --per_device_train_batch_size 1 --per_device_eval_batch_size 1 --eval_strategy steps
    --eval_steps 100 --output_dir out
    """
)


class EvalTrainInterleaveFragmentation(Rule, code="OOM610", fixes=Applicability.SAFE, cost=3):
    summary = "evaluation between training steps fragments a card that is nearly full"
    only_where = (
        Where(plan={f.eval.enabled: (True,), f.eval.strategy: ("steps", "epoch")}, has_card=True),
    )

    bad = (
        example({"train.sh": _EVALUATES}, on="1xRTX-3090-24GB"),
        example({"sft.sh": _SFT}, on="1xRTX-3090-24GB"),
    )
    good = (
        example(
            {"train.sh": f"{_EVALUATES[:-1]} --torch_empty_cache_steps 4\n"}, on="1xRTX-3090-24GB"
        ),
        example(
            {"train.sh": f"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True {_EVALUATES}"},
            on="1xRTX-3090-24GB",
        ),
        example(
            {"train.sh": command(_OPTIONS.format(strategy="no"), "python")}, on="1xRTX-3090-24GB"
        ),
        example(
            {"train.sh": _EVALUATES}, on="1xA100-80GB", why="there is room for the blocks of both"
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        plan = run.plan
        if plan.env.expandable_segments or plan.env.empty_cache_steps:
            return
        if _same_shapes(run) or _STEPS in run.unreadable:
            return
        found = judge_gpu(run)
        if found is None or found.limit is None or found.severity is None or found.overflows:
            return
        changes = {_STEPS: _EVERY}
        if changed(run, changes) is None:
            return
        yield self.info(
            run,
            "evaluation asks for blocks of other sizes and leaves free memory in pieces",
            at=(f.eval.strategy, f.eval.every),
            details=(
                *found.context,
                "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                f"or empty the allocator's cache every {_EVERY} steps, which costs up to a tenth of the speed",
            ),
            judged=found,
            confidence="low" if found.confidence == "low" else "medium",
            proposals=[Proposal.set(f"empty the cache every {_EVERY} steps", changes)],
        )


def _same_shapes(run: Run) -> bool:
    """Packed samples of one length, as many in an evaluation as in a training batch."""
    plan = run.plan
    packed = plan.seq.packing not in (None, "none") and plan.seq.pad in ("none", "max_len")
    return packed and plan.batch.eval_micro == plan.batch.micro
