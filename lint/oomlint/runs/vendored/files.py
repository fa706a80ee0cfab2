"""The files of a project that may be programs of its own, or copies of a framework's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from oomlint.dialects.base import Dialect
from oomlint.files.workspace import Workspace
from oomlint.runs.vendored.checkouts import NAMING_FILES, distribution_of

# `src/llamafactory/hparams/model_args.py` of a copy in a folder of the project.
DEEPEST = 4
# To read so many takes a tenth of a second.
_MOST_PROGRAMS = 500
# A framework's package is some ten folders deep, and has some hundreds of files (ms-swift 4.4: 6, 560).
PACKAGE_DEEPEST, MOST_OF_PACKAGE = 10, 2000
# A whole repository lies in a folder of the project (`ms-swift-3.1.1`) or in one of such (`third_party/ms-swift`).
_REPOSITORY_DEEPEST = 2


def programs_in(workspace: Workspace, folder: str) -> Iterator[str]:
    """The Python files of a project, those that are not saved yet first."""
    unsaved = [name for name in workspace.overlay if name.endswith(".py")]
    return islice((*unsaved, *workspace.below(folder, (".py",), DEEPEST)), _MOST_PROGRAMS)


def namesake_of(workspace: Workspace, path: str, from_file: str) -> str:
    """The one file of a name that a project has, wherever it lies; none where there are several."""
    _, name = os.path.split(path)
    suffix = os.path.splitext(name)[1]
    files = (
        workspace.below(str(workspace.project_around(from_file)), (suffix,), DEEPEST)
        if suffix
        else ()
    )
    found = list(islice((each for each in files if os.path.basename(each) == name), 2))
    return found[0] if len(found) == 1 else ""


def copies_around(workspace: Workspace, dialect: Dialect, from_file: str) -> Iterator[str]:
    """The folders around a file, within its project, that may be copies of a framework's packages."""
    if dialect.packages:
        project = workspace.project_around(from_file)
        around = (p for p in workspace.search_folders(from_file) if p.is_relative_to(project))
        for folder in around:
            yield from (str(folder / p) for p in dialect.packages if workspace.holds(folder, p))


def copies_carried(workspace: Workspace, dialect: Dialect, from_file: str) -> Iterator[str]:
    """The folders that may be copies of a framework's packages, those in whole repositories of it that the file's
    project carries, to be installed from there, included."""
    found = dict.fromkeys(copies_around(workspace, dialect, from_file))
    if dialect.packages:
        project = str(workspace.project_around(from_file))
        name = dialect.distribution or dialect.name
        for root, distribution in workspace.once(_distributions_in, project):
            if distribution == name:
                held = (p for p in dialect.packages if workspace.holds(root, p))
                found |= dict.fromkeys(str(root / package) for package in held)
    yield from found


def _distributions_in(workspace: Workspace, project: str) -> tuple[tuple[Path, str], ...]:
    """What of a project is installed by itself: the folders, and what each is called."""
    suffixes = tuple({os.path.splitext(each)[1] for each in NAMING_FILES})
    names = (*workspace.overlay, *workspace.below(project, suffixes, _REPOSITORY_DEEPEST))
    folders = {workspace.file(n).parent for n in names if os.path.basename(n) in NAMING_FILES}
    inside = sorted(each for each in folders if Path(project) in each.parents)
    return tuple((each, distribution_of(workspace, each)) for each in inside)
