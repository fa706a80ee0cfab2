"""How AReaL cuts what a step has into micro batches, and how long samples are.

Read from inclusionAI/AReaL 4aef98d8 (2026-05-21); ``AR`` below is its ``areal`` package.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.areal.keys import ARGS, SOURCE, own
from oomlint.dialects.areal.roles import is_rl
from oomlint.dialects.cells import Cells
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

batches = Meaning()

_MEGATRON = f"{SOURCE} areal/engine/megatron_engine.py"
_DATA = f"{SOURCE} areal/utils/data.py"
_O = f.objective
_R = f.objective.rollout


@batches.derive(f.seq.max_len, source=f"{ARGS}:166-175, {SOURCE} areal/utils/seqpack.py:239")
def length(run: Cells) -> Any:
    """Of RL a prompt with its answer; where nothing bounds samples, more than a micro batch takes stops the run."""
    tokens, prompt = run[own.tokens], run[own.prompt_len]
    if not is_rl(run):
        return prompt or tokens
    whole = run[own.whole_len]
    found = min(prompt + run[own.answer_len], whole) if prompt else whole
    return min(found, tokens) if tokens else found


@length.written
def _(tokens: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not is_rl(run):
        return {own.prompt_len: tokens}
    rest = tokens - (run[own.prompt_len] or 0)
    if not run[own.prompt_len]:
        return {own.whole_len: tokens}
    if rest < 1:
        raise CannotEdit("prompts alone are as long (train_dataset.max_length)")
    return {own.answer_len: rest}


@batches.derive(_R.max_prompt_tokens, _R.max_completion_tokens, source=f"{ARGS}:169, 2613")
def parts_of_sample(run: Cells) -> Any:
    if not is_rl(run):
        return None
    return {
        _R.max_prompt_tokens: run[own.prompt_len],
        _R.max_completion_tokens: run[own.answer_len],
    }


@batches.written(_R.max_completion_tokens)
def _(tokens: Any, run: Cells, wishes: Wishes) -> Wishes:
    return {own.answer_len: tokens}


@batches.derive(f.seq.packing, f.seq.pad, source=f"{_DATA}:815")
def packing(run: Cells) -> Any:
    return {f.seq.packing: "varlen", f.seq.pad: "max_len" if run[own.fills] else "none"}


def _rows(run: Cells) -> int | None:
    """Samples of one step on one data-parallel rank."""
    dp, samples = run[f.parallel.dp], run[own.prompts]
    if not dp or not samples:
        return None
    if is_rl(run):
        samples = samples * (run[_R.n] or 1) // (run[own.minibatches] or 1)
    pairs = 2 if run[_O.kind] in ("dpo", "rm") else 1
    return max(1, samples * pairs // dp)


@batches.derive(f.batch.max_tokens_per_gpu, source=f"{_DATA}:693, {_MEGATRON}:1955")
def budget(run: Cells) -> Any:
    """Of all ranks that share a sample; no step has more than its own samples."""
    tokens, rows, longest = run[own.tokens], _rows(run), run[f.seq.max_len]
    if not tokens:
        return None
    return min(tokens, rows * longest) if rows and longest and not run[own.fills] else tokens


@budget.written
def _(tokens: Any, run: Cells, wishes: Wishes) -> Wishes:
    longest = wishes.get(f.seq.max_len) or _floor(run)
    if longest and tokens < longest:
        raise CannotEdit("a micro batch must have room for the longest sample")
    return {own.tokens: tokens}


def _floor(run: Cells) -> int | None:
    """The longest sample that may come, whatever a micro batch has room for."""
    prompt = run[own.prompt_len]
    if not is_rl(run):
        return prompt
    return min(prompt + run[own.answer_len], run[own.whole_len]) if prompt else None


@batches.derive(f.batch.micro, f.batch.grad_accum, f.batch.micro_unit, source=f"{_DATA}:693-760")
def micro_batches(run: Cells) -> Any:
    """Without a budget all that a step has is one micro batch, or ``n_mbs``; a pipeline takes two a stage."""
    rows, tokens, longest = _rows(run), run[own.tokens], run[f.seq.max_len]
    unit = "completions" if is_rl(run) else None
    if rows is None:
        return None
    stages = run[f.parallel.pp] or 1
    least = max(run[own.parts] or 1, 2 * stages if stages > 1 else 1)
    if tokens and longest:
        steps = max(least, -(-rows * longest // tokens))
        return {
            f.batch.micro: max(1, tokens // longest),
            f.batch.grad_accum: steps,
            f.batch.micro_unit: unit,
        }
    each = max(1, -(-rows // least))
    return {f.batch.micro: each, f.batch.grad_accum: least, f.batch.micro_unit: unit}


@batches.written(f.batch.micro)
def _(rows: Any, run: Cells, wishes: Wishes) -> Wishes:
    longest = wishes.get(f.seq.max_len) or run[f.seq.max_len]
    if longest is None:
        raise CannotEdit("the budget of tokens depends on a length that is not known")
    pairs = 2 if run[_O.kind] in ("dpo", "rm") else 1
    return {own.tokens: max(rows, pairs) * longest}


batches.follows(f.batch.grad_accum)


@batches.derive(_R.scored_tokens, source=f"{SOURCE} areal/trainer/ppo/actor.py:80")
def scored(run: Cells) -> Any:
    """Old log-probabilities are taken in micro batches like those of training."""
    scores = is_rl(run) and (run[own.scores] or run[own.decouples])
    return run[f.batch.max_tokens_per_gpu] if scores else None


@batches.derive(_R.generation_batch, source=f"{SOURCE} areal/trainer/ppo/actor.py:80")
def answers(run: Cells) -> Any:
    return run[own.prompts] * (run[_R.n] or 1) if is_rl(run) else None


batches.follows(_R.scored_tokens)
