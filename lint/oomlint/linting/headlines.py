"""One failure, one headline: which of several findings about it leads, and which follow.

Rules look at one cause each, so a run that does not fit is reported by several of them with
the same peak against the same limit. Such findings explain one failure. The one whose fix
is to be tried first leads; reports for people show the others below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping as MappingABC, Sequence
from typing import Any, TypeAlias, TypeVar

from oomlint.judgement import may_survive
from oomlint.linting.diagnosis import Diagnosis, Given, Told
from oomlint.linting.rule import Applicability, Finding, Proposal, SetFields, Severity
from oomlint.runs.run import Run

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
        first = _leader(group)
        following.update((other, first) for other in group if other is not first)
    return following


def _leader(group: Sequence[D]) -> D:
    """The one to be told first. Fixes are worked out for those alone that may lead: none where one finding is worse than
    the others, else the likeliest first, until none of the rest can come before it."""
    worst = max(each.severity for each in group)
    contenders = [each for each in group if each.severity == worst]
    if len(contenders) == 1:
        return contenders[0]
    first: D | None = None
    for each in sorted(contenders, key=_at_best):
        if first is not None and _rank(first) <= _at_best(each):
            break
        if first is None or _rank(each) < _rank(first):
            first = each
    assert first is not None
    return first


def _at_best(diagnosis: Told) -> tuple[int | str, ...]:
    """No later than its :func:`_rank`, whatever its fix comes to."""
    finding, run = diagnosis.finding, diagnosis.run
    proposals = _proposals_of(finding)
    is_known = isinstance(diagnosis.ask, Given) or not proposals
    if (
        is_known
        or not isinstance(run, Run)
        or (type(diagnosis) is Diagnosis and diagnosis.is_planned)
    ):
        return _rank(diagnosis)
    # The fix of a remark is only shown (:func:`oomlint.fix.needless.why_unasked`).
    is_remark = finding.severity < Severity.WARNING
    most = max(proposal.applicability for proposal in proposals)
    return (
        -finding.severity,
        not any(_may_suffice(run, proposal) for proposal in proposals),
        -(Applicability.DISPLAY if is_remark else most),
        finding.rule.cost,
        finding.rule.code,
    )


def _proposals_of(finding: Finding) -> tuple[Proposal, ...]:
    """What a finding proposes; nothing where making it failed, which is told in the place of the fix."""
    try:
        return tuple(finding.proposals)
    except Exception:
        return ()


def _may_suffice(run: Run, proposal: Proposal) -> bool:
    """Whether a run may rather survive what is proposed, if it can be written."""
    values: dict[Any, Any] = {}
    for wish in proposal.wishes:
        if not isinstance(wish, SetFields):
            return True  # what it brings only its fix tells
        values.update(wish.values)
    try:
        return may_survive(run, values)
    except Exception:  # of a plug-in's proposal; it is told in the place of the fix
        return True


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
