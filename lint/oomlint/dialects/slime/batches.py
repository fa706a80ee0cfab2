"""How slime cuts the answers of a rollout: steps, micro batches by number or by tokens, lengths.

Read from THUDM/slime 624b824a (2026-08-21); ``SL`` below is its ``slime`` package.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.world import keep_share, share_of, steps_through
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.dialects.megatron.fields import mg
from oomlint.dialects.slime.keys import ARGUMENTS, SOURCE, own
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

batches = Meaning()

_SCHEDULE = f"{SOURCE} slime/utils/dp_schedule.py"
_R = f.objective.rollout

batches.always(f.batch.micro_unit, "completions", _SCHEDULE)
batches.always(f.seq.packing, "varlen", f"{SOURCE} slime/backends/megatron_utils/data.py")
batches.always(f.seq.pad, "none", f"{SOURCE} slime/backends/megatron_utils/data.py")

# -- lengths ---------------------------------------------------------------------------------------


@batches.assume(
    _R.max_prompt_tokens, why="nobody limits the prompts; few have more than 1,024 tokens"
)
def usual_prompt(run: Cells) -> Any:
    """What SL/utils/arguments.py:2029 makes of the longest context leaves one token to the answer,
    and says nothing of prompts."""
    return 1024 if run[_R.max_completion_tokens] and not run[own.longest] else None


@batches.derive(f.seq.max_len, source=f"{ARGUMENTS}:2029")
def length(run: Cells) -> Any:
    """Of a prompt and its answer. The length that Megatron is told is a place holder
    (SL/backends/megatron_utils/arguments.py:164)."""
    if run[own.longest]:
        return run[own.longest]
    prompt, answer = run[_R.max_prompt_tokens], run[_R.max_completion_tokens]
    return prompt + answer if prompt and answer else None


@length.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if run.says(own.longest):
        return {own.longest: wanted}
    rest = wanted - (run[_R.max_prompt_tokens] or wanted)
    if rest < 1:
        raise CannotEdit("the prompts alone are longer: set --rollout-max-prompt-len")
    return {_R.max_completion_tokens: rest}


# -- steps and micro batches -----------------------------------------------------------------------


@batches.derive(f.batch.global_, source=f"{ARGUMENTS}:1971")
def answers_of_step(run: Cells) -> Any:
    total, steps = run[mg.global_batch], run[own.steps]
    if steps is None:
        return total
    prompts, each = run[own.prompts], run[_R.n]
    return max(1, prompts * each // steps) if prompts and each else total


def _samples(run: Cells) -> int | None:
    """Those of one rank in one step."""
    return share_of(run[f.batch.global_], run[f.parallel.dp])


def _budget(run: Cells) -> int | None:
    """Tokens of one micro batch over the ranks that share its sequences. A sample longer than the
    budget is a micro batch of its own (SL/utils/dp_schedule.py:117, seqlen_balancing.py:180)."""
    most = run[own.max_tokens] if run[own.dynamic] else None
    if most is None:
        return None
    return max(most * (run[f.parallel.cp] or 1), run[f.seq.max_len] or 0)


@batches.derive(f.batch.max_tokens_per_gpu, source=_SCHEDULE)
def tokens_of_budget(run: Cells) -> Any:
    return _budget(run)


@tokens_of_budget.written
def _(tokens: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not run[own.dynamic]:
        raise CannotEdit("a token budget counts only with --use-dynamic-batch-size")
    longest = run[f.seq.max_len] or 0
    if tokens < longest:
        raise CannotEdit(
            f"the longest sample has {longest:,} tokens and is never divided: raise"
            " --context-parallel-size or lower --rollout-max-response-len"
        )
    return {own.max_tokens: max(1, tokens // (run[f.parallel.cp] or 1))}


@batches.override(f.batch.micro, source=_SCHEDULE)
def rows_of_budget(run: Cells) -> Any:
    """``--micro-batch-size`` says nothing beside a budget of tokens."""
    budget, longest = _budget(run), run[f.seq.max_len]
    if budget is None:
        return None
    samples = _samples(run)
    rows = max(1, budget // longest) if longest else 1
    return rows if samples is None else min(rows, samples)


@rows_of_budget.written
def _(micro: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not run[own.dynamic]:
        return {f.batch.micro: micro}
    longest = run[f.seq.max_len]
    if longest is None:
        raise CannotEdit("how long samples are is not known: lower --max-tokens-per-gpu by hand")
    return {own.max_tokens: -(-micro * longest // (run[f.parallel.cp] or 1))}


@batches.derive(f.batch.grad_accum, source=_SCHEDULE)
def accumulation(run: Cells) -> Any:
    return steps_through(_samples(run), run[f.batch.micro])


@accumulation.written
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    return keep_share(steps, run, wishes, "--global-batch-size")


batches.always(f.batch.eval_micro, 1, f"{SOURCE} train.py: evaluation generates, no more")
batches.cannot_say("slime evaluates by generation alone", f.batch.eval_micro)
