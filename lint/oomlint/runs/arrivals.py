"""Whether a file that no file of the project is may be there all the same when a command looks for it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from oomlint.dialects.machine.launch import Launch
from oomlint.documents import SUFFIXES, kind_of
from oomlint.documents.base import ShellDocument
from oomlint.files.ignored import Ignored
from oomlint.files.reference_index import texts_below
from oomlint.files.workspace import Workspace

_BRINGS = re.compile(rb"(?:https?://|\b(?:wget|curl|cp|mv|rsync|scp|ln)\s)(?=([^\n]*))")
# What a file is called of which another is made: config.yaml.tpl, config.yaml.j2, config.example.yaml.
_TEMPLATE_ENDINGS = (
    ".tpl", ".tmpl", ".template", ".j2", ".jinja", ".jinja2", ".mustache", ".in", ".example", ".sample", ".dist",
)  # fmt: skip
_TEMPLATE_WORDS = ("example", "sample", "template")
_CLONED = re.compile(rb"git\s+clone\s[^\n]*?([\w.-]+/[\w.-]+?)(?:\.git)?[\"'\s`)]")


class Arrivals:
    """Looks for what may bring the files that commands of a workspace name."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._ignored = Ignored()

    def may_come(
        self,
        path: str,
        places: Iterable[str],
        launch: Launch,
        from_file: str,
        *,
        beside_program: bool = False,
    ) -> bool:
        """Whether the file that a command names by a path may be in one of some places, absolute ones: the script makes it,
        git leaves it out, it is fetched or copied, or it comes with another repository, of which the project tells by
        more than one to clone; of a file ``beside_program``, which is here, the guides around the command tell that."""
        document, name = launch.document, posixpath.basename(path)
        if isinstance(document, ShellDocument) and any(
            posixpath.basename(each) == name for each in (*document.made, *document.files)
        ):
            return True
        if self.is_left_out(places, from_file) or self.template_of(places):
            return True
        root = self._workspace.project_around(from_file)
        around = texts_below(self._workspace, root, guides=True)
        word = name.encode()
        brought = (around.made_of(n, text, _brought) for n, text in around.holding(word))
        if any(_is_begun(word, lines) for lines in brought):
            return True
        told = (
            around.made_of(guide, text, _cloned)
            for guide, text in around.holding(b"git clone")
            if not beside_program or _is_around(guide, from_file)
        )
        cloned = frozenset().union(*told)
        return len(cloned) > 1 or self._workspace.exists(self._workspace.name(root / ".gitmodules"))

    def template_of(self, places: Iterable[str]) -> str:
        """The file of which one in some places, absolute ones, is made before it is used; none where there is none."""
        names = (self._workspace.name(each) for place in places for each in _templates(place))
        return next(filter(self._workspace.exists, names), "")

    def is_left_out(self, places: Iterable[str], from_file: str) -> bool:
        """Whether git leaves out a file in one of some places, absolute ones: its author may have it there."""
        top = str(self._workspace.project_around(from_file))
        return any(self._ignored.covers(each, is_folder=False, top=top) for each in places)


def files_of_project(workspace: Workspace, root: Path) -> frozenset[str]:
    """The files of a project that are read, as they are seen from its root: asked of a workspace once."""
    unsaved = (
        each for each in map(workspace.file, workspace.overlay) if kind_of(each.name) in SUFFIXES
    )
    files = (*unsaved, *map(Path, workspace.disk.walk(root, SUFFIXES)))
    return frozenset(
        each.relative_to(root).as_posix() for each in files if each.is_relative_to(root)
    )


def _templates(path: str) -> Iterator[str]:
    yield from (f"{path}{ending}" for ending in _TEMPLATE_ENDINGS)
    stem, suffix = posixpath.splitext(path)
    yield from (f"{stem}{mark}{word}{suffix}" for word in _TEMPLATE_WORDS for mark in "._-")


def _brought(text: bytes) -> bytes:
    """What stands behind the words with which the lines of a text bring something: made once for all commands."""
    return b"\n".join(_BRINGS.findall(text))


def _cloned(text: bytes) -> frozenset[bytes]:
    return frozenset(match.lower() for match in _CLONED.findall(text))


def _is_begun(name: bytes, lines: bytes) -> bool:
    """Whether a word of some lines begins as a name does; patterns are compiled for the few names that stand there."""
    return name in lines and re.search(rb"\b" + re.escape(name), lines) is not None


def _is_around(guide: str, file: str) -> bool:
    """Whether a file lies in the folder of a guide or below it."""
    folder = posixpath.dirname(guide)
    return not folder or file.startswith(f"{folder}/")
