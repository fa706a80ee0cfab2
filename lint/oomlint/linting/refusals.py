"""What is found in a run beside a setting that its framework is sure to refuse: the program ends before its first step, so
that what it would need or do later is a remark until that is mended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from oomlint.linting.rule import Finding, Severity

# Who stops once the model is there has loaded it: of host memory (OOM4) that is what is told.
_OF_LOADING = "4"


def beside_refusals(found: Sequence[Finding]) -> Iterable[Finding]:
    """The findings of one run, in their order."""
    first = min(filter(is_refusal, found), key=_comes_late, default=None)
    return found if first is None else _lowered(found, first)


def is_refusal(finding: Finding) -> bool:
    """Whether it says for sure that the program ends as it reads its settings, or later and before its first step."""
    stops = finding.ends_the_run or finding.stops_later
    return stops and finding.severity is Severity.ERROR


def _comes_late(refusal: Finding) -> bool:
    return not refusal.ends_the_run


def _lowered(found: Iterable[Finding], refusal: Finding) -> Iterator[Finding]:
    why = f"{refusal.message}: the program ends before its first step"
    for each in found:
        if (
            each.rule.tells_of_text()
            or each.severity <= Severity.INFO
            or _comes_first(each, refusal)
        ):
            yield each
        else:
            yield replace(each, severity=Severity.INFO, details=(*each.details, why))


def _comes_first(finding: Finding, refusal: Finding) -> bool:
    """Whether a finding is of what a program gets to that is refused."""
    if finding.ends_the_run:
        return True
    is_loading = finding.rule.code[3:4] == _OF_LOADING
    return _comes_late(refusal) and (finding.stops_later or is_loading)
