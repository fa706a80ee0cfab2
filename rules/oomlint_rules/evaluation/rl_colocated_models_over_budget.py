"""Actor, reference, reward model, critic and generation engine on the same cards.

## What it finds

PPO, GRPO, RLOO and distillation runs whose further models and engine are a tenth or more of a
predicted peak that does not fit (or is tight). Where the engine's share alone is the
cause, `vllm-colocate-utilization` leads and this one only informs.

## Why it runs out of memory

They add up. A reference, a reward model and a teacher take 2 bytes a parameter each, a critic is
trained and takes as much as the actor, 16 to 18 bytes a parameter in mixed precision, and a
colocated vLLM its share of the card. ZeRO-3 and FSDP shard what they wrap.

## How to fix it

Train an adapter (the reference is then the base model without it), drop what is not needed (GRPO
needs no critic, and no reference at `beta: 0`), offload the optimizer states, let the engine
sleep while the model trains, or put reward model and engine on cards of their own.

## When not to

Trainers that move models to the host between phases (verl's hybrid engine, OpenRLHF with sleep
switched on) never hold all of them at once.

## Sources

* Ouyang et al. 2022, arXiv 2203.02155 (four models of PPO); Shao et al. 2024, arXiv 2402.03300 (GRPO)
* https://github.com/verl-project/verl/issues/855, https://github.com/OpenRLHF/OpenRLHF/issues/1066,
  https://github.com/OpenRLHF/OpenRLHF/issues/742
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oomlint.judgement import judge_gpu, relief
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Severity, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules._examples import each, example, line, trl
from oomlint_rules._remedies import lowered

_TRL = trl(
    "Qwen/Qwen2.5-7B-Instruct",
    "reward_funcs: [accuracy_reward]\nbeta: {beta}\nnum_generations: 8\n",
    "max_completion_length: 512\nper_device_train_batch_size: 1\n",
    "gradient_checkpointing: true\nbf16: true\noutput_dir: out\n",
    dataset="trl-lib/tldr",
)
_SWIFT = line(
    """
    swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B-Instruct --dataset our/tasks.jsonl
    --reward_funcs accuracy --tuner_type full --torch_dtype bfloat16 --beta {beta}
    --max_length 1024 --max_completion_length 512 --num_generations 8
    --per_device_train_batch_size 1
    """
)
_KINDS = ("ppo", "grpo", "rloo", "gkd")
# Below this part of the peak the actor itself is the cause.
_SHARE = 0.1


class RlColocatedModelsOverBudget(Rule, code="OOM607", fixes=Applicability.SAFE, cost=6):
    summary = "the models of RL training together are more than the cards hold"
    only_where = (Where(plan={f.objective.kind: _KINDS}, has_card=True),)

    bad = each({"grpo.yaml": _TRL, "train.sh": _SWIFT}, beta=0.04, on="1xA100-80GB")
    good = (
        example({"grpo.yaml": _TRL.format(beta=0.0)}, on="1xA100-80GB"),
        example({"train.sh": _SWIFT.format(beta=0.04)}, on="1xB200-180GB"),
        example(
            {"grpo.yaml": _TRL.format(beta="0.04\nuse_peft: true")},
            on="1xA100-80GB",
            why="an adapter needs no reference of its own",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        beside = list(_beside(run))
        if not beside:
            return
        before = judge_gpu(run)
        alone = judge_gpu(
            run.assuming(
                {
                    f.objective.ref_model: "none",
                    f.objective.reward_model: "none",
                    f.objective.teacher: "none",
                    f.objective.critic: "none",
                    # One that sleeps while the others work is no part of what is named.
                    **({f.objective.rollout.engine: "none"} if _ENGINE in beside else {}),
                }
            )
        )
        if before is None or alone is None or before.severity is None:
            return
        others = before.predicted - alone.predicted
        if others < _SHARE * before.predicted:
            return
        own = "the trained model fits" if alone.holds else f"the need is {gib(alone.predicted)}"
        severity = lowered(before.severity, run)
        # Sizes of further models are taken from the actor; close to the limit that is a guess.
        guessed = any(a.field.startswith("objective.") for a in run.estimate.assumptions)
        if _engine_decides(run) or (guessed and before.predicted <= 1.1 * (before.limit or 0)):
            severity = Severity.INFO
        yield self.finding(
            run,
            severity,
            f"what stands beside the trained model takes {gib(others)}",
            at=(f.objective.ref_model, f.objective.kind, f.model.id),
            details=(*before.context, f"it is {', '.join(beside)}", f"without it {own}"),
            judged=before,
            proposals=list(_proposals(run)),
        )


_ENGINE = "the generation engine"


def _beside(run: Run) -> Iterator[str]:
    objective = run.plan.objective
    if objective.ref_model == "copy":
        yield "a reference model"
    for role in ("reward_model", "critic", "teacher"):
        if getattr(objective, role) not in (None, "none"):
            yield f"a {role.replace('_', ' ')}"
    if objective.rollout.engine in ("vllm_colocate", "sglang") and not objective.rollout.sleep:
        yield _ENGINE


def _engine_decides(run: Run) -> bool:
    """Whether a generation engine that sleeps, or takes less, is all that is needed."""
    for changes in (
        {f.objective.rollout.gpu_mem_util: 0.3},
        {f.objective.rollout.sleep: True},
    ):
        found = relief(run, changes)
        if found is not None and found.is_worthwhile and found.suffices:
            return True
    return False


def _proposals(run: Run) -> Iterator[Proposal]:
    if run.plan.parallel.backend != "zero":
        return
    changes = {f.offload.optimizer: "cpu"}
    found = relief(run, changes)
    if found is not None and found.suffices and run.limits.host_bytes is not None:
        yield Proposal.set("offload the optimizer states to host RAM", changes)
