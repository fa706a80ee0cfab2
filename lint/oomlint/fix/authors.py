"""What a fix leaves to a project's author: it is shown, and written where somebody chooses it (``oomlint fit --apply``).

Which files a project has, and what trains it, is more than the values that it trains with. Of the decided diffs read in
eleventh to eighteenth place (``benchmarks/strangers``) that copied a file which other runs use 3 of 32 would be merged, of
those that added one of a framework's 1 of 14, and of those that brought DeepSpeed into a run of DDP by what was there 2
of 8; of all others that made no file 221 of 302. What is a run's own and called what it would no longer be is copied.
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from oomlint.fix.edits import Fix
from oomlint.linting.diagnosis import Diagnosis, Given
from oomlint.linting.rule import Applicability
from oomlint.plan.fields import f
from oomlint.runs.run import Run

_WHERE_CHOSEN = "`oomlint fit --apply` writes the way that is chosen"


def unless_authors(diagnosis: Diagnosis) -> Diagnosis:
    """A finding whose fix is only shown where its author has to choose it."""
    if isinstance(diagnosis.ask, Given) and diagnosis.ask.fix is None:
        return diagnosis
    return replace(diagnosis, ask=partial(_unless_authors, diagnosis))


def _unless_authors(diagnosis: Diagnosis) -> Fix | None:
    fix = diagnosis.fix
    if fix is None or not fix.edits or fix.applicability is Applicability.DISPLAY:
        return fix
    reason = _why_to_choose(diagnosis.run, fix)
    return fix if reason is None else fix.declined(f"{reason}; {_WHERE_CHOSEN}")


def _why_to_choose(run: Run | None, fix: Fix) -> str | None:
    if any(edit.creates for edit in fix.edits) and not _leaves_its_own(run, fix):
        return "it takes one more file, and which files there are its author decides"
    if run is not None and _leaves_unapplied(run, fix):
        return "what would shard the model is set up and not used, and which of the two is meant its author decides"
    if (
        run is not None
        and run.plan.parallel.backend == "ddp"
        and str(f.parallel.zero.stage) in fix.changes
    ):
        return "DeepSpeed would train in place of DDP, which its author decides"
    return None


def _leaves_unapplied(run: Run, fix: Fix) -> bool:
    """Whether a change makes a run fit without the sharding that its files set up and nothing turns on
    (``distributed_type: NO`` over a ``deepspeed_config``)."""
    is_of_need = fix.risk_after is not None and str(f.parallel.backend) not in fix.changes
    return run.plan.parallel.unapplied in ("zero", "fsdp") and is_of_need and bool(fix.changes)


def _leaves_its_own(run: Run | None, fix: Fix) -> bool:
    """Whether what a run is given a copy of is a file of the project's that it alone uses."""
    if run is None or run.parts.copier is None or not fix.leaves:
        return False
    exists = run.parts.copier.workspace.exists
    return all(exists(path) and path not in run.parts.shared for path in fix.leaves)
