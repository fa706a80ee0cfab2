"""How safe a change may be called that trains the same: a maintainer takes a safe one without reading it.

So it is known, too, that it does what it is for:

- the run then fits: one that may die all the same says which risk it leaves;
- something here starts the run with these files, or the user named them, or the project has no scripts that would;
- nothing else stops the run first that no fix mends (:mod:`oomlint.fix.needless`), and it has what the change needs
  (:mod:`oomlint.fix.packages`).

Where that is not known somebody has to judge whether the change is worth while: it is made on request, as an unsafe one is.

Of the decided edits in twenty readings (``benchmarks/strangers``) that were called safe and said which risk they leave 46 of
75 would be merged (61 %), in the last three 3 of 9.
"""

from __future__ import annotations

from oomlint.documents import SHELL_SUFFIXES
from oomlint.fix.edits import Fix
from oomlint.runs.run import Run
from oomlint.wording.amounts import percent


def as_sure_as_known(run: Run, fix: Fix) -> Fix:
    """A change for the sake of a run's memory, no safer than it is known that the run lives by it."""
    if _starts_others(run) and run.parts.find_unstarted():
        fix = fix.unsure("no script here starts it")
    return leaving_risk(fix)


def _starts_others(run: Run) -> bool:
    """Whether the project of a run has scripts: where there are none, whoever has it starts it by hand."""
    if run.parts.copier is None or run.parts.root is None:
        return False
    workspace = run.parts.copier.workspace
    project = str(workspace.project_around(run.parts.root.path))
    saved = workspace.below(project, SHELL_SUFFIXES, _DEEPEST)
    return any(name.endswith(SHELL_SUFFIXES) for name in (*workspace.overlay, *saved))


# Folders below the project's: further down lies what others brought.
_DEEPEST = 3


def leaving_risk(fix: Fix) -> Fix:
    """A change after which a run may die all the same, with the risk that it leaves."""
    left = fix.risk_after
    if left is None or left.verdict in ("fits", "unknown"):
        return fix
    return fix.unsure(f"leaves a risk of {percent(left.any or 0.0)}")
