"""A round of generation that the number of answers to a prompt does not divide.

## What it finds

GRPO and RLOO whose completions of one round (micro batch x ranks x steps that share the round) are
no multiple of `num_generations`: in TRL and ms-swift where the files say how many GPUs there are, in
Axolotl always, which counts those of one rank and wants as many groups of them as there are ranks.
Of a script of your own that takes TRL's options it speaks if the script starts TRL's `GRPOTrainer`.

## Why it runs out of memory

Since TRL 0.15 `per_device_train_batch_size` counts completions; until 0.14 it counted prompts, each
with all of its answers in memory at once. A config that was written for the one is wrong for the
other: with the old meaning 8 answers to each of 4 prompts are 32 sequences on the card, with the
new one 4. Now such a config stops with *generation_batch_size must be divisible by
num_generations*, in TRL once the model is loaded.

TRL's GRPO and RLOO also stop with a single answer to a prompt: they compare each with the mean of all.

## How to fix it

More accumulation, so that the round holds whole groups; the fix proposes the least that does. The
memory stays, the global batch grows: it is unsafe.

## When not to

Where TRL 0.14 or older is pinned. A config of which only a neighbour's command shows on how many processes it might be
started is not judged: that command may start a trainer that counts otherwise.

## Sources

* TRL f2cd5771 `trainer/grpo_config.py:1077`, `:1110` and `:1116`, `trainer/rloo_config.py:684`; https://github.com/huggingface/trl/pull/2776
* Axolotl 067b021c `utils/schemas/validation.py:789` and `:875`; ms-swift 3602360a
  `rlhf_trainers/args_mixin.py:221`
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from oomlint.linting.rule import KNOWN, Applicability, Finding, Proposal, Rule, When, Where
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint_rules._examples import AXOLOTL, example, line, mended, text

_ROUND = f.objective.rollout.generation_batch
_ACCUMULATION = f.batch.grad_accum

# Whose advantages are those over the mean of a prompt's answers.
_COMPARE = ("grpo", "rloo")

_AXOLOTL = (
    AXOLOTL.replace("micro_batch_size: 1", "micro_batch_size: 3")
    + "gradient_accumulation_steps: {steps}\nrl: grpo\ntrl:\n  num_generations: 8\n"
)
_AXOLOTL_ON_8 = "accelerate launch --num_processes 8 -m axolotl.cli.train axolotl.yaml\n"
_SWIFT = line(
    """
    NPROC_PER_NODE=2 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-3B-Instruct
    --dataset our/tasks.jsonl --reward_funcs accuracy --tuner_type lora
    --torch_dtype bfloat16 --num_generations 8 --per_device_train_batch_size 2
    --gradient_accumulation_steps {steps}
    """
)
_TRL = text(
    """
    from trl import GRPOConfig, GRPOTrainer

    config = GRPOConfig(output_dir='o', per_device_train_batch_size=2, num_generations={answers})
    GRPOTrainer(model='Qwen/Qwen2.5-0.5B', reward_funcs=score, args=config, train_dataset=tasks).train()
    """
)


class GrpoBatchSemantics(Rule, code="OOM612", may_end=True, fixes=Applicability.UNSAFE, cost=8):
    summary = "a round of generation that holds no whole groups of answers"
    only_where = (
        Where(plan={f.objective.rollout.generation_batch: KNOWN, f.objective.rollout.n: KNOWN}),
    )

    bad = (
        mended("axolotl.yaml", _AXOLOTL, steps=(2, 8)),
        example(
            {"axolotl.yaml": _AXOLOTL.format(steps=8), "train.sh": _AXOLOTL_ON_8},
            {"axolotl.yaml": _AXOLOTL.format(steps=24)},
            why="24 completions are three groups of 8, and there are eight ranks",
        ),
        mended("train.sh", _SWIFT, steps=(1, 2)),
        example(
            {"train.py": _TRL.format(answers=1)},
            on="1xH100-80GB",
            why="the mean of one answer is itself",
        ),
    )
    good = (
        example({"train.py": _TRL.format(answers=2)}, on="1xH100-80GB"),
        example({"axolotl.yaml": _AXOLOTL.format(steps=8)}),
        example({"train.sh": _SWIFT.format(steps=2)}),
        example(
            {"train.sh": _SWIFT.format(steps=1).replace("NPROC_PER_NODE=2 ", "")},
            on="8xH100-80GB",
            why="nothing in the files says how many processes start",
        ),
    )

    def check(self, run: Run) -> Iterable[Finding]:
        rollout, origin = run.plan.objective.rollout, run.origin(_ROUND)
        total, group = rollout.generation_batch, rollout.n
        if not total or not group or origin is None:
            return
        if group < 2 and run.framework == "trl" and run.plan.objective.kind in _COMPARE:
            yield self.error(
                run,
                "one answer to a prompt has no others to be compared with",
                at=(f.objective.rollout.n,),
                details=("the run stops with an error", "it takes at least 2 answers to a prompt"),
                confidence="high",
                ends=When.LOADED,
            )
            return
        if f.parallel.world in origin.inputs and (run.is_started_by_guess or not _counted(run)):
            return
        least = _least(run, group)
        if total % group:
            problem = f"no multiple of {group} answers to a prompt"
        elif total < least:
            problem = f"fewer than {least}, {group} answers a rank"
        else:
            return
        yield self.error(
            run,
            f"a generation round makes {total} completions, {problem}",
            at=(_ROUND, f.objective.rollout.n),
            details=(
                "the run stops with an error",
                "the micro batch counts completions (in TRL since 0.15), not prompts",
            ),
            confidence="medium",
            proposals=_proposals(run, total, group, least),
            ends=When.LOADED,
        )


def _counted(run: Run) -> bool:
    """Whether a file of this run says how many processes start."""
    ranks = run.settings.get(f.parallel.gpus_per_node)
    return ranks is not None and ranks.origin.kind not in ("catalog", "assumed", "default")


def _least(run: Run, group: int) -> int:
    """Completions that Axolotl wants of a rank's own product: a group for every rank."""
    world = run.plan.parallel.world
    if run.framework != "axolotl" or world is None or not _counted(run):
        return group
    return group * world


def _proposals(run: Run, total: int, group: int, least: int) -> Iterable[Proposal]:
    """Accumulation steps that make enough whole groups, where it is they that share a round."""
    steps = run.plan.batch.grad_accum
    if run.is_explicit(_ROUND) or not steps or total % steps:
        return
    a_step = total // steps
    whole = group // gcd(group, a_step)
    wanted = -(-max(steps, -(-least // a_step)) // whole) * whole
    yield Proposal.set(
        f"accumulate over {wanted} micro batches", {_ACCUMULATION: wanted}, Applicability.UNSAFE
    )
