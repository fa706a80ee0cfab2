"""What else would make a run fit, in words with numbers: for messages, never for edits.

A single change often does not suffice. A finding that says so must say what does: more
sharding with offloading and the host RAM it takes, more cards, or training fewer
parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oomlint.dialects.machine.fields import launch
from oomlint.errors import CannotEdit
from oomlint.judgement.doubts import settled
from oomlint.judgement.risk_model import holds
from oomlint.plan.fields import ZERO_3, f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib, of_gib

_MAX_NODES = 64


def ways_out(run: Run) -> str:
    """``ZeRO-3 with the optimizer in host RAM (61.0 GiB a card, 512 GiB of RAM a node) or
    16 such cards instead of 8 (70.2 GiB each)``; empty where nothing is known to help."""
    ways = each_way_out(run)
    if len(ways) < 2:
        return "".join(ways)
    return f"{', '.join(ways[:-1])} or {ways[-1]}"


def each_way_out(run: Run) -> tuple[str, ...]:
    """All that is known to help, each alone."""
    return tuple(way for way in (_shard(run), _offload(run), _more_cards(run), _lora(run)) if way)


def _fits(run: Run, changed: Run) -> bool:
    """Whether a changed run rather fits than not on the cards of the run as it is; where they are unknown,
    whatever can be predicted does."""
    limit = run.limits.gpu_bytes
    if limit is None:
        return changed.estimate.gpu.peak_bytes is not None
    return holds(changed.estimate, "gpu", limit)


def _shard(run: Run) -> str:
    """ZeRO-3 over the cards at hand, for a run that keeps a whole copy on each."""
    base = settled(run)
    plan = base.plan
    world = plan.parallel.world
    if plan.parallel.backend not in (None, "ddp") or world is None or world < 2:
        return ""
    sharded = base.assuming({f.parallel.backend: "zero", f.parallel.zero.stage: 3})
    if not _fits(run, sharded):
        return ""
    return f"sharding with ZeRO-3 or FSDP ({_card(sharded)} a card)"


def _offload(run: Run) -> str:
    """Optimizer states in host RAM, under the highest stage that the run can have."""
    plan = run.plan
    if plan.parallel.backend != "zero" or plan.trainable.method not in ("full", "freeze", None):
        return ""
    if plan.offload.optimizer == "cpu":
        return ""
    changes: dict[Any, object] = {f.offload.optimizer: "cpu"}
    if plan.parallel.zero.stage != 3:
        changes |= ZERO_3
    try:
        moved = settled(run.what_if(changes))
    except CannotEdit:
        return ""
    if not _fits(run, moved):
        return ""
    way = "ZeRO-3 with the optimizer in host RAM"
    card, need = _card(moved), moved.estimate.host.peak_bytes
    have = run.limits.host_bytes
    if have is None or need is None:
        return f"{way} ({card} a card, {gib(need)} of RAM a node)"
    if holds(moved.estimate, "host", have):
        return f"{way} ({card} a card, {of_gib(need, have)} of RAM a node)"
    return f"{way} ({card} a card) and {gib(need)} of RAM a node instead of {gib(have)}"


def _more_cards(run: Run) -> str:
    """The cards of the machine that the run leaves idle, or else the smallest number of nodes like
    this one, on which the run fits."""
    base = settled(run)
    nodes = base.plan.parallel.nodes
    per_node = base.plan.parallel.gpus_per_node
    machine = run.parts.hardware  # ``run.hardware`` is what the run uses of it
    if machine is None or nodes is None or per_node is None:
        return ""
    used, whole = nodes * per_node, machine.gpus_per_node
    if nodes == machine.nodes and per_node < whole:
        larger = _on(base, nodes, whole)
        if _fits(run, larger):
            return f"all {nodes * whole} cards instead of {used} ({_card(larger)} each)"
        per_node = whole
    for count in _doublings(nodes):
        larger = _on(base, count, per_node)
        if _fits(run, larger):
            return f"{count * per_node} such cards instead of {used} ({_card(larger)} each)"
    return ""


def _on(run: Run, nodes: int, per_node: int) -> Run:
    """The same run on so many nodes and cards."""
    return run.assuming(
        {
            f.parallel.nodes: nodes,
            f.parallel.gpus_per_node: per_node,
            launch.total_processes: nodes * per_node,
        }
    )


def _doublings(nodes: int) -> Iterator[int]:
    while nodes < _MAX_NODES:
        nodes *= 2
        yield nodes


def _lora(run: Run) -> str:
    if run.plan.trainable.method not in ("full", "freeze"):
        return ""
    lora = {
        f.trainable.method: "lora",
        f.trainable.r: 16,
        f.trainable.targets: "all_linear",
        f.save.contents: ("adapter",),
    }
    adapted = settled(run).assuming(lora)
    if not _fits(run, adapted):
        return ""
    return f"LoRA of rank 16 ({_card(adapted)} a card)"


def _card(run: Run) -> str:
    return gib(run.estimate.gpu.peak_bytes)
