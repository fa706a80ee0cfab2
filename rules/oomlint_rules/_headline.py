"""What the two headlines share: how a run in trouble says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oomlint.amounts import gib, of_gib, percent
from oomlint.judgement import Cause, Peak, judgement_of
from oomlint.judgement.peak import when
from oomlint.plan.fields import f
from oomlint.rule import Finding, Note, Rule, Severity
from oomlint.run import Run

# More causes than these explain nothing further.
_MOST = 3

# From this share of the limit on a need is near it; of less the law alone makes no trouble.
_NEAR = 0.8

# What to point at where no part of the need is large enough to be named.
GPU_FIELDS = (f.batch.micro, f.seq.max_len, f.model.id)
HOST_FIELDS = (f.offload.optimizer, f.offload.params, f.model.id)


def headline(
    rule: Rule, run: Run, resource: str, each: str, fields: tuple[Any, ...]
) -> Iterable[Finding]:
    """The need of a resource against its limit, with its largest causes; nothing where a run fits.

    ``each`` is what the limit is of: ``per GPU``.
    """
    judgement = judgement_of(run)
    peak = next((peak for peak in judgement.peaks if peak.resource == resource), None)
    if peak is None or peak.severity is None or peak.limit is None or peak.risk is None:
        return
    causes = judgement.causes if judgement.peaks[0] is peak else ()
    yield rule.finding(
        run,
        peak.severity,
        title(peak, each, as_meant=judgement.meant is not None),
        at=causes[0].at if causes else fields,
        details=peak.context,
        judged=peak,
        notes=[_note(cause) for cause in causes[:_MOST]],
    )


def title(peak: Peak, each: str, *, as_meant: bool = False) -> str:
    """``needs 294 of 79.1 GiB per GPU in the backward pass (risk > 99 %)``; where something that was not
    read decides, ``unknown whether it fits: would need ...``; of a run whose misspelt keys are taken for
    what they mean, it says so."""
    assert peak.limit is not None
    assert peak.risk is not None
    need = f"{of_gib(peak.predicted, peak.limit)} {each} {when(peak.phase)}"
    if as_meant:  # when it is needed gives way to how the files were read
        need = f"{of_gib(peak.predicted, peak.limit)} {each} as meant"
    if peak.severity is Severity.INFO:
        return f"unknown whether it fits: would need {need}"
    return f"{_start(peak.predicted / peak.limit)} {need} (risk {percent(peak.risk)})"


def _start(share: float) -> str:
    """How a title begins, by the share of the limit that is needed."""
    if share > 1:
        return "needs"
    # Of less it is not the need itself that is at risk, but what it rests on.
    return "close to the limit:" if share >= _NEAR else "may need more:"


def _note(cause: Cause) -> Note:
    how = f"; what lowers it: {cause.remedy}" if cause.remedy else ""
    return Note(cause.at, f"{gib(cause.size)} of it are {cause.words}{how}")
