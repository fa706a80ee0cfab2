"""A finding placed in its run, with its fix and a name that outlives edits elsewhere."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from oomlint.fix.edits import Fix
    from oomlint.judgement import Judgement
    from oomlint.linting.rule import Finding, Rule, Severity
    from oomlint.runs.run import Run

# A number that stands by itself: 88.7 GiB, line 12; not the 7 of Llama-2-7b.
_NUMBER = r"(?<![^\s(~])\d[\d.,]*(?=[\s),;:%]|$)"


class Told(Struct, frozen=True, eq=False, dict=True):
    """A finding with its fix, placed in a run or in the judgement that is kept of one: what reports tell."""

    finding: Finding
    run: Run | Judgement | None
    fix: Fix | None = None

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
    """A finding with its fix, placed in a run."""

    run: Run | None


def fingerprint(code: str, path: str, message: str) -> str:
    """Of one kind of finding in one file: predictions may shift and lines may move."""
    from hashlib import sha256

    text = "\0".join((code, path, re.sub(_NUMBER, "#", message)))
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
