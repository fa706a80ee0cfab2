"""The fix of a finding: the first of its rule's proposals that can be written."""

from __future__ import annotations

from msgspec.structs import replace

from oomlint.errors import in_words
from oomlint.fix.edits import Fix, make_fix
from oomlint.fix.needless import why_unasked
from oomlint.linting.rule import Applicability, Finding, Severity
from oomlint.runs.run import Run

REPORT_IT = "please report this"


def fix_for(run: Run, finding: Finding) -> Fix | None:
    """The first proposal that can be written; else the first that can at least be shown.

    That of a remark is only shown, and so is one that costs something where only data would tell whether it is
    needed. A bug in a proposal costs nobody the finding: it is said in the place of the fix, and with the errors of the
    report (:attr:`oomlint.linting.engine.Results.all_errors`).
    """
    try:
        return _first_written(run, finding)
    except Exception as error:
        whose = f" of the plug-in {finding.rule.origin}" if finding.rule.origin else ""
        reason = f"rule {finding.rule.name}{whose} failed to propose a fix: {in_words(error)}; {REPORT_IT}"
        title = _title_of(finding)
        return Fix(title, Applicability.DISPLAY, (), reason=reason, is_failure=True)


def _title_of(finding: Finding) -> str:
    """What the first proposal is called; what the rule says, where to make proposals is what failed."""
    try:
        return finding.proposals[0].title
    except Exception:
        return finding.rule.summary


def _first_written(run: Run, finding: Finding) -> Fix | None:
    needless: Fix | None = None
    unwritable: Fix | None = None
    is_remark = finding.severity < Severity.WARNING
    reason = why_unasked(run, finding)
    for proposal in finding.proposals:
        fix = make_fix(run, proposal, finding.resource)
        if fix is None or fix.applicability is Applicability.DISPLAY:
            # What all runs of a file agree on is written after all, but for what nobody needs.
            held = reason and (is_remark or proposal.applicability is Applicability.SAFE)
            unwritable = unwritable or (replace(fix, made=None) if held and fix else fix)
        elif reason and (is_remark or fix.applicability is Applicability.SAFE):
            needless = needless or _only_shown(fix, reason)
        else:
            return fix
    return needless or unwritable


def _only_shown(fix: Fix, reason: str) -> Fix:
    return replace(fix, applicability=Applicability.DISPLAY, reason=fix.reason or reason, made=None)
