"""What else would make a run fit, in words with numbers: for messages, never for edits.

A single change often does not suffice. A finding that says so must say what does: more
sharding with offloading and the host RAM it takes, more cards, or training fewer
parameters.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomlint.errors import CannotEdit
from oomlint.judge import settled
from oomlint.rule import gib
from oomlint.run import Run

_MAX_NODES = 64


def ways_out(run: Run) -> str:
    """``offloading the optimizer (61 GiB a card, 1.1 TiB of host RAM), 24 cards, or LoRA ...``;
    empty where nothing is known to help."""
    ways = [way for way in (_offload(run), _more_cards(run), _lora(run)) if way]
    if len(ways) < 2:
        return "".join(ways)
    return f"{', '.join(ways[:-1])} or {ways[-1]}"


def _fits(run: Run, peak: int | None) -> bool:
    limit = run.limits.gpu_bytes
    return peak is not None and (limit is None or peak <= limit)


def _offload(run: Run) -> str:
    """Optimizer states in host RAM, under the highest stage that the run can have."""
    plan = run.plan
    if plan.parallel.backend != "zero" or plan.trainable.method not in ("full", "freeze", None):
        return ""
    if plan.offload.optimizer == "cpu":
        return ""
    try:
        moved = run.what_if({"parallel.zero.stage": 3, "offload.optimizer": "cpu"})
    except CannotEdit:
        return ""
    estimate = settled(moved).estimate
    if not _fits(run, estimate.gpu.peak_bytes):
        return ""
    need = f"{gib(estimate.host.peak_bytes)} of host RAM a node"
    have = run.limits.host_bytes
    if have is not None and estimate.host.peak_bytes is not None:
        enough = "enough" if estimate.host.peak_bytes <= have else "too little"
        need += f", and {gib(have)} is {enough}"
    return (
        f"ZeRO-3 with the optimizer offloaded to the CPU ({gib(estimate.gpu.peak_bytes)} a card; "
        f"it takes {need})"
    )


def _more_cards(run: Run) -> str:
    """The smallest number of nodes like this one on which the run fits."""
    base = settled(run)
    nodes = base.plan.parallel.nodes
    per_node = base.plan.parallel.gpus_per_node
    if run.limits.gpu_bytes is None or nodes is None or per_node is None:
        return ""
    for count in _doublings(nodes):
        changed = base.assuming({"parallel.nodes": count, "parallel.gpus_per_node": per_node})
        peak = changed.estimate.gpu.peak_bytes
        if _fits(run, peak):
            return f"{count * per_node} such cards instead of {nodes * per_node} ({gib(peak)} each)"
    return ""


def _doublings(nodes: int) -> Iterator[int]:
    while nodes < _MAX_NODES:
        nodes *= 2
        yield nodes


def _lora(run: Run) -> str:
    if run.plan.trainable.method not in ("full", "freeze"):
        return ""
    lora = {
        "trainable.method": "lora",
        "trainable.r": 16,
        "trainable.targets": "all_linear",
        "save.contents": ("adapter",),
    }
    peak = settled(run).assuming(lora).estimate.gpu.peak_bytes
    if not _fits(run, peak):
        return ""
    return f"LoRA instead of full fine-tuning ({gib(peak)} a card at rank 16)"
