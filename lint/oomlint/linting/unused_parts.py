"""Configs that no run of a project uses, runs that nobody starts and lines that nothing calls: what is wrong with them
nobody meets before somebody uses them.

A DeepSpeed JSON that was copied along, or an Accelerate YAML of another machine, may lie beside runs that take neither.
A guide or a live line of code that names such a file is enough to take it for used. What else is used,
:mod:`oomlint.runs.unused` tells.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from oomlint.linting.rule import Finding, Severity
from oomlint.runs.linked import Linked
from oomlint.runs.run import Run


class UnusedParts:
    """What of a project's configs, runs and code nobody uses, which is looked up when first asked.
    ``others_train``: whether files that are linted apart from these have runs."""

    def __init__(self, linked: Linked, *, others_train: bool = False) -> None:
        self._unused = linked.unused
        # No runs: what asks for fixes late would keep all of them in a ring.
        self._heirs = tuple(heir for run in linked.runs if (heir := _heir_of(run)) is not None)
        self._trains = others_train or any(not run.is_fragment for run in linked.runs)
        self._told: set[str] = set()

    def told(self, finding: Finding, run: Run) -> Finding:
        """The finding, a remark if it speaks of what nobody uses; of a run the first of them says so."""
        if finding.severity <= Severity.INFO:
            return finding
        why = self.why(finding, run)
        if not why:
            return finding
        details = finding.details
        is_of_run = why in (run.parts.why_unused(run), self._as_base(run))
        if not is_of_run or run.name not in self._told:
            details = (*details, why)
        if is_of_run:
            self._told.add(run.name)
        return replace(finding, severity=Severity.INFO, details=details)

    def why(self, finding: Finding, run: Run) -> str:
        """Why nobody meets what a finding speaks of, in words; empty where somebody may. That a run cannot be started as it is
        makes it no run that nobody starts: where it is the project's own, the finding says just that."""
        if _says_what_is_missing(finding, run):
            return self._unused.example(run) or self._unused.leftover(run)
        return self._why_of_place(finding, run) or run.parts.why_unused(run) or self._as_base(run)

    def _as_base(self, run: Run) -> str:
        """That other configs of its framework begin with a config that nothing here starts by itself, in words: they are what
        somebody trains, and what they leave of it is told of them."""
        root = run.parts.root
        if root is None or root.kind != "run" or self._unused.is_named(root.path):
            return ""
        if any(claim.is_launched or claim.is_program for claim in run.claims):
            return ""
        heirs = (each for each in self._heirs if each.begins_with(root.path, run.framework))
        heir = next(heirs, None)
        return f"{heir.name} begins with it, and nothing here starts it by itself" if heir else ""

    def _why_of_place(self, finding: Finding, run: Run) -> str:
        path = finding.location.path
        is_part = any(claim.kind == "part" and claim.path == path for claim in run.claims)
        if run.is_fragment and is_part:
            return self._unused.file(path, beside_runs=self._trains)
        line = run.line_of(finding.location)
        return "" if line is None else self._unused.line(path, line, run)


class _Heir(Struct, frozen=True):
    """A config that may begin with others, and the files that it is made of."""

    name: str
    path: str
    files: frozenset[str]
    framework: str

    def begins_with(self, path: str, framework: str) -> bool:
        """Whether it is another config of the same framework, laid over one."""
        return self.path != path and path in self.files and self.framework == framework


def _heir_of(run: Run) -> _Heir | None:
    root = run.parts.root
    if root is None or root.kind != "run" or root.is_program or len(run.files) < 2:
        return None
    return _Heir(run.name, root.path, frozenset(run.files), run.framework)


def _says_what_is_missing(finding: Finding, run: Run) -> bool:
    """Whether a finding says that the program is not here which a run is started with, or what it opens ahead of all
    else."""
    places = [each.location for each in run.missing if each.is_program or each.ends]
    return finding.resource is None and finding.location in places
