"""Programs that a command starts and that the project no longer has: the command ends before anything is loaded.

A project that starts programs of a framework's checkout, or of another repository, need not hold them. One that has the
program's folder and not the program, or has it in a package of another name, was changed behind the command's back.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from oomlint.dialects.machine.launch import Launch, place
from oomlint.documents.text import Location
from oomlint.files.disk import walk
from oomlint.files.workspace import Workspace
from oomlint.runs.parts import MissingFile

_SUFFIX = ".py"


class AbsentPrograms:
    """Looks for the programs of commands all over their project."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._programs: dict[Path, frozenset[str]] = {}

    def of(self, launch: Launch, from_file: str) -> Iterator[MissingFile]:
        """The program of a command that should be here and is not, if that is so."""
        path = launch.name.replace(".", "/") + _SUFFIX if launch.is_module else launch.script or ""
        folder, _, name = path.removeprefix("./").rpartition("/")
        if not folder or path[0] in "/~$" or ".." in path or launch.command.folder_is_open:
            return
        if self._workspace.resolve(path, from_file, launch.command.folder) is not None:
            return
        root = self._workspace.project_around(from_file)
        programs = self._around(root)
        if any(f"/{each}".endswith(f"/{folder}/{name}") for each in programs):
            return  # from another folder it is found
        if self._had(folder, name, programs):
            where = Location(from_file, place(launch.program))
            yield MissingFile(launch.name, where, "was not found", is_program=True)

    def _had(self, folder: str, name: str, programs: frozenset[str]) -> bool:
        """Whether the project has the folder of a program, or the program in a package of another name."""
        folders = {each.rpartition("/")[0] for each in programs}
        if folder in folders or ("/" in folder and any(f.endswith(f"/{folder}") for f in folders)):
            return True
        inner = folder.partition("/")[2]
        return bool(inner) and any(f"/{each}".endswith(f"/{inner}/{name}") for each in programs)

    def _around(self, root: Path) -> frozenset[str]:
        if root not in self._programs:
            names = (*self._workspace.overlay, *map(self._workspace.name, walk(root, (_SUFFIX,))))
            self._programs[root] = frozenset(each for each in names if each.endswith(_SUFFIX))
        return self._programs[root]
