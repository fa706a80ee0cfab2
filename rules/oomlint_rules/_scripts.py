"""What scripts do that no key says."""

from __future__ import annotations

from collections.abc import Iterator

from oomlint.documents.base import Fact
from oomlint.runs.run import Run


def facts_of(run: Run, kind: str) -> Iterator[Fact]:
    """The facts of one kind, in the order in which the scripts have them."""
    return (fact for fact in run.facts if fact.kind == kind)
