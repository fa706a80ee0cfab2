"""What a checkpoint takes in the RAM of a node when the running engine reads it back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from oomlint.judgement import Peak, judge_host, settled, severity_of_need
from oomlint.linting.rule import Finding, Proposal, Rule, Severity
from oomlint.memory import read_back
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib
from oomlint_rules.host._ram import against


class Reload(Struct, frozen=True):
    """``read``: bytes that the ranks of one node hold at once beside what training keeps;
    ``serial``: what is left of them if one rank reads after the other; ``words`` say who reads
    what."""

    read: float
    serial: float | None
    words: str
    training: Peak

    @property
    def need(self) -> float:
        return self.training.predicted + self.read


def reload_of(run: Run) -> Reload | None:
    """What DeepSpeed and FSDP read to go on from a checkpoint; ``None`` where nothing of a size is
    known to be read into RAM."""
    training = judge_host(run, phase="train")
    plan = settled(run).plan
    back = read_back(plan)
    if training is None or back is None:
        return None
    ranks = plan.parallel.gpus_per_node or 1
    words = f"each of {ranks} ranks reads its partition of the optimizer, {gib(back.kept)}"
    if back.first_reads_all:
        words = f"the first rank reads the optimizer states of all, {gib(back.kept)}"
    return Reload(back.read, back.serial, words, training)


class ReloadRule(Rule):
    """Says of a checkpoint that is read back beside all that training holds what that takes of a node's RAM."""

    def read_back(
        self,
        run: Run,
        found: Reload,
        title: str,
        *,
        at: Any,
        reads: str,
        is_large: bool,
        proposals: Iterable[Proposal],
    ) -> Iterator[Finding]:
        """Nothing where it fits; where nobody says how much RAM there is, a word on what ``is_large``."""
        # Where training itself does not fit, reading back is not what has to change.
        if found.training.is_problem:
            return
        limit = found.training.limit
        severity: Severity | None = Severity.INFO if is_large else None
        if limit is not None:
            severity = severity_of_need(run, "host", found.need)
        if severity is None:
            return
        yield self.finding(
            run,
            severity,
            title,
            at=at,
            details=(
                reads,
                f"beside {gib(found.training.predicted)} that training keeps there",
                *against(found.need, limit),
            ),
            confidence="low" if found.training.confidence == "low" else "medium",
            resource="host",
            predicted=found.need,
            limit=limit,
            proposals=proposals,
        )
