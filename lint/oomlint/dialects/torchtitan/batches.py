"""What torchtitan makes of the sizes of a batch: of rows or of tokens, of a rank or of all.

Read from torchtitan b5bcd76c (2026-08-21) and v0.1.0 to v0.2.2.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.dialects.torchtitan.keys import CONFIG, FIELDS, is_registry, own
from oomlint.dialects.torchtitan.ranks import stages
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

batches = Meaning()

batches.always(f.seq.packing, "concat", "torchtitan datasets fill up")
batches.always(f.seq.pad, "none", "torchtitan datasets fill up")


def _counts_tokens(run: Cells) -> bool:
    """Newer configs count batches in tokens of a data-parallel rank (config/configs.py
    TrainingConfig)."""
    return is_registry(run) and not run.says(own.local_batch)


@batches.default(own.local_batch, source=f"{CONFIG} Training")
def local_batch(run: Cells) -> Any:
    return None if _counts_tokens(run) else 8


@batches.default(own.tokens, source=f"{FIELDS} TrainingConfig")
def tokens_of_micro_batch(run: Cells) -> Any:
    return 16384 if _counts_tokens(run) else None


def _rows(run: Cells) -> int | None:
    """A pipeline cuts the local batch into micro batches; without one the whole batch is one."""
    is_cut = stages(run) > 1
    parts = _parts(run) if is_cut else None
    rows = run[own.pp_rows] or 1 if is_cut and not parts else None
    local = run[own.local_batch]
    if local is None or not is_cut:
        return local
    return max(1, local // parts) if parts else rows


def _parts(run: Cells) -> int | None:
    """Into how many micro batches a pipeline cuts the local batch, where that is counted."""
    parts = run[own.pp_count]
    if parts is None and run.says(own.early) and not run.says(own.pp_rows):
        return run[f.parallel.pp]  # 2024's parallelisms/pipelining_utils.py
    return parts


@batches.derive(f.batch.micro)
def micro_batch(run: Cells) -> Any:
    if not _counts_tokens(run):
        return _rows(run)
    length, tokens = run[f.seq.max_len], run[own.tokens]
    return None if tokens is None or length is None else max(1, tokens // length)


@batches.derive(f.batch.grad_accum)
def accumulation(run: Cells) -> Any:
    if _counts_tokens(run):
        return _steps_of_tokens(run)
    rows, repeats = _rows(run), _repeats(run, own.global_batch, own.local_batch)
    if rows is None or repeats is None:
        return None
    return max(1, run[own.local_batch] // rows) * repeats


def _steps_of_tokens(run: Cells) -> int | None:
    repeats = _repeats(run, own.step_tokens, own.tokens)
    if repeats is None or run[own.step_tokens] is not None or stages(run) == 1:
        return repeats
    return run[own.pp_count] or 1


def _repeats(run: Cells, whole: Any, part: Any) -> int | None:
    """How often all ranks take their part until the whole batch is through."""
    total, each = run[whole], run[part]
    if total is None:
        return None if run.is_unread(whole) else 1
    dp = run[f.parallel.dp]
    return max(1, total // (each * dp)) if each and dp else None


@batches.derive(f.batch.eval_micro)
def eval_micro_batch(run: Cells) -> Any:
    return run[own.local_batch] or run[f.batch.micro]


@eval_micro_batch.written
def _(rows: Any, run: Cells, wishes: Wishes) -> Wishes:
    if is_registry(run):
        raise CannotEdit("the validator takes batches of the training's size")
    return {f.batch.eval_micro: rows}


@batches.written(f.seq.max_len)
def _(length: Any, run: Cells, wishes: Wishes) -> Wishes:
    if run[own.tokens] is None:
        return {f.seq.max_len: length}
    rows = wishes.get(f.batch.micro) or run[f.batch.micro] or 1
    return {f.seq.max_len: length, own.tokens: rows * length}


@batches.written(f.batch.micro, f.batch.grad_accum)
def _(_wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    """Micro batch and accumulation in torchtitan's terms: a local batch and a global one."""
    rows = wishes.get(f.batch.micro) or run[f.batch.micro] or 1
    steps = wishes.get(f.batch.grad_accum) or run[f.batch.grad_accum] or 1
    resizes = wishes.get(f.batch.micro) is not None
    if run[own.local_batch] is None:
        length = wishes.get(f.seq.max_len) or run[f.seq.max_len] or 1
        part = {own.tokens: rows * length} if resizes else {}
        return {**part, **_whole(run, own.step_tokens, steps, rows * steps * length)}
    if stages(run) > 1:
        return _batch_of_pipeline(run, rows, steps, resizes=resizes)
    part = {own.local_batch: rows} if resizes else {}
    return {**part, **_whole(run, own.global_batch, steps, rows * steps)}


def _batch_of_pipeline(run: Cells, rows: int, steps: int, *, resizes: bool) -> dict[Any, Any]:
    if run[own.pp_count] is not None:
        raise CannotEdit("the pipeline's micro batches are counted, not sized, here")
    said: dict[Any, Any] = {own.pp_rows: rows} if resizes else {}
    if rows * steps != (run[f.batch.micro] or 0) * (run[f.batch.grad_accum] or 0):
        said[own.local_batch] = rows * steps
    return said


def _whole(run: Cells, field: Any, steps: int, of_rank: int) -> dict[Any, Any]:
    """The batch of all ranks, of whose each takes so much.

    Raises:
        CannotEdit: nobody says how many ranks there are, or the release adds up no gradients.
    """
    dp, stated = run[f.parallel.dp], run[field]
    if stated is None and steps == 1:
        return {}
    if stated is None and run.says(own.early):
        # torchtitan 8570415c (2025-06-05) "Support gradient accumulation" brought global_batch_size, and renamed batch_size.
        raise CannotEdit("torchtitan adds up no gradients in the releases whose keys stand here")
    if dp is not None and stated == of_rank * dp:
        return {}  # what the file says already: more steps follow from the smaller batch
    ranks = run.setting(f.parallel.gpus_per_node)
    if dp is None or (ranks is not None and ranks.origin.kind == "assumed"):
        raise CannotEdit("the global batch counts all ranks, whose number is not known")
    return {field: of_rank * dp}
