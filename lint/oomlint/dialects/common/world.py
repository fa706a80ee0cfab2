"""Ranks and batches: what nodes, GPUs and degrees of parallelism come to."""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.machine.fields import launch
from oomlint.dialects.meaning import Meaning
from oomlint.plan.fields import f

world = Meaning()
batch = Meaning()


def _machines(run: Cells) -> int:
    return run[f.parallel.nodes] or run[launch.machines] or 1


@world.derive(f.parallel.gpus_per_node)
def ranks_per_node(run: Cells) -> Any:
    """Of processes that a launcher counts over all nodes; where the nodes are not alike,
    ``launch.most_per_node`` is what the fullest has."""
    total = run[launch.total_processes]
    if total is None:
        return None
    return run[launch.most_per_node] or max(1, total // _machines(run))


@world.default(f.parallel.nodes, source="one node unless the launcher names more")
def nodes(run: Cells) -> Any:
    if run[launch.total_processes] is not None:
        return run[launch.machines] or 1
    return None if run[f.parallel.gpus_per_node] is None else 1


@world.derive(f.parallel.world)
def ranks(run: Cells) -> Any:
    """Nodes x GPUs per node, or the sum over nodes that are not alike."""
    per_node = run[f.parallel.gpus_per_node]
    if per_node is None:
        return None
    if run[launch.most_per_node]:
        return run[launch.total_processes]
    count = run[f.parallel.nodes]
    return None if count is None else count * per_node  # a variable of the scheduler leaves it open


@world.derive(f.parallel.dp)
def data_parallel(run: Cells) -> Any:
    """What the other degrees leave of the ranks."""
    total = run[f.parallel.world]
    if total is None:
        return None
    others = 1
    for degree in (f.parallel.tp, f.parallel.pp, f.parallel.cp, f.parallel.ulysses):
        others *= run[degree] or 1
    return max(1, total // others)


@batch.derive(f.batch.global_)
def global_batch(run: Cells) -> Any:
    """Micro batch x gradient accumulation x data-parallel ranks, in samples."""
    micro, accumulation = run[f.batch.micro], run[f.batch.grad_accum]
    dp = run[f.parallel.dp]
    if micro is None or accumulation is None or dp is None:
        return None
    return micro * accumulation * dp


def share_of(total: int | None, ranks: int | None) -> int | None:
    """Samples of one rank, of a batch that all of them share."""
    return max(1, total // ranks) if total and ranks else None


def steps_through(samples: int | None, micro: int | None) -> int | None:
    """Micro batches that a rank takes its samples in, of which the last may be smaller."""
    return -(-samples // micro) if samples and micro else None


def keep_share(steps: int, run: Cells, wishes: Any, batch: str) -> dict[Any, Any]:
    """A wish for accumulation where that follows from the batch of all ranks, which a fix leaves as it is.

    Args:
        batch: the key of it.

    Raises:
        CannotEdit: a rank would take fewer samples, or nobody knows how many it takes.
    """
    from oomlint.errors import CannotEdit

    rows, before = run[f.batch.micro], run[f.batch.grad_accum]
    micro = wishes.get(f.batch.micro, rows)
    share = share_of(run[f.batch.global_], run[f.parallel.dp])
    if micro is None or rows is None or before is None:
        raise CannotEdit(f"gradient accumulation follows from {batch}")
    if steps * micro < rows * before and steps != steps_through(share, micro):
        raise CannotEdit(f"gradient accumulation follows from {batch}")
    return {}


def express_global_batch(
    steps: int | None, run: Cells, wishes: Any, field: Any, unknown: str
) -> dict[Any, Any]:
    """A wish for accumulation as the batch size of all ranks, micro batch x accumulation x ranks.

    Args:
        field: where the framework keeps that size; it stays where the product is what it was.
        unknown: what to say where the number of ranks is not known.

    Raises:
        CannotEdit: with ``unknown``.
    """
    from oomlint.errors import CannotEdit

    if steps is None:
        return {}
    dp = run[f.parallel.dp]
    if dp is None:
        raise CannotEdit(unknown)
    total = steps * (wishes.get(f.batch.micro) or run[f.batch.micro] or 1) * dp
    return {} if total == run[field] else {field: total}
