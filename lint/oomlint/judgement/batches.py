"""Whether a run is at risk only for what was read of how a program of its project's own makes batches.

Which samples such a program lays before its model, where it cuts them, how many at once and whether it keeps what their
layers compute is written in code, wherever its author liked it best. What the model and its states need says a call or
two. So a need that is more than there is whatever the batches are is told as any other; one that a single sample, with
its activations computed again, would not have rests on all of that code, unless it fills every sample up to a length, or
the model learns from its own answers and a config says how many prompts are answered at once and how long both may be: a
library's trainer makes these batches (TRL 0.14.0 trainer/grpo_trainer.py _prepare_inputs).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomlint.judgement.lengths import coming_together
from oomlint.judgement.risk_model import holds
from oomlint.plan.fields import f
from oomlint.plan.training import REINFORCING
from oomlint.runs.run import Run

# Of 15 errors on strangers' repositories on runs of such programs that would rather live so, 13 were false and 2 true; of
# the other errors on memory 30 of 129 were false (benchmarks/strangers/situations.jsonl, the draws 22 to 33). The two
# exceptions below, profiles and answers as configured, came after that count.
_LEAST: Mapping[Any, Any] = {
    f.batch.micro: 1,
    f.batch.eval_micro: 1,
    f.checkpointing.mode: "full",
}

# What fixes the batches of a model that learns from its own answers.
_OF_ANSWERS: tuple[Any, ...] = (
    f.batch.micro,
    f.objective.rollout.max_prompt_tokens,
    f.objective.rollout.max_completion_tokens,
)


def makes_own_batches(run: Run) -> bool:
    """Whether the run is a program of its project's own, of which the code was read, and its samples are padded to one
    another; what a profile knows is no such program."""
    if not run.dialect.reads_programs or coming_together(run) == "filled":
        return False
    if _answers_as_configured(run):
        return False
    if not any(claim.is_program for claim in run.claims):
        return False
    from oomlint.dialects.profiles.build import meaning_of_script  # which configs do without

    return meaning_of_script(block for block, _ in run.parts.blocks) is None


def _answers_as_configured(run: Run) -> bool:
    """Whether a config or a command says what fixes the batches of a run that learns from its own answers."""
    origins = [run.origin(field) for field in _OF_ANSWERS]
    return run.plan.objective.kind in REINFORCING and all(
        each is not None
        and each.kind == "explicit"
        and each.block is not None
        and not each.block.is_code
        for each in origins
    )


def lives_with_least_batch(run: Run, limit: int, phase: str | None = None) -> bool:
    """Whether a GPU with ``limit`` bytes rather holds a run whose own program makes the batches, if these are of one
    sample and activations are computed again."""
    return makes_own_batches(run) and holds(run.assuming(_LEAST).estimate, "gpu", limit, phase)
