"""What a change brings to a run, and whether that is worth a word."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

from msgspec import Struct

from oomlint.errors import CannotEdit
from oomlint.hardware import usual_limit
from oomlint.judgement.cards import smallest_card
from oomlint.judgement.doubts import settled
from oomlint.judgement.forecast import Risk
from oomlint.judgement.lengths import as_short_as_any
from oomlint.judgement.peak import (
    Peak,
    holds_as_predicted,
    judge_gpu,
    judge_host,
    predicted_peak,
)
from oomlint.judgement.severity import Severity, of_cause
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib

# What takes away less of what is too much leaves the run as lost as it was: readers of strangers' repositories called
# it no cause (a micro batch of 2 on a card that the weights alone overflow; benchmarks/strangers/findings-16.jsonl).
_CAUSE = 0.25


class After(Struct, frozen=True, eq=False, dict=True):
    """The peak of a run that was changed, as :class:`Peak` has it. Most changes that are tried save too little or are
    not enough, which the prediction alone tells: what else the run may be is worked out for those who ask on."""

    run: Run
    resource: Literal["gpu", "host"]
    predicted: int

    @cached_property
    def holds(self) -> bool:
        return holds_as_predicted(self.run, self.resource)

    @cached_property
    def card(self) -> str | None:
        return None if self.resource == "host" else smallest_card(self.predicted)

    @property
    def severity(self) -> Severity | None:
        return self._judged.severity

    @property
    def is_problem(self) -> bool:
        return self._judged.is_problem

    @cached_property
    def _judged(self) -> Peak:
        found = judge_host(self.run) if self.resource == "host" else judge_gpu(self.run)
        assert found is not None, "its number is known"
        return found


class Relief(Struct, frozen=True):
    """What a change brings: the peak now and after, and whether it is worth a word. ``can_be_said`` is whether
    the framework has words for it."""

    before: Peak
    after: Peak | After
    changes: Mapping[Any, Any]
    can_be_said: bool = True

    @classmethod
    def of(
        cls,
        before: Peak | None,
        changed: Run,
        changes: Mapping[Any, Any],
        *,
        can_be_said: bool = True,
    ) -> Relief | None:
        """From the peak of a run to that of the run with ``changes``; ``None`` where either is not known."""
        predicted = None if before is None else predicted_peak(changed, before.resource)
        if before is None or predicted is None:
            return None
        return cls(before, After(changed, before.resource, predicted), changes, can_be_said)

    @property
    def saved(self) -> int:
        return self.before.predicted - self.after.predicted

    @property
    def suffices(self) -> bool:
        """The problem is gone afterwards (or a smaller common card holds the run)."""
        if self.before.limit is not None:
            return self.after.holds
        return self.after.card is not None and self.after.card != self.before.card

    @property
    def severity(self) -> Severity | None:
        """How bad it is to leave things as they are; ``None`` where it is no matter.

        A change that takes away little of what is too much is a remark: something else is what the run dies of.
        """
        before, after = self.before, self.after
        urgency = before.urgency
        if urgency is None:
            return None
        if before.limit is not None:
            too_much = before.predicted - before.limit
            is_cause = self.suffices or self.saved >= _CAUSE * too_much
            return of_cause(urgency) if is_cause else Severity.INFO
        if not self.suffices:
            return None
        onto_usual = after.predicted <= usual_limit()
        if before.is_problem and onto_usual and before.confidence != "low":
            return Severity.WARNING
        return Severity.INFO

    @property
    def is_worthwhile(self) -> bool:
        """It lowers the peak by a share that matters, and there is something to solve."""
        return self.severity is not None and self.saved >= self.before.worth

    @property
    def sentence(self) -> str:
        """``the peak falls from 92.3 GiB to 61.0 GiB``, and whether that is enough."""
        text = f"the peak falls from {gib(self.before.predicted)} to {gib(self.after.predicted)}"
        limit = self.before.limit
        if limit is not None and self.after.predicted > limit:
            return f"{text}, still {gib(self.after.predicted - limit)} too much"
        return text


def relief(
    run: Run, changes: Mapping[Any, Any], *, resource: str = "gpu", even_unsaid: bool = False
) -> Relief | None:
    """What ``changes`` bring, or ``None`` where no number is known, or the framework cannot say them: what it
    costs that they are as they are is worth a word ``even_unsaid``."""
    judge = judge_host if resource == "host" else judge_gpu
    before = judge(run)
    if before is None:
        return None
    can_be_said = True
    try:
        changed = run.what_if(changes)
    except CannotEdit:
        if not even_unsaid:
            return None
        changed, can_be_said = run.assuming(changes), False
    return Relief.of(before, changed, changes, can_be_said=can_be_said)


def may_survive(run: Run, changes: Mapping[Any, Any]) -> bool:
    """Whether a run with ``changes`` may rather survive, as it is predicted; not where they cannot be written."""
    try:
        changed = settled(run.what_if(changes))
    except CannotEdit:
        return False
    limits = changed.limits
    return not Risk.by(changed.estimate, limits.gpu_bytes, limits.host_bytes).is_lost


def is_needed_by_any_samples(run: Run, changes: Mapping[Any, Any]) -> bool:
    """Whether a GPU too small for a run is one for want of these changes however long its samples are. Where no file
    says that, a run with samples like those of short data sets has to die without the changes and live with them:
    else it is the length that decides, which nobody read, or something else that kills it."""
    short = as_short_as_any(settled(run))
    if short is None:
        return True
    found = relief(short, changes, even_unsaid=True)
    return found is not None and not found.before.holds and found.suffices
