"""Configs that no run of a project uses, and examples that came with a copy of a framework: what is wrong with them
nobody meets before somebody names them.

A DeepSpeed JSON that was copied along, or an Accelerate YAML of another machine, may lie beside runs that take neither.
A guide, a comment or a line of code that names such a file is enough to take it for used. Which examples are a
framework's alone, :mod:`oomlint.runs.shipped_examples` tells.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from oomlint.files.reference_index import ProjectTexts
from oomlint.files.workspace import Workspace
from oomlint.linting.rule import Finding, Severity
from oomlint.runs.run import Run
from oomlint.runs.shipped_examples import as_shipped


class UnusedParts:
    """What of a project's configs no run uses and no other file names, which is looked up when first asked.
    ``others_train``: whether files that are linted apart from these have runs."""

    def __init__(
        self,
        workspace: Workspace,
        runs: Iterable[Run],
        *,
        others_train: bool = False,
    ) -> None:
        self._workspace = workspace
        self._trains = others_train or any(not run.is_fragment for run in runs)
        self._texts = ProjectTexts(workspace)
        self._unused: dict[str, bool] = {}
        self._told: set[str] = set()

    def told(self, finding: Finding, run: Run) -> Finding:
        """The finding, a remark if it speaks of a part that nothing uses, or of a run that is an example of a
        framework's, which the first of them says."""
        if finding.severity <= Severity.INFO:
            return finding
        path = finding.location.path
        is_part = any(claim.kind == "part" and claim.path == path for claim in run.claims)
        if run.is_fragment and is_part and self._is_unused(path):
            details = (*finding.details, f"no run here uses {path}, and no other file names it")
            return replace(finding, severity=Severity.INFO, details=details)
        framework = run.parts.ships(run)
        if not framework:
            return finding
        details = finding.details
        if run.name not in self._told:
            self._told.add(run.name)
            details = (*details, as_shipped(framework))
        return replace(finding, severity=Severity.INFO, details=details)

    def _is_unused(self, path: str) -> bool:
        """A file that is linted without any run may be all that there is: nothing says that it is unused."""
        if not self._trains:
            return False
        if path not in self._unused:
            self._unused[path] = set(self._texts.naming(path)) <= {path}
        return self._unused[path]
