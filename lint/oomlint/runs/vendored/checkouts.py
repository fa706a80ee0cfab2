"""Repositories of libraries that lie whole in a folder of a project, their examples and guides with them.

Of a framework whose examples of all days are known (:mod:`oomlint.dialects.upstream`) each file tells by itself whether
it is one that ships: what somebody wrote beside them is a run of the project's.
"""

from __future__ import annotations

import re
from pathlib import Path

from oomlint.files.requirements import PACKAGES
from oomlint.files.workspace import Workspace

# What a distribution calls itself (packaging.python.org, "Writing your pyproject.toml"; setuptools' `setup(name=)`).
_NAMED = (
    ("pyproject.toml", rb"(?m)^name\s*=\s*[\"']([\w.-]+)"),
    ("setup.py", rb"\bname\s*=\s*[\"']([\w.-]+)"),
)
NAMING_FILES = tuple(file for file, _ in _NAMED)
_EXAMPLES = frozenset({"examples", "docs", "notebooks"})


def is_shown_by(checkout: Path, file: Path) -> bool:
    """Whether a file of a library's repository is there for its readers: an example or a guide."""
    inside = file.relative_to(checkout)
    return file.suffix == ".md" or not _EXAMPLES.isdisjoint(inside.parts[:-1])


def checkout_around(workspace: Workspace, path: str) -> tuple[str, Path] | None:
    """The library in whose repository a file lies, where that is a folder of the project and not all of it, and the
    folder."""
    project = workspace.project_around(path)
    for folder in workspace.search_folders(path):
        if project in folder.parents and workspace.file(path).is_relative_to(folder):
            name = distribution_of(workspace, folder)
            if name in PACKAGES and not _has_known_examples(name):
                return name, folder
    return None


def _has_known_examples(name: str) -> bool:
    from oomlint.dialects.upstream.frameworks import FRAMEWORKS  # few projects carry a library

    return any(each.name == name and each.examples for each in FRAMEWORKS)


def distribution_of(workspace: Workspace, folder: Path) -> str:
    """What a folder is installed as; empty where nothing in it can be."""
    for file, pattern in _NAMED:
        if workspace.holds(folder, file):
            text = workspace.read_or_none(workspace.name(folder / file)) or b""
            if match := re.search(pattern, text):
                return match[1].decode("ascii", "replace").lower().replace("_", "-")
    return ""
