"""How bad something is: what the risk that the run dies makes of a finding, and of a verdict."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

from oomlint.plan.evidence import Level

Confidence = Literal["high", "medium", "low"]
Resource = Literal["gpu", "host", "disk", "shm"]
Verdict = Literal["fits", "tight", "does_not_fit", "unknown"]
Outcome = Literal["fits", "tight", "does_not_fit", "unknown", "ends"]
"""What becomes of a run: ``ends`` before its first step, else its verdict."""

# The words of a verdict are ranges of the risk. From a half on a run rather dies than not.
TIGHT, EVEN, LOST = 0.2, 0.5, 0.8
# From here on a run that lives would be a surprise.
SURE = 0.95


class Severity(IntEnum):
    """How bad, by risk and by how well it is known on which that rests."""

    INFO = 1
    WARNING = 2
    ERROR = 3

    @property
    def label(self) -> str:
        return self.name.lower()


def severity_at(risk: float) -> Severity | None:
    """What a risk is worth where all is known that it rests on; ``None`` where the run fits.

    A severity promises how often a finding is true: a risk that is calibrated is the share of the runs that die, so
    that of warnings, from ``LOST`` on, some nine in ten are true, and of errors, from ``SURE`` on, nearly all. What
    strangers' repositories were told with less was read as false about as often as not (docs/accuracy.md).
    """
    if risk >= SURE:
        return Severity.ERROR
    if risk >= LOST:
        return Severity.WARNING
    return Severity.INFO if risk >= TIGHT else None


def bound(severity: Severity, evidence: Level | None) -> Severity:
    """The most that something can be that rests on evidence of this level: what nobody says, or nobody read, is no
    more than a remark.

    A warning promises to be true nine times in ten. Of the warnings on strangers' repositories that hung on an assumed
    value 7 of 20 were true, of those on a run's memory 2 of 10 (benchmarks/strangers, draws 15 to 22).
    """
    return min(severity, Severity.INFO) if evidence in (Level.ASSUMED, Level.UNREAD) else severity


def of_cause(severity: Severity) -> Severity:
    """How bad it is what a need comes of, by how bad the need is: of a run that is not sure to die a remark. That it may is
    told for itself, and less is known of each share of a need than of the whole.

    Of the warnings on strangers' repositories that said what a need comes of (OOM101 to 119, 203 to 215, 301, 302, 304 to
    307) 20 were true, 10 moot and 53 false, fewer true than false ones in each half of the draws 14 to 35
    (``python -m benchmarks.strangers.record``).
    """
    return severity if severity is Severity.ERROR else Severity.INFO


def verdict_at(risk: float) -> Verdict:
    """The word for a risk."""
    if risk >= LOST:
        return "does_not_fit"
    return "tight" if risk >= TIGHT else "fits"
