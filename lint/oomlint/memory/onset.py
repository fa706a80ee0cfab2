"""When in a run each phase first gets as high as predicted: what to wait for, in words."""

from __future__ import annotations

from math import ceil

from oomlint.memory.allocator import lengths_vary
from oomlint.memory.lengths import comes_beside, longest_sample
from oomlint.memory.result import Estimate
from oomlint.plan import Plan


def first_seen(plan: Plan, estimate: Estimate) -> dict[str, str | None]:
    """Every phase of GPU and host, and when its predicted peak first shows.

    ``None`` for a phase that the run does not have, and where nothing is predicted.
    """
    parts = estimate.gpu.parts
    if parts is None:
        return dict.fromkeys((*estimate.gpu.phases, *estimate.host.phases))
    # torch's optimizers make their states in the first step (torch/optim/adamw.py _init_group), so
    # that the second is the first to have them beside its forward and backward; DeepSpeed steps
    # once before training (deepspeed/runtime/zero/stage_1_and_2.py and stage3.py,
    # initialize_optimizer_states).
    states = parts["optimizer_step"]["optimizer_states"]
    late = bool(states) and plan.parallel.backend != "zero" and plan.total_steps != 1
    step, batch = "step 2" if late else "step 1", _longest(plan)
    if (plan.batch.grad_accum or 1) > 1 and parts["forward"]["gradients"]:
        step += ", micro batch 2"
    return {
        "load": "while the checkpoint is read" if plan.load.resume else "while the model loads",
        "forward": step + batch,
        "backward": step + batch,
        "optimizer_step": "step 1",
        "train": "step 1" + batch,
        "evaluation": _evaluation(plan, batch, late=late),
        "save": _save(plan),
    }


def _longest(plan: Plan) -> str:
    length = longest_sample(plan)
    if length is None or not lengths_vary(plan):
        return ""
    beside = " and an image beside them" if comes_beside(plan) else ""
    return f", with {length:,} tokens a sample{beside}"


def _evaluation(plan: Plan, batch: str, *, late: bool) -> str | None:
    e = plan.eval
    if e.enabled is False or e.strategy == "no":
        return None
    if e.on_start and not late:
        return "the evaluation before step 1" + batch
    return _event("evaluation", e.strategy, e.every, plan.total_steps) + batch


def _save(plan: Plan) -> str | None:
    s = plan.save
    if s.strategy == "no":
        return None
    if s.strategy == "end":
        return "the save at the end"
    every = s.every
    if s.unit == "epochs":
        return "the save after " + ("the first epoch" if every in (None, 1) else f"epoch {every:g}")
    if s.unit in ("batches", "tokens"):
        return "the first save"
    return _event("save", s.strategy, every, plan.total_steps)


def _event(what: str, strategy: str | None, every: float | None, total: int | None) -> str:
    """``every`` is a number of steps, or below one a share of all steps (transformers 5.23
    trainer_callback.py compute_steps)."""
    if strategy == "epoch":
        return f"the {what} after the first epoch"
    if every is not None and 0 < every < 1 and total is not None:
        every = ceil(every * total)
    if strategy not in ("steps", None) or every is None or every < 1:
        return f"the first {what}"
    return f"the {what} after step {every:g}"
