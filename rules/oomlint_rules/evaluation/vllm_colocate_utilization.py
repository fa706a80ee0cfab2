"""A vLLM on the same cards takes its share at start, and training gets what is left.

## What it finds

RL training whose generation engine runs on the training cards (`vllm_mode: colocate`) and keeps
its memory while the model trains, where the two together do not fit.
On unknown hardware a share above one half.

## Why it runs out of memory

vLLM fills `gpu_memory_utilization` x the whole card with weights and key-value cache before
training starts. With 0.9, a former default of TRL and still that of ms-swift, a tenth is left
for states and activations. Optimizer states appear with the first step, so the crash comes in
the second.

## How to fix it

Lower the share (TRL's default is 0.3 now), or let the engine sleep while the model trains
(`vllm_enable_sleep_mode`), which moves its memory away and back. Answers are the same; a small
cache generates fewer at once. A server on cards of its own takes nothing here.

## When not to

Where the engine sleeps, or runs as a server.

## Sources

* TRL `trainer/grpo_config.py` (`vllm_gpu_memory_utilization`, `vllm_enable_sleep_mode`)
* https://github.com/huggingface/trl/issues/2688 (0.9 on H100), https://github.com/huggingface/trl/pull/3394
* ms-swift `rlhf_trainers/args_mixin.py:37` (0.9)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from oomlint.judgement import relief
from oomlint.linting.rule import KNOWN, Applicability, Finding, Proposal, Rule, Severity, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import example, line, mended, trl

_TRL = trl(
    "Qwen/Qwen2.5-3B-Instruct",
    "reward_funcs: [accuracy_reward]\nuse_peft: true\nuse_vllm: true\n",
    "vllm_mode: colocate\nvllm_gpu_memory_utilization: {share}\nnum_generations: 8\n",
    "max_completion_length: 512\nper_device_train_batch_size: 4\n",
    "gradient_accumulation_steps: 2\ngradient_checkpointing: true\nbf16: true\n",
    "output_dir: out\n",
    dataset="trl-lib/tldr",
)
_SWIFT = line(
    """
    swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-3B-Instruct --dataset our/tasks.jsonl
    --reward_funcs accuracy --tuner_type lora --torch_dtype bfloat16 --use_vllm true
    --vllm_mode colocate --vllm_gpu_memory_utilization {share} --max_length 1024
    --max_completion_length 512 --num_generations 8 --per_device_train_batch_size 4
    --gradient_accumulation_steps 2
    """
)

# Below this share an engine rarely has room for weights and a useful cache (TRL's default).
_USUAL = 0.3
_HALF = 0.5


class VllmColocateUtilization(Rule, code="OOM606", fixes=Applicability.SAFE, cost=3):
    summary = "the generation engine on the training cards takes too large a share of them"
    only_where = (
        Where(
            plan={
                f.objective.rollout.engine: ("vllm_colocate", "sglang"),
                f.objective.rollout.gpu_mem_util: KNOWN,
            }
        ),
    )

    bad = (
        mended("grpo.yaml", _TRL, share=(0.9, 0.3), on="1xA100-40GB"),
        mended("train.sh", _SWIFT, share=(0.9, 0.3), on="1xA100-40GB"),
        example({"grpo.yaml": _TRL.format(share=0.9)}),
    )
    good = (
        example({"grpo.yaml": _TRL.format(share=0.3)}, on="1xA100-40GB"),
        example(
            {"grpo.yaml": _TRL.format(share=0.9).replace("colocate", "server")},
            on="1xA100-40GB",
            why="a server has cards of its own",
        ),
        example({"grpo.yaml": _TRL.format(share=0.3)}),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        rollout = run.plan.objective.rollout
        share = rollout.gpu_mem_util
        if share is None or rollout.sleep:
            return
        taken = f"the generation engine takes {share:.0%} of each card at start and keeps it"
        if run.limits.gpu_bytes is None:
            if share > _HALF:
                yield self.finding(
                    run,
                    Severity.WARNING if share >= 0.8 else Severity.INFO,
                    taken,
                    at=(f.objective.rollout.gpu_mem_util, f.objective.rollout.engine),
                    details=(
                        f"{1 - share:.0%} is left for the weights, states and activations of training",
                    ),
                    confidence="medium",
                    resource="gpu",
                    proposals=list(_proposals(run, share)),
                )
            return
        changes = {f.objective.rollout.gpu_mem_util: min(share, _USUAL)}
        found = relief(run, changes if share > _USUAL else {f.objective.rollout.sleep: True})
        if found is None or found.severity is None or not found.is_worthwhile:
            return
        before = found.before
        pool = share * run.limits.gpu_bytes
        way = f"with {_USUAL:.0%}" if share > _USUAL else "if it sleeps while the model trains"
        yield self.finding(
            run,
            found.severity,
            taken,
            at=(f.objective.rollout.gpu_mem_util, f.objective.rollout.engine),
            details=(*before.context, f"that is {gib(pool)}", f"{way} {found.sentence}"),
            judged=before,
            proposals=list(_proposals(run, share)),
        )


def _proposals(run: Run, share: float) -> Iterator[Proposal]:
    options: list[tuple[str, dict[Any, Any]]] = []
    if share > _USUAL:
        options.append(
            (
                f"give the engine {_USUAL:.0%} of the card",
                {f.objective.rollout.gpu_mem_util: _USUAL},
            )
        )
    options.append(
        ("let the engine sleep while the model trains", {f.objective.rollout.sleep: True})
    )
    for title, changes in options:
        found = relief(run, changes)
        if found is not None and (found.suffices or run.limits.gpu_bytes is None):
            yield Proposal.set(title, changes)
