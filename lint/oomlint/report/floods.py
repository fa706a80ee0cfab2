"""Many files with one thing wrong: the first is told in full, the others are counted and named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from oomlint.linting.engine import Told
from oomlint.linting.rule import Severity

# Up to so many files, each has a finding of its own to read.
_MOST_APART = 3
# So many of the others are named where not all are asked for.
_MOST_NAMED = 3


def alike(found: Sequence[Told]) -> Iterator[tuple[Told, Sequence[Told]]]:
    """The findings in their order, each with those that are told with it: what one rule says of many files in the same
    words has one cause."""
    groups: dict[tuple[str, Severity, str], list[Told]] = {}
    for each in found:
        groups.setdefault(kind(each), []).append(each)
    for each in found:
        group = groups[kind(each)]
        if not is_flood(group):
            yield each, ()
        elif each is group[0]:
            yield each, group[1:]


def kind(diagnosis: Told) -> tuple[str, Severity, str]:
    """What findings with one cause have alike: a title names the cause."""
    return diagnosis.rule.code, diagnosis.severity, diagnosis.finding.message


def is_flood(found: Iterable[Told]) -> bool:
    """Whether findings are of so many files that nobody reads them one by one."""
    return len(_files(found)) > _MOST_APART


def the_same(others: Sequence[Told], first: Told, *, every: bool = False) -> str:
    """``the same in 27 more files: run10.sh, run11.sh, run12.sh and 24 more``, or ``every`` one of them."""
    files = [path for path in _files(others) if path != first.finding.location.path]
    named = files if every or len(files) <= _MOST_NAMED + 1 else files[:_MOST_NAMED]
    left = len(files) - len(named)
    more = f" and {left} more (--verbose names them)" if left else ""
    return f"the same in {len(files)} more files: {', '.join(named)}{more}"


def _files(found: Iterable[Told]) -> list[str]:
    return list(dict.fromkeys(each.finding.location.path for each in found))
