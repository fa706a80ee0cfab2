"""How long the rows of prime-rl are, and how many a step has.

Read from PrimeIntellect-ai/prime-rl 559b4477 (2026-08-21); ``PT`` below is its ``src/prime_rl/trainer``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.world import express_global_batch
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.dialects.prime_rl.keys import ORCHESTRATOR, SOURCE, own
from oomlint.dialects.prime_rl.sections import is_sft
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

batches = Meaning()

_CODE = f"{SOURCE} src/prime_rl/trainer"
_SFT = f"{_CODE}/sft/train.py"

_PACKS = f"{_CODE}/batch.py:645-815"


@batches.derive(f.seq.max_len, source=f"{ORCHESTRATOR}: seq_len, {_PACKS}")
def length(run: Cells) -> Any:
    """In RL of what the orchestrator packs; the trainer's own sizes made-up data alone (PT/rl/train.py:240), so that
    of a trainer by itself nobody knows it but by what its file says of such."""
    if is_sft(run):
        return None
    if run[own.kind] == "trainer":
        return run[own.trainer_len] if run.says(own.trainer_len) else None
    return run[own.answer_len] or run[own.shared_len] or 2048


@length.written
def _(tokens: Any, run: Cells, wishes: Wishes) -> Wishes:
    if is_sft(run):
        return {f.seq.max_len: tokens}
    if run[own.kind] == "trainer":
        return {own.trainer_len: tokens}
    if run.says(own.answer_len):
        return {own.answer_len: tokens}
    return {own.shared_len: tokens}


@batches.derive(f.seq.packing, f.seq.pad, source=f"{_CODE}/sft/data.py:474,532, {_PACKS}")
def packing(run: Cells) -> Any:
    """Rows are filled up with samples; of SFT the rest of a row is padding."""
    return {f.seq.packing: "multipack", f.seq.pad: "max_len" if is_sft(run) else "none"}


@batches.derive(f.batch.micro, source=_PACKS)
def one_row(run: Cells) -> Any:
    """One row of RL, which held several lengths where a key said so (prime-rl af507320 orchestrator/batch.py
    prepare_batch; the key went on 2025-10-27, 9a0070b1)."""
    return None if is_sft(run) else run[own.answer_rows] or 1


@batches.written(f.batch.micro)
def _(rows: Any, run: Cells, wishes: Wishes) -> Wishes:
    if is_sft(run):
        return {f.batch.micro: rows}
    if not run.says(own.answer_rows):
        raise CannotEdit("a micro batch of RL is one packed row: seq_len says how long")
    return {own.answer_rows: rows}


@batches.derive(f.batch.grad_accum, source=f"{_SFT}:113, {_PACKS}")
def accumulation(run: Cells) -> Any:
    """Of RL as many as rows of one answer each would be; they are fewer where several go into a row."""
    dp, micro = run[f.parallel.dp], run[f.batch.micro]
    if dp is None or not micro:
        return None
    if is_sft(run):
        return max(1, run[own.rows] // (micro * dp))
    if run[own.kind] == "trainer" or run[own.answer_tokens]:
        length, tokens = run[f.seq.max_len], run[own.answer_tokens]
        return max(1, tokens // (length * dp)) if tokens and length else None
    return max(1, -(-(run[own.answers] or 128) // dp))


@accumulation.written
def _(steps: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not is_sft(run):
        raise CannotEdit("how many rows a step of RL has follows from its answers")
    return express_global_batch(
        steps, run, wishes, own.rows, "data.batch_size is of all ranks, and how many is not known"
    )
