"""Rules that know one change after which a run needs less."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from oomlint.judgement import Relief, judge_gpu, relief
from oomlint.linting.rule import Applicability, Confidence, Finding, Note, Proposal, Rule, Severity
from oomlint.runs.run import Run


class LowersPeak(Rule):
    """Says what a run's peak is lower by after one change, where that is worth a word.

    A subclass says ``change``, where it stands (``at``), how its effect is introduced (``with_it``) and what the fix is
    called (``fix``); what depends on the run is a method of the same matter.
    """

    change: ClassVar[Mapping[Any, Any]] = {}
    """Canonical field → value."""

    at: ClassVar[tuple[Any, ...]] = ()
    """The fields to point at, the first that a file says."""

    with_it: ClassVar[str] = "with it"
    """What ``the peak falls from … to …`` is said of."""

    fix: ClassVar[str] = ""
    """The title of the fix."""

    most: ClassVar[Severity] = Severity.ERROR
    """No finding is more severe."""

    even_unsaid: ClassVar[bool] = False
    """Whether the cost is worth a word where the framework has no key for the change."""

    def concerns(self, run: Run) -> bool:
        """Whether the rule has anything to say of a run, before anything is estimated for it."""
        return True

    def changes(self, run: Run) -> Mapping[Any, Any] | None:
        """The change; ``None`` where there is none."""
        return self.change

    def found(self, run: Run) -> Relief | None:
        changes = self.changes(run)
        return relief(run, changes, even_unsaid=self.even_unsaid) if changes else None

    def severity(self, run: Run, found: Relief) -> Severity | None:
        """How bad it is to leave things as they are; ``None``: not worth a word after all."""
        return found.severity

    def cause(self, run: Run, found: Relief) -> str:
        """The message: what takes how much."""
        raise NotImplementedError

    def place(self, run: Run) -> tuple[Any, ...]:
        return self.at

    def gain(self, run: Run, found: Relief) -> Iterable[str]:
        """What the change brings and what it costs, a sentence each."""
        return (f"{self.with_it} {found.sentence}",)

    def confidence(self, run: Run, found: Relief) -> Confidence | None:
        return None

    def title(self, run: Run, found: Relief) -> str:
        return self.fix

    def level(self, run: Run, found: Relief) -> Applicability:
        assert self.applicability is not None
        return self.applicability

    def can_fix(self, run: Run, found: Relief) -> bool:
        """Whether the change is the files' to make."""
        return found.can_be_said

    def notes(self, run: Run) -> Iterable[Note]:
        return ()

    @staticmethod
    def _is_urgent(run: Run) -> bool:
        """Whether any change is worth a word: of a run that fits, none is estimated."""
        peak = judge_gpu(run)
        return peak is not None and peak.urgency is not None

    def check(self, run: Run) -> Iterable[Finding]:
        found = self.found(run) if self.concerns(run) and self._is_urgent(run) else None
        if found is None or not found.is_worthwhile:
            return
        severity = self.severity(run, found)
        if severity is None:
            return
        fix = Proposal.set(self.title(run, found), found.changes, self.level(run, found))
        yield self.finding(
            run,
            min(severity, self.most),
            self.cause(run, found),
            at=self.place(run),
            details=(*found.before.context, *self.gain(run, found)),
            judged=found.before,
            confidence=self.confidence(run, found),
            proposals=(fix,) if self.can_fix(run, found) else (),
            notes=self.notes(run),
        )
