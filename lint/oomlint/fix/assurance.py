"""How safe a change may be called that trains the same: a maintainer takes a safe one without reading it.

So it is known, too, that it does what it is for:

- the run then fits: one that may die all the same says which risk it leaves;
- something here starts the run with these files, or the user named them;
- nothing else stops the run first that no fix mends (:mod:`oomlint.fix.needless`), and it has what the change needs
  (:mod:`oomlint.fix.packages`).

Where that is not known somebody has to judge whether the change is worth while: it is made on request, as an unsafe one is.

Of the decided edits in twenty readings (``benchmarks/strangers``) that were called safe and said which risk they leave 46 of
75 would be merged (61 %), in the last three 3 of 9.
"""

from __future__ import annotations

from oomlint.fix.edits import Fix
from oomlint.runs.run import Run
from oomlint.wording.amounts import percent


def as_sure_as_known(run: Run, fix: Fix) -> Fix:
    """A change for the sake of a run's memory, no safer than it is known that the run lives by it."""
    if run.parts.find_unstarted():
        fix = fix.unsure("nothing here starts it")
    return leaving_risk(fix)


def leaving_risk(fix: Fix) -> Fix:
    """A change after which a run may die all the same, with the risk that it leaves."""
    left = fix.risk_after
    if left is None or left.verdict in ("fits", "unknown"):
        return fix
    return fix.unsure(f"leaves a risk of {percent(left.any or 0.0)}")
