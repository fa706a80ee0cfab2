"""Rules asked what ends a run before its first step, and what is found beside that: a remark, until it is mended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint.dialects.ending import Ending, When
from oomlint.judgement.endings import endings_of
from oomlint.linting.rule import Finding, ListedRule, Severity
from oomlint.linting.suppressions import silences

if TYPE_CHECKING:
    from oomlint.files.workspace import Workspace
    from oomlint.linting.engine import Options
    from oomlint.linting.unused_parts import UnusedParts
    from oomlint.runs.run import Run

# Who stops once the model is there has loaded it: of host memory (OOM4) that is what is told.
_OF_LOADING = "4"


class RulesOnEndings:
    """Asks the rules that may find what ends a run. Which of them are selected to be told of is no matter here: a run
    that ends does so whether anybody listens. What the user silences, in settings or by a comment, counts as false."""

    def __init__(self, workspace: Workspace, options: Options) -> None:
        self._workspace = workspace
        self._options = options
        self.unused: UnusedParts | None = None
        """Who knows what nobody meets, since no run uses it; known once all runs are."""

    @cached_property
    def _asked(self) -> tuple[ListedRule, ...]:
        from oomlint.plugins import rules_in_force

        believes = self._options.selection.believes
        listed = rules_in_force(self._options.plugins).items
        return tuple(rule for rule in listed if rule.may_end and believes(rule))

    def __call__(self, run: Run) -> Iterator[Ending]:
        for rule in self._asked:
            try:
                found = tuple(rule.check(run))
            except Exception:  # reported where the rule runs for the user
                continue
            yield from (_ending(each) for each in found if self._counts(each, run))

    def _counts(self, finding: Finding, run: Run) -> bool:
        return (
            finding.ends_the_run
            and not is_of_a_sibling(finding, run)
            and not (self.unused is not None and self.unused.why(finding, run))
            and not self._options.selection.ignored_in(finding.rule, finding.location.path)
            and not silences(self._workspace, finding)
        )


def _ending(finding: Finding) -> Ending:
    rule = finding.rule
    return Ending(finding.message, finding.location, finding.ends, code=rule.code, name=rule.name)


def is_of_a_sibling(finding: Finding, run: Run) -> bool:
    """Whether a finding speaks of a file that the run is only guessed to have, by its sibling's
    launch line: it is the sibling's, and two files that may never meet cannot disagree."""
    places = (finding.location, *(note.location for note in finding.notes))
    return run.is_started_by_guess and any(p.path in run.guessed_files for p in places)


def beside_endings(found: Iterable[Finding], run: Run) -> Iterable[Finding]:
    """The findings of a run, in their order, where what the program would need or do later than what ends it is a remark.

    What ends it and no rule tells of leaves them as they are: nobody would hear why.
    """
    first = next((each for each in endings_of(run) if each.code), None)
    return found if first is None else _lowered(found, first)


def _lowered(found: Iterable[Finding], first: Ending) -> Iterator[Finding]:
    why = f"{first.why}: the program ends before its first step"
    for each in found:
        if each.rule.tells_of_text() or each.severity <= Severity.INFO or comes_first(each, first):
            yield each
        else:
            yield replace(each, severity=Severity.INFO, details=(*each.details, why))


def comes_first(finding: Finding, first: Ending) -> bool:
    """Whether a finding is of what a program gets to that ends."""
    if first.when is None:
        return False
    if finding.ends is not None:
        return finding.ends <= first.when
    return first.when >= When.LOADED and finding.rule.code[3:4] == _OF_LOADING
