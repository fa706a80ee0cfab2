"""Fixes that nobody would take as things are: they are shown, with the reason, and not applied."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from oomlint.fix.edits import Fix
from oomlint.judgement import (
    cards_missing,
    judgement_of,
    needs_all_samples_long,
    starves_engine,
    unread_program,
)
from oomlint.linting.diagnosis import Diagnosis
from oomlint.linting.rule import Applicability, Finding, Severity
from oomlint.runs.run import Run


def why_unasked(run: Run, finding: Finding) -> str | None:
    """Why nobody may need what fixes a finding, if that is so."""
    if finding.severity < Severity.WARNING:
        if finding.resource in ("gpu", "host") and judgement_of(run).is_lost:
            return "it is not sure enough that the run needs it; `oomlint fit --apply 1` writes a way out"
        return "nothing here says that it is needed"
    if finding.rule.cost and finding.resource == "gpu" and needs_all_samples_long(run):
        return (
            "it costs something, and the run fits unless several samples of a batch are long; "
            "`oomlint fit --apply 1` writes what is enough for these"
        )
    return None


def unless_needless(diagnosis: Diagnosis) -> Diagnosis:
    """A finding whose fix is only shown where it changes the memory of a run to no end."""
    if not diagnosis.finding.is_of_need:
        return diagnosis
    return replace(diagnosis, ask=partial(_unless_needless, diagnosis))


def _unless_needless(diagnosis: Diagnosis) -> Fix | None:
    fix = diagnosis.fix
    if fix is None or not fix.edits or fix.applicability is Applicability.DISPLAY:
        return fix
    reason = _why_to_no_end(diagnosis, fix)
    return fix if reason is None else fix.declined(reason)


def _why_to_no_end(diagnosis: Diagnosis, fix: Fix) -> str | None:
    """Why nobody would take a change of a run's memory, if that is so.

    A need that is beyond its limit by itself (what a save gathers, say) asks for its fix whatever the run needs besides.
    """
    run = diagnosis.run
    if run is None:
        return None
    if cards_missing(run):
        return "it starts more processes than there are GPUs, which comes first"
    if unread := unread_program(run):
        return f"{unread}, and which options it takes is not known"
    if starves_engine(run.intended.plan, run.limits.gpu_bytes):
        return "the share of a card that the generation engine may take does not hold its weights, which comes first"
    if not diagnosis.finding.overflows and not judgement_of(run).is_lost:
        return "nothing says that the run rather dies without it"
    if fix.risk_after is not None and fix.risk_after.is_lost:
        return "the run would rather die with it, too"
    return None
