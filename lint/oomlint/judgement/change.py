"""What a change brings to a run, and whether that is worth a word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from oomlint.errors import CannotEdit
from oomlint.hardware import usual_limit
from oomlint.judgement.peak import Peak, judge_gpu, judge_host
from oomlint.judgement.severity import Severity
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib


class Relief(Struct, frozen=True):
    """What a change brings: the peak now and after, and whether it is worth a word. ``can_be_said`` is whether
    the framework has words for it."""

    before: Peak
    after: Peak
    changes: Mapping[Any, Any]
    can_be_said: bool = True

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
        """How bad it is to leave things as they are; ``None`` where it is no matter."""
        before, after = self.before, self.after
        if before.limit is not None or before.urgency is None:
            return before.urgency
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
    after = judge(changed)
    if after is None:
        return None
    return Relief(before, after, changes, can_be_said)
