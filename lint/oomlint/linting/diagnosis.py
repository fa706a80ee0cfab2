"""A finding placed in its run, with a name that outlives edits elsewhere, and its fix for who asks for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from oomlint.errors import InternalError
from oomlint.linting.rule import Applicability, Severity

if TYPE_CHECKING:
    from oomlint.fix.edits import Fix
    from oomlint.judgement import Judgement
    from oomlint.linting.rule import Finding, Rule
    from oomlint.runs.run import Run

# A number that stands by itself: 88.7 GiB, line 12; not the 7 of Llama-2-7b.
_NUMBER = r"(?<![^\s(~])\d[\d.,]*(?=[\s),;:%]|$)"


Ask: TypeAlias = "Callable[[], Fix | None]"
"""Works a fix out."""


class Given(Struct, frozen=True):
    """The answer of a fix that is known."""

    fix: Fix | None = None

    def __call__(self) -> Fix | None:
        return self.fix


class Told(Struct, frozen=True, eq=False, dict=True):
    """A finding, placed in a run or in the judgement that is kept of one: what reports tell. What its fix is, is asked
    by those who print or apply it."""

    finding: Finding
    run: Run | Judgement | None
    ask: Ask = Given()

    @cached_property
    def fix(self) -> Fix | None:
        """What mends it, or why nothing does; worked out once, when it is first asked for."""
        return self.ask()

    @property
    def failure(self) -> InternalError | None:
        """The bug that was met where somebody asked for the fix; ``None`` too where nobody has asked yet."""
        fix = self.ask.fix if isinstance(self.ask, Given) else self.__dict__.get("fix")
        if fix is None or not fix.is_failure:
            return None
        return InternalError(self.finding.location.path, fix.reason or "")

    @property
    def applicable(self) -> Fix | None:
        """The fix, if it is one to apply. That of a remark never is, so that it need not be worked out."""
        if self.severity < Severity.WARNING:
            return None
        fix = self.fix
        is_written = fix is not None and fix.applicability > Applicability.DISPLAY and fix.edits
        return fix if is_written else None

    @property
    def rule(self) -> type[Rule]:
        return self.finding.rule

    @property
    def severity(self) -> Severity:
        return self.finding.severity

    @cached_property
    def fingerprint(self) -> str:
        """Stable over edits elsewhere in the file: see :func:`fingerprint`."""
        return fingerprint(self.rule.code, self.finding.location.path, self.finding.message)


class Diagnosis(Told, frozen=True, eq=False):
    """A finding, placed in a run."""

    run: Run | None
    others: tuple[str, ...] = ()
    """Names of further runs of which it says the same, word for word, of the same place."""
    is_planned: bool = False
    """Whether its fix may be a plan for the run, beyond what its rule proposes."""

    @property
    def run_names(self) -> tuple[str, ...]:
        return self.others if self.run is None else (self.run.name, *self.others)


def fingerprint(code: str, path: str, message: str) -> str:
    """Of one kind of finding in one file: predictions may shift and lines may move."""
    from hashlib import sha256

    text = "\0".join((code, path, re.sub(_NUMBER, "#", message)))
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
