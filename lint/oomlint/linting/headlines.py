"""One failure, one headline: which of several findings about it leads, and which follow.

Rules look at one cause each, so a run that does not fit is reported by several of them with
the same peak against the same limit. Such findings explain one failure. The one whose fix
is to be tried first leads; reports for people show the others below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping as MappingABC
from typing import TypeAlias, TypeVar

from oomlint.linting.engine import Told
from oomlint.linting.rule import Applicability

D = TypeVar("D", bound=Told)

Failure: TypeAlias = tuple[str, str, int, int | None]
"""A run by name, the memory that runs out, its predicted peak and its limit, in bytes."""


def leaders(diagnoses: Iterable[D]) -> MappingABC[D, D]:
    """Each finding that follows another → the one that leads."""
    failures: dict[Failure, list[D]] = {}
    for diagnosis in diagnoses:
        failure = _failure(diagnosis)
        if failure is not None:
            failures.setdefault(failure, []).append(diagnosis)
    following: dict[D, D] = {}
    for group in (each for each in failures.values() if len(each) > 1):
        first, *others = sorted(group, key=_rank)
        following.update((other, first) for other in others)
    return following


def worst_first(diagnoses: Iterable[D]) -> list[D]:
    """Of findings about one failure the one to be told first, then the others."""
    return sorted(diagnoses, key=_rank)


def suffices(diagnosis: Told) -> bool:
    """Whether a finding's run rather survives once its fix is made; where no limit is known, any fix
    suffices that has a prediction."""
    fix = diagnosis.fix
    if fix is None or fix.predicted_bytes_after is None:
        return False
    risk = fix.risk_after
    return risk is None or risk.any is None or not risk.is_lost


def _failure(diagnosis: Told) -> Failure | None:
    finding, run = diagnosis.finding, diagnosis.run
    if run is None or finding.resource is None or finding.predicted_bytes is None:
        return None
    return run.name, finding.resource, finding.predicted_bytes, finding.limit_bytes


def _rank(diagnosis: Told) -> tuple[int | str, ...]:
    """Worst first; of equals the one that can be mended: by a fix that suffices before one that
    does not, a safe one before an unsafe one, a cheap one before a dear one."""
    finding, fix = diagnosis.finding, diagnosis.fix
    applicability = fix.applicability if fix is not None else Applicability.DISPLAY
    return (
        -finding.severity,
        not suffices(diagnosis),
        -applicability,
        finding.rule.cost,
        finding.rule.code,
    )
