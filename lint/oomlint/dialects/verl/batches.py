"""How verl cuts its batches: mini batches over the ranks, and micro batches by number or by tokens.

Read from verl 0.8.0.dev (b178a3cd, 2026-01-29); ``VL`` below is its ``verl`` package.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.world import batch, share_of, steps_through
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.dialects.verl.engine import running_trainer
from oomlint.dialects.verl.keys import SFT_SOURCE, SOURCE, own
from oomlint.dialects.verl.releases import MICRO_PER_GPU
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

batches = Meaning(batch)


@batches.derive(f.batch.micro_unit)
def counts_completions(run: Cells) -> Any:
    return "completions" if running_trainer(run) == "ppo" else None


def _per_rank(run: Cells) -> int | None:
    """VL/workers/fsdp_workers.py:240: prompts x responses, over the data-parallel ranks."""
    if running_trainer(run) == "ppo":
        mini, responses = run[own.mini], run[f.objective.rollout.n]
        total = mini * responses if mini and responses else None
    else:
        total = run[own.train_batch]
    return share_of(total, run[f.parallel.dp])


def _counts_of_all(run: Cells) -> bool:
    """Whether ``micro_batch_size``, of all ranks, counts: PPO reads it in every release, SFT's
    trainers in the first alone, and in some copies."""
    trainer, copy = running_trainer(run), run[own.copy_micro]
    if trainer != "sft":
        return trainer == "ppo" and run.mentions(own.micro_of_all)
    if copy is not None:
        return copy == "divided"
    return run.mentions(own.micro_of_all) and not run.has(MICRO_PER_GPU)


@batches.derive(f.batch.micro)
def micro_of_rank(run: Cells) -> Any:
    if running_trainer(run) == "sft" and run[own.copy_micro] == "whole":
        return run[own.micro_of_all]
    if not _counts_of_all(run):
        return None
    return share_of(run[own.micro_of_all], run[f.parallel.dp])


@batches.default(f.batch.micro, source=SFT_SOURCE)
def usual_micro(run: Cells) -> Any:
    """Of what counts for all ranks nothing is left to it."""
    return 4 if running_trainer(run) != "ppo" and not _counts_of_all(run) else None


@micro_of_rank.written
def _(micro: Any, run: Cells, wishes: Wishes) -> Wishes:
    if run[own.dynamic]:
        length = run[f.seq.max_len]
        if length is None:
            raise CannotEdit("the token budget depends on a length that is not known here")
        return {own.max_tokens: -(-micro * length // (run[f.parallel.ulysses] or 1))}
    if _counts_of_all(run):
        dp = run[f.parallel.dp]
        if dp is None:
            raise CannotEdit("a micro batch of all ranks depends on the number of GPUs")
        return {own.micro_of_all: micro * dp}
    return {f.batch.micro: micro}


@batches.override(f.batch.micro)
def rows_of_budget(run: Cells) -> Any:
    filled = _filled(run)
    return None if filled is None else filled[0]


@batches.derive(f.batch.max_tokens_per_gpu)
def tokens_of_budget(run: Cells) -> Any:
    filled = _filled(run)
    return None if filled is None else filled[1]


def _filled(run: Cells) -> tuple[int | None, int] | None:
    """Rows and tokens of micro batches under a budget of tokens: as many as the samples need, and
    all alike (utils/seqlen_balancing.py:348 rearrange_micro_batches).

    Samples that fill one and a half budgets make two micro batches of three quarters. A full one
    beside the gradients of another takes two budgets of tokens, and no rank has more than the
    samples of its mini batch.
    """
    if not run[own.dynamic]:
        return None
    length, samples = run[f.seq.max_len], _per_rank(run)
    # A budget for each rank of a sequence-parallel group (workers/actor/dp_actor.py:552).
    budget = (run[f.parallel.ulysses] or 1) * (run[own.max_tokens] or 0)
    if not budget:
        return None
    if not length:
        return None, budget
    if not samples:
        return max(1, budget // length), budget
    count = min(samples, -(-samples * length // budget))
    rows = -(-samples // count)
    return rows, min(budget, rows * length) if count <= 2 else budget


@tokens_of_budget.written
def _(tokens: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not run[own.dynamic]:
        raise CannotEdit("a token budget counts only with use_dynamic_bsz")
    return {own.max_tokens: max(1, tokens // (run[f.parallel.ulysses] or 1))}


@batches.derive(f.batch.grad_accum)
def accumulation(run: Cells) -> Any:
    return steps_through(_per_rank(run), run[f.batch.micro])


@accumulation.written
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    """Micro batch x accumulation x ranks is the mini batch, which a fix leaves as it is."""
    rows, before = run[f.batch.micro], run[f.batch.grad_accum]
    micro = wishes.get(f.batch.micro, rows)
    if micro is None or rows is None or before is None:
        raise CannotEdit("gradient accumulation follows from the number of GPUs")
    if steps * micro != rows * before:
        raise CannotEdit("gradient accumulation follows from the mini batch in verl")
    return {}


@batches.derive(f.objective.rollout.rollout_micro_batch)
def scored_of_rank(run: Cells) -> Any:
    """``log_prob_micro_batch_size`` is of all ranks (VL/workers/fsdp_workers.py init)."""
    return share_of(run[own.scored_of_all], run[f.parallel.dp])


def _answers_of_rank(run: Cells) -> int | None:
    """All answers of a step that one rank scores (VL/trainer/ppo/ray_trainer.py fit)."""
    prompts, answers = run[own.train_batch], run[f.objective.rollout.n]
    dp = run[f.parallel.dp]
    if not (prompts and answers and dp):
        return None
    return max(1, prompts * answers * (run[own.agents] or 1) // dp)


@batches.override(
    f.objective.rollout.rollout_micro_batch, source="VL/workers/actor/dp_actor.py compute_log_prob"
)
def scored_at_once(run: Cells) -> Any:
    """``batch.split(micro_batch_size)``: no micro batch holds more than the rank has answers."""
    rows, answers = run[f.objective.rollout.rollout_micro_batch], _answers_of_rank(run)
    if running_trainer(run) != "ppo" or rows is None or answers is None or rows <= answers:
        return None
    return answers


@batches.derive(f.objective.rollout.scored_tokens, source=f"{SOURCE} trainer/config/rollout")
def scored_tokens(run: Cells) -> Any:
    """The log probabilities of all answers of a step are taken under a budget of their own, the
    actor's where nothing else is said."""
    dynamic = run[own.scores_dynamic]
    if running_trainer(run) != "ppo" or not (run[own.dynamic] if dynamic is None else dynamic):
        return None
    samples, length = _answers_of_rank(run), run[f.seq.max_len]
    ranks = run[f.parallel.ulysses] or 1
    # Read last, as what decides: where a finding points.
    budget = ranks * (run[own.scored_tokens] or run[own.max_tokens] or 0)
    if not (budget and samples and length):
        return budget or None
    count = min(samples, -(-samples * length // budget))
    return min(budget, -(-samples // count) * length)


@scored_tokens.written
def _(tokens: Any, run: Cells, wishes: Wishes) -> Wishes:
    """No budget is below one sample: ``rearrange_micro_batches`` (VL/utils/seqlen_balancing.py) asserts it."""
    each = tokens // (run[f.parallel.ulysses] or 1)
    if tokens < (run[f.seq.max_len] or 0):
        raise CannotEdit("a budget of tokens holds one sample at least")
    return {own.scored_tokens: each}


@batches.derive(f.batch.eval_micro)
def validated_rows(run: Cells) -> Any:
    """PPO validates by generation alone; under a token budget a row is all of it."""
    is_single = running_trainer(run) == "ppo" or run[own.dynamic]
    return 1 if is_single else run[f.batch.micro]


batches.cannot_say("verl has no batch size of its own for validation", f.batch.eval_micro)
