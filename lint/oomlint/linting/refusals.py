"""What is found in a run beside a setting that its framework is sure to refuse: the program ends as it reads its settings, so
that what it would need or do later is a remark until that is mended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from oomlint.linting.rule import Finding, Severity


def beside_refusals(found: Sequence[Finding]) -> Iterable[Finding]:
    """The findings of one run, in their order."""
    first = next((each for each in found if is_refusal(each)), None)
    return found if first is None else _lowered(found, first)


def is_refusal(finding: Finding) -> bool:
    """Whether it says for sure that the program ends as it reads its settings."""
    return finding.ends_the_run and finding.severity is Severity.ERROR


def _lowered(found: Iterable[Finding], refusal: Finding) -> Iterator[Finding]:
    why = f"{refusal.message}: the program ends before its first step"
    for each in found:
        if each.ends_the_run or each.rule.tells_of_text() or each.severity <= Severity.INFO:
            yield each
        else:
            yield replace(each, severity=Severity.INFO, details=(*each.details, why))
