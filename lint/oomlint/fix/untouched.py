"""Runs that a step of fixing leaves as they were: what was worked out about them holds, and a plan is not looked for
again.

Many runs are fixed together because all of them begin with one base config, and a step changes few of their files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from oomlint.documents import JSON_SUFFIXES, SHELL_SUFFIXES, TOML_SUFFIXES, YAML_SUFFIXES, kind_of
from oomlint.runs.run import Run

_DATA = (*JSON_SUFFIXES, *YAML_SUFFIXES, *TOML_SUFFIXES)


def untouched(runs: Sequence[Run], changed: Iterable[str]) -> list[Run]:
    """The runs that have none of the ``changed`` files, nor one in the folder of one of them that is plain data: what lies
    beside a config may be named in its place. Code that is changed may be looked at by any."""
    paths = frozenset(changed)
    if any(kind_of(path) not in (*SHELL_SUFFIXES, *_DATA) for path in paths):
        return []
    folders = {_folder(path) for path in paths if kind_of(path) in _DATA}
    return [
        run
        for run in runs
        if not run.sources & paths and folders.isdisjoint(map(_folder, run.sources))
    ]


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def with_known(linked: Sequence[Run], known: Sequence[Run]) -> list[Run]:
    """The runs as they are linked, each as it is known already where it reads and is shared as it was."""
    by_name = {run.name: run for run in known}
    return [_as_known(run, by_name.get(run.name)) for run in linked]


def _as_known(run: Run, known: Run | None) -> Run:
    if known is None or run.sources != known.sources or run.plan != known.plan:
        return run
    return known if run.parts.shared == known.parts.shared else run
