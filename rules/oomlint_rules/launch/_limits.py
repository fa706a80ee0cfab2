"""RAM limits that the run's own files set: who sets them, and what would do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from oomlint.dialects.machine.fields import scene
from oomlint.judgement import Peak
from oomlint.linting.rule import Finding, Proposal, Rule
from oomlint.plan.fields import f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib

# Nobody asks a scheduler for 93 GiB.
_STEP_GIB = 8


def limited_by(run: Run) -> str | None:
    """``slurm``, ``container``, ``slurm default``; ``None`` where something else says how much
    RAM there is, or nothing does."""
    setting = run.settings.get(scene.ram_limit)
    if setting is None:
        return None
    ram = run.origin(f.host.ram_gib)
    if setting.value == "slurm default":
        return None if ram is not None else str(setting.value)
    inputs = set(setting.origin.inputs)
    return str(setting.value) if ram is not None and inputs & set(ram.inputs) else None


def enough(run: Run, found: Peak) -> Mapping[Any, Any]:
    """The wish for as much RAM as leaves the run's margin above its peak."""
    need = found.predicted / run.margin / 2**30
    return {f.host.ram_gib: float(math.ceil(need / _STEP_GIB) * _STEP_GIB)}


def too_low(rule: Rule, run: Run, found: Peak, *, says: str, asks: str) -> Iterator[Finding]:
    """The finding that a limit is below what the run needs, and the proposal to raise it; nothing where it is not.

    Args:
        says, asks: the title with a gap for the limit, and the fix's with one for what is enough.
    """
    wish = enough(run, found)
    if found.severity is None or found.limit is None or _is_met(wish, found):
        return
    yield rule.finding(
        run,
        found.severity,
        says.format(gib(found.limit)),
        at=f.host.ram_gib,
        judged=found,
        proposals=[Proposal.set(asks.format(f"{wish[f.host.ram_gib]:.0f} GiB"), wish)],
    )


def _is_met(wish: Mapping[Any, Any], found: Peak) -> bool:
    """Whether the limit is as high already: enough for the run as it is read, while what else it may be is
    the headline's to say."""
    return found.limit is not None and wish[f.host.ram_gib] * 2**30 <= found.limit
