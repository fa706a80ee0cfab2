"""Runs as oomlint reads them: from the text in which they were said to a plan, the way of a user's file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from oomlint.dialects import registry
from oomlint.errors import FileError, UsageError
from oomlint.files.workspace import Workspace
from oomlint.plan import Plan
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker


def read_plan(files: Mapping[str, str], versions: Mapping[str, str]) -> Plan | None:
    """The plan of the run that the first of ``files`` describes, under releases of libraries; ``None`` if it is none."""
    return _linked(tuple(files.items()), tuple(sorted(versions.items())))


@cache
def _linked(
    files: tuple[tuple[str, str], ...], versions: tuple[tuple[str, str], ...]
) -> Plan | None:
    space = Workspace(Path("/row"), {name: text.encode() for name, text in files})
    options = {f"versions.{package}": release for package, release in versions}
    try:
        found = Linker(space, registry(), LinkOptions(None, None, options)).link(
            [name for name, _ in files]
        )
    except (FileError, UsageError):
        return None
    first = (run for run in found.runs if files[0][0] in run.files)
    return next((run.plan for run in first), None)
