"""What the two headlines share: how a run in trouble says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oomlint.judgement import Judgement, Peak, exceeds, judgement_of, words
from oomlint.judgement.causes import Cause
from oomlint.linting.rule import Finding, Note, Rule, Severity
from oomlint.memory import state_bytes
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib

# More causes than these explain nothing further.
_MOST = 3

# No title is longer.
_LONGEST = 80

# What to point at where no part of the need is large enough to be named.
GPU_FIELDS = (f.batch.micro, f.seq.max_len, f.model.id)
HOST_FIELDS = (f.offload.optimizer, f.offload.params, f.model.id)


def headline(rule: Rule, run: Run, resource: str, fields: tuple[Any, ...]) -> Iterable[Finding]:
    """The need of a resource against its limit, with its largest causes; nothing where a run fits."""
    judgement = judgement_of(run)
    peak = next((peak for peak in judgement.peaks if peak.resource == resource), None)
    if peak is None or peak.severity is None or peak.limit is None or peak.risk is None:
        return
    causes = judgement.causes if judgement.peaks[0] is peak else ()
    otherwise, at_least = words.otherwise(peak), words.at_least(peak)
    up_to = words.up_to(peak)
    yield rule.finding(
        run,
        peak.severity,
        title(peak, judgement),
        at=causes[0].at if causes else fields,
        details=(
            *peak.context,
            *((up_to,) if up_to else ()),
            *((f"it needs {otherwise}",) if otherwise else ()),
            *((f"it needs {at_least}: that is too much, too",) if at_least else ()),
            *(_at_start(run) if resource == "gpu" else ()),
        ),
        judged=peak,
        notes=[_note(cause) for cause in causes[:_MOST]],
    )


def title(peak: Peak, judgement: Judgement) -> str:
    """``needs 294 of 79.1 GiB per GPU in the backward pass (risk 97 %)``; where something that was not
    read decides, the verdict before it: ``unknown whether it fits: needs ...``; of a run whose misspelt keys
    are taken for what they mean, it says so; of one that ends before, what it would need; of one that fits as it is read, what it needs otherwise."""
    as_meant = judgement.meant is not None
    if judgement.endings:
        return words.short_need(peak, as_meant=as_meant, is_open=True, most=_LONGEST)
    if judgement.verdict != "unknown" or peak.severity is not Severity.INFO:
        return words.short_need(peak, as_meant=as_meant, most=_LONGEST)
    start = f"{words.UNKNOWN.one}: "
    return start + words.short_need(
        peak, as_meant=as_meant, is_open=True, most=_LONGEST - len(start)
    )


# DeepSpeed 0.18.1 runtime/zero/config.py: sub_group_size.
_SUB_GROUP = 1_000_000_000


def _at_start(run: Run) -> Iterable[str]:
    """Where the run dies as DeepSpeed starts: stage 3 steps once before training, with fp32 gradients of a sub-group, to
    make the optimizer's states (0.18.1 runtime/zero/stage3.py initialize_optimizer_states)."""
    plan = run.plan
    zero, offload = plan.parallel.zero, plan.offload
    if plan.parallel.backend != "zero" or zero.stage != 3 or offload.optimizer in ("cpu", "nvme"):
        return
    states = state_bytes(plan)
    if states is None or not states.master:
        return
    gradients = min(states.master, 4 * (zero.sub_group_elems or _SUB_GROUP))
    if exceeds(run, "gpu", states.total - states.gradients + gradients):
        yield "it ends before the first step, where DeepSpeed makes the optimizer's states"


def _note(cause: Cause) -> Note:
    how = f"; what lowers it: {cause.remedy}" if cause.remedy else ""
    return Note(cause.at, f"{gib(cause.size)} of it are {cause.words}{how}")
