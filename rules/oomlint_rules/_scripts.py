"""What scripts do that no key says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from oomlint.documents.base import Fact
from oomlint.linting.rule import Applicability, Finding, Proposal, ReadyEdits, Rule, Where
from oomlint.runs.run import Run


def facts_of(run: Run, kind: str) -> Iterator[Fact]:
    """The facts of one kind, in the order in which the scripts have them."""
    return (fact for fact in run.facts if fact.kind == kind)


def mending(
    title: str, fact: Fact, applicability: Applicability = Applicability.SAFE
) -> tuple[Proposal, ...]:
    """The proposal to write what the reader of the script has ready for a fact; none where it has nothing."""
    return (Proposal(title, (ReadyEdits(fact.mend),), applicability),) if fact.mend else ()


class FactRule(Rule):
    """Says of each fact of one kind, or of some kinds, what comes of it: a subclass names them in its head (``fact=…``)."""

    kinds: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls, *, fact: str | tuple[str, ...], **head: Any) -> None:
        super().__init_subclass__(**head)
        cls.kinds = (fact,) if isinstance(fact, str) else fact
        cls.only_where = (Where(facts=cls.kinds),)

    def comes_of(self, fact: Fact, run: Run) -> Iterable[Finding]:
        raise NotImplementedError

    def check(self, run: Run) -> Iterable[Finding]:
        for kind in self.kinds:
            for fact in facts_of(run, kind):
                yield from self.comes_of(fact, run)
