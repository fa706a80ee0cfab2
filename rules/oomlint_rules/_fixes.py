"""What several rules propose, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomlint.dialects.setting import Origin
from oomlint.errors import CannotEdit
from oomlint.judgement import Peak, judge_host
from oomlint.linting.rule import Applicability, Proposal, RemoveKey
from oomlint.plan.fields import ZERO_3, f
from oomlint.runs.run import Run


def removal(
    title: str,
    origin: Origin | None,
    applicability: Applicability = Applicability.SAFE,
    *,
    is_whole: bool = False,
) -> tuple[Proposal, ...]:
    """The proposal to delete the key that a value comes from, or (``is_whole``) the section that it makes one of; none
    where no file says it."""
    if origin is None or origin.block is None or origin.entry is None:
        return ()
    wish = RemoveKey(origin.block, origin.entry, is_whole)
    return (Proposal(title, (wish,), applicability),)


def higher_sharding(run: Run) -> Mapping[Any, Any] | None:
    """The change that shards everything, or ``None`` where the run already does or cannot."""
    parallel = run.plan.parallel
    if parallel.backend == "zero" and parallel.zero.stage in (0, 1, 2):
        return ZERO_3
    if parallel.backend == "fsdp1" and parallel.fsdp.strategy not in (None, "full"):
        return {f.parallel.fsdp.strategy: "full"}
    if parallel.backend == "fsdp2" and parallel.fsdp.reshard_after_forward is False:
        return {f.parallel.fsdp.reshard_after_forward: True}
    return None


def changed(run: Run, changes: Mapping[Any, Any]) -> Run | None:
    """The run after a change; ``None`` where its files have no place to say it."""
    try:
        return run.what_if(changes)
    except CannotEdit:
        return None


def host_after(run: Run, changes: Mapping[Any, Any], phase: str | None = None) -> Peak | None:
    """What a node's RAM holds after a change; ``None`` where that cannot be said."""
    after = changed(run, changes)
    return None if after is None else judge_host(after, phase=phase)
