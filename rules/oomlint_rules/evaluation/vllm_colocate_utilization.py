"""A vLLM on the same cards takes its share at start, and training gets what is left.

## What it finds

RL training whose generation engine runs on the training cards (`vllm_mode: colocate`) and keeps
its memory while the model trains, where the two together do not fit.
On unknown hardware a share above one half. And a share that does not hold the engine's own copy of the weights.

## Why it runs out of memory

vLLM fills `gpu_memory_utilization` x the whole card with weights and key-value cache before
training starts. With 0.9, a former default of TRL and still that of ms-swift, a tenth is left
for states and activations. Optimizer states appear with the first step, so the crash comes in
the second.

The share has to hold the weights first. 30 % of an 80 GB card are 24 GiB, and 14B parameters in 16 bits take 27.5: the
engine stops before anything is generated, with "No available memory for the cache blocks".

## How to fix it

Lower the share (TRL's default is 0.3 now), or let the engine sleep while the model trains
(`vllm_enable_sleep_mode`), which moves its memory away and back. Answers are the same; a small
cache generates fewer at once. A server on cards of its own takes nothing here. Of an engine that cannot start, share
the weights among GPUs (`vllm_tensor_parallel_size`), or raise its share where training has room for that.

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

from oomlint.errors import CannotEdit
from oomlint.judgement import (
    EngineShare,
    engine_share,
    feeding,
    judgement_of,
    most_severe,
    relief,
    starves_engine,
)
from oomlint.linting.rule import (
    KNOWN,
    Applicability,
    Finding,
    Proposal,
    Rule,
    Severity,
    When,
    Where,
)
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

# 14.8B parameters in 16 bits are 27.5 GiB.
_STARVED = (
    _SWIFT.replace("swift rlhf", "NPROC_PER_NODE=2 swift rlhf")
    .replace("3B-Instruct", "14B-Instruct")
    .replace("--max_length", "--vllm_tensor_parallel_size {parts} --max_length")
    .replace("--per_device_train_batch_size 4", "--per_device_train_batch_size 1")
    .replace("--gradient_accumulation_steps 2", "--gradient_accumulation_steps 4")
)

# Below this share an engine rarely has room for weights and a useful cache (TRL's default).
_USUAL = 0.3
_HALF = 0.5


class VllmColocateUtilization(Rule, code="OOM606", may_end=True, fixes=Applicability.SAFE, cost=3):
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
        mended("train.sh", _STARVED, parts=(1, 2), share=0.3, on="2xA100-80GB"),
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
        if share is None:
            return
        engine = engine_share(run.plan, run.limits.gpu_bytes)
        if engine is not None and engine.is_too_small:
            yield self._starved(run, engine)
            return
        if not rollout.sleep:
            yield from self._kept(run, share)

    def _starved(self, run: Run, engine: EngineShare) -> Finding:
        """The engine does not start, whether it sleeps later or not."""
        share = run.plan.objective.rollout.gpu_mem_util
        parts = run.plan.objective.rollout.tp or 1
        among = f", shared by {parts} GPUs" if parts > 1 else ""
        return self.finding(
            run,
            most_severe(run, "gpu"),
            f"the generation engine cannot start: {share:.0%} of a card does not hold its weights",
            at=(f.objective.rollout.gpu_mem_util, f.objective.rollout.engine),
            rests_on=(f.objective.rollout.tp, f.model.id),
            details=(
                f"its own copy of the model takes {gib(engine.weights)} of each card{among}",
                f"it may take {gib(engine.allowed)}, keys and values included",
                "share its weights among more GPUs (tensor parallel), or raise its share where training has room",
            ),
            resource="gpu",
            proposals=list(_feeding(run)),
            ends=When.ENGINE,
        )

    def _kept(self, run: Run, share: float) -> Iterable[Finding]:
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


def _feeding(run: Run) -> Iterator[Proposal]:
    """What lets the engine start and leaves training enough, the mildest first; where that takes more than one change, a
    plan for the run is its fix."""
    ranks = run.placed.plan.parallel.world or 1
    for title, changes in feeding(run.plan, run.limits.gpu_bytes, ranks):
        try:
            changed = run.what_if(changes)
        except CannotEdit:
            continue
        if (
            not starves_engine(changed.plan, run.limits.gpu_bytes)
            and not judgement_of(changed).is_lost
        ):
            yield Proposal.set(title, changes)
            return


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
