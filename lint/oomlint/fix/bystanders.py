"""Runs that nobody asked about and that use the same files: fixes must leave them alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from msgspec.structs import replace

from oomlint.files.reference_index import naming, texts_below
from oomlint.files.workspace import Workspace
from oomlint.linting.engine import Options, Report, lint
from oomlint.runs.run import Run

Naming: TypeAlias = Callable[[str], Iterable[str]]
"""Display path → files that seem to name it, the nearest first."""

# The first of them that really uses the file is enough.
_MOST_TRIED = 24


def naming_in(workspace: Workspace) -> Naming:
    """The files that name a file, of the project around it, which is read when first asked."""

    def around(path: str) -> list[str]:
        return naming(texts_below(workspace, workspace.project_around(path)), path)

    return around


def used_elsewhere(
    report: Report, names: Iterable[str], options: Options, around: Naming
) -> dict[str, str]:
    """Files that the runs of a report name and that runs of other files than ``names`` use too,
    and of each the file that one of these runs begins with."""
    ours = {path for run in report.runs for path in run.sources}.union(names)
    roots = {run.parts.root.path for run in report.runs if run.parts.root is not None}
    found: dict[str, str] = {}
    named = dict.fromkeys(path for run in report.runs for path in _named(run))
    for path in named:
        for name in [name for name in around(path) if name not in ours][:_MOST_TRIED]:
            if path in found:
                break
            for run in _runs(report.workspace, name, options):
                # What starts one of our runs is no other run.
                if not roots & run.sources:
                    found.update((used, name) for used in named if used in run.sources)
    return found


def _named(run: Run) -> Iterator[str]:
    """The files that a run names and that its fixes would edit."""
    shipped = {block.path for block, _ in run.parts.blocks if block.copy is not None}
    for claim in run.claims:
        if claim.named is not None and claim.path not in shipped:
            yield claim.path


def _runs(workspace: Workspace, name: str, options: Options) -> tuple[Run, ...]:
    return lint(workspace, [name], replace(options, baseline=None), rules=()).runs
