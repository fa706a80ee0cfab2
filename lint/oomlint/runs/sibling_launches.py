"""Launch scripts of a project that start a config's siblings: what they start it is taken to have.

A project that sweeps over recipes keeps one script, edited from run to run, and a folder of recipes
of which the script names the last. How it shards is said there for all of them.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator
from itertools import takewhile
from operator import eq

from oomlint.documents import SHELL_SUFFIXES
from oomlint.files.workspace import Workspace

# Where projects keep their launch scripts, besides beside the README.
_FOLDERS = ("", "scripts", "script", "slurm", "bash", "run", "launch")
STARTS = (b"launch", b"torchrun", b"deepspeed")


def launch_scripts(workspace: Workspace, config: str) -> Iterator[str]:
    """Shell files that start something, in the project's folders above a config and in the folders
    there that usually hold them, the nearest first."""
    seen: set[str] = set()
    for folder in _folders_above(config):
        for below in _FOLDERS:
            for name in workspace.files_in(os.path.join(folder, below), SHELL_SUFFIXES):
                if name not in seen and _starts_something(workspace, name):
                    seen.add(name)
                    yield name


def distance(config: str, other: str) -> int | None:
    """How many folders two configs are apart; ``None`` where no folder holds both but the
    project's own. A path on its author's machine is the config of that name."""
    if os.path.isabs(other):
        return 0 if os.path.basename(other) == os.path.basename(config) else None
    mine, theirs = (name.split("/")[:-1] for name in (config, os.path.normpath(other)))
    shared = sum(takewhile(bool, map(eq, mine, theirs)))
    return len(mine) + len(theirs) - 2 * shared if shared or mine == theirs else None


def stand_alike(config: str, other: str) -> bool:
    """Whether two configs stand in one folder, or in folders of one name at the same places of a tree:
    ``recipes/a/sft/x.yaml`` and ``recipes/b/sft/y.yaml``."""
    mine, theirs = (os.path.normpath(name).split("/")[:-1] for name in (config, other))
    return mine == theirs or (len(mine) == len(theirs) and mine[-1:] == theirs[-1:])


def _folders_above(config: str) -> Iterator[str]:
    folder = config
    while folder:
        folder = folder.rpartition("/")[0]
        yield folder


def _starts_something(workspace: Workspace, name: str) -> bool:
    data = workspace.read_or_none(name)
    return data is not None and any(word in data for word in STARTS)
