"""What the leading memory rules have to offer, so that others do not repeat them.

When a free or cheap change alone makes a run fit, the rule that proposes it speaks; rules
that explain the same peak from another side then only inform, or are silent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oomlint.judgement import Relief, exceeds, judge_gpu, relief, settled
from oomlint.judgement.alternatives import each_way_out
from oomlint.linting.rule import Severity
from oomlint.memory import state_bytes
from oomlint.plan.fields import f
from oomlint.runs.run import Run

# Lengths are tried in steps of this many tokens: fine enough to name, and a size that
# kernels like.
_STEP = 256


def states_exceed(run: Run) -> bool:
    """Whether weights, gradients and optimizer states alone are more than the card has."""
    states = state_bytes(settled(run).plan)
    return states is not None and exceeds(run, "gpu", states.total)


def leading_remedy(run: Run) -> Relief | None:
    """The first change of a leading rule that alone makes the run fit."""
    for changes in _leading_changes(run):
        found = relief(run, changes)
        if found is not None and found.is_worthwhile and found.suffices:
            return found
    return None


def _leading_changes(run: Run) -> Iterator[dict[Any, Any]]:
    plan = run.plan
    if plan.checkpointing.mode == "none":
        yield {f.checkpointing.mode: "full"}
    if plan.loss.logits_materialised == "full" and not plan.loss.label_smoothing:
        yield {f.loss.logits_materialised: "fused"}
    if plan.model.attn_impl == "eager":
        yield {f.model.attn_impl: "sdpa"}
    parallel = plan.parallel
    if parallel.backend == "zero" and parallel.zero.stage in (0, 1, 2):
        yield {f.parallel.zero.stage: 3}
    if parallel.backend == "fsdp1" and parallel.fsdp.strategy in ("grad_op", "no_shard"):
        yield {f.parallel.fsdp.strategy: "full"}
    micro = plan.batch.micro
    factor = 2
    while micro is not None and not plan.batch.auto_micro and micro % factor == 0:
        steps = plan.batch.steps_of(micro // factor, plan.parallel.dp)
        yield {f.batch.micro: micro // factor, f.batch.grad_accum: steps}
        factor *= 2


def scored_by(run: Run) -> Any | None:
    """What says how much is scored at a time where the pass that takes log probabilities needs most: less in it
    alone, training as it is, lowers the peak. Where training has the same budget, its backward pass mostly
    needs more."""
    before = judge_gpu(run)
    for field in (f.objective.rollout.scored_tokens, f.objective.rollout.rollout_micro_batch):
        if before is None or (run.plan.get(field) or 0) < 2:
            continue
        after = judge_gpu(run.assuming({field: 1}))
        if after is not None and before.predicted - after.predicted >= before.worth:
            return field
    return None


def what_is_enough(run: Run) -> Iterator[str]:
    """What else makes the run fit, a detail each; nothing where nothing is known to."""
    for number, way in enumerate(each_way_out(run)):
        yield f"{'also' if number else 'what is'} enough: {way}"


def lowered(severity: Severity, run: Run) -> Severity:
    """``severity``, or only information where a leading rule already has the way out."""
    return Severity.INFO if leading_remedy(run) is not None else severity


def longest_that_fits(run: Run, upto: int, *, share: float = 1.0) -> int:
    """The most tokens a sample may have for the run to stay within ``share`` of the card (of
    the usual largest one, where it is unknown); at most ``upto``, 0 where none fits."""
    limit = card_bytes(run)
    base = settled(run)

    def fits(length: int) -> bool:
        peak = base.assuming({f.seq.max_len: length}).estimate.gpu.peak_bytes
        return peak is not None and peak <= share * limit

    if fits(upto):
        return upto
    low, high = 0, max(1, upto // _STEP)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * _STEP) else (low, middle)
    return low * _STEP


def card_bytes(run: Run) -> int:
    """What the run's card gives; of the usual largest card where it is unknown."""
    from oomlint.hardware import usual_limit

    return run.limits.gpu_bytes or usual_limit()
