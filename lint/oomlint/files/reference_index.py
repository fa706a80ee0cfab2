"""Which files of a folder name which others, by the look of their text.

Linting a DeepSpeed JSON alone says little: the run is described by the YAML that names it and
the script that starts that. Parsing a whole project to find them would keep an editor waiting,
so the names of files that stand in each text are collected instead, and read again only where a
file has changed. What is found here is a guess; the linker decides what belongs together.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from time import process_time

from oomlint.documents import SUFFIXES
from oomlint.files.disk import Disk
from oomlint.files.searched import SearchedTexts
from oomlint.files.workspace import Workspace

# Of a folder that is no project (a home folder, say) only a part is looked at.
_MOST_FILES = 5000
# Of the processor: what else a machine does decides no finding.
_MOST_SECONDS = 2.0
_MOST_BYTES = 512 * 2**10
# A file that a hundred others name (a shared DeepSpeed JSON) is linted with the nearest of them.
_MOST_KIN = 24

# Of what people read.
_GUIDES = (".md", ".rst", ".txt")

_ENDINGS = b"|".join(re.escape(suffix.encode()) for suffix in sorted(SUFFIXES, reverse=True))
_FILE_NAME = rb"(?i)([\w+.-]+(?:" + _ENDINGS + rb"))(?![\w-])"
# Hydra and torchtune name a config without its ending.
_CONFIG_NAME = rb"config(?:[-_]name)?[ =:]+['\"]?(?:[\w.-]+/)*([\w.-]+)"

Stamp = tuple[int, int] | None
"""Time of the last change in nanoseconds and size of a file; ``None`` where there is none."""


def stamp(path: Path | str) -> Stamp:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size


class Kin:
    """The files below a root, by what they name."""

    def __init__(self, root: Path) -> None:
        self._workspace = Workspace(root)
        self._stamps: dict[str, Stamp] = {}
        self._named: dict[str, frozenset[str]] = {}

    def refresh(self, texts: Mapping[str, bytes]) -> None:
        """Look at the folder again; ``texts`` stand for files on disk."""
        found: dict[str, Stamp] = dict.fromkeys(texts)
        for path in _files(self._workspace.disk, self._workspace.cwd):
            found.setdefault(self._workspace.name(path), stamp(path))
        for name in self._stamps.keys() - found.keys():
            self._named.pop(name, None)
        for name, now in found.items():
            if name in texts:
                self.read(name, texts[name])
            elif self._stamps.get(name) != now or name not in self._named:
                self._named[name] = names_in(_bytes(self._workspace, name, now))
        self._stamps = found

    def read(self, name: str, data: bytes) -> bool:
        """Take in one text; whether it names other files than before."""
        before = self._named.get(name)
        self._named[name] = names_in(data)
        return self._named[name] != before

    def above(self, name: str) -> list[str]:
        """The files that name a file, and those that name these in turn; the nearest first."""
        found: dict[str, None] = {}
        todo = [name]
        while todo and len(found) < _MOST_KIN:
            for other in sorted(self.naming(todo.pop(0)), key=lambda n: _distance(n, name)):
                if other != name and other not in found and len(found) < _MOST_KIN:
                    found[other] = None
                    todo.append(other)
        return list(found)

    def naming(self, name: str) -> list[str]:
        """The files that name a file, the nearest first."""
        wanted = calls_of(name)
        near = (n for n, named in self._named.items() if not named.isdisjoint(wanted))
        return sorted(near, key=lambda n: _distance(n, name))


def texts_below(workspace: Workspace, root: Path, *, guides: bool = False) -> SearchedTexts:
    """What :class:`Kin` looks at, and the guides of the folder if they are asked for: they name files too."""
    return workspace.once(_texts_below, (root, guides))


def _texts_below(workspace: Workspace, about: tuple[Path, bool]) -> SearchedTexts:
    root, guides = about
    kinds = (*SUFFIXES, *_GUIDES) if guides else SUFFIXES
    names = dict.fromkeys(
        (*workspace.overlay, *map(workspace.name, _files(workspace.disk, root, kinds)))
    )
    return SearchedTexts(
        workspace,
        (name for name in names if _is_read(workspace, name, workspace.size(name))),
    )


def naming(texts: SearchedTexts, name: str) -> list[str]:
    """The texts that name a file, the nearest first: what :class:`Kin` knows of one file, without
    an index of all."""
    wanted = calls_of(name)
    shortest = min(wanted, key=len).encode("utf-8", "surrogateescape")
    likely = texts.holding(shortest)
    near = (
        other
        for other, data in likely
        if not texts.made_of(other, data, names_in).isdisjoint(wanted)
    )
    return sorted(near, key=lambda n: _distance(n, name))


def leading_to(workspace: Workspace, names: Sequence[str], others: Iterable[str]) -> list[str]:
    """The files among ``others`` that name one of ``names``, and those that name these in turn: of each the nearest."""
    given = frozenset(names)
    left = [n for n in others if n not in given and _is_read(workspace, n, workspace.size(n))]
    texts = SearchedTexts(workspace, left)
    found: dict[str, None] = {}
    todo = list(names) if left else []
    while todo:
        near = (other for name in todo for other in naming(texts, name)[:_MOST_KIN])
        todo = [other for other in dict.fromkeys(near) if other not in found]
        found.update(dict.fromkeys(todo))
    return list(found)


def _files(disk: Disk, root: Path, suffixes: Sequence[str] = SUFFIXES) -> Iterator[str]:
    end = process_time() + _MOST_SECONDS
    for number, path in enumerate(disk.walk(root, suffixes)):
        if number >= _MOST_FILES or process_time() > end:
            return
        yield path


def _bytes(workspace: Workspace, name: str, now: Stamp) -> bytes:
    is_read = _is_read(workspace, name, None if now is None else now[1])
    return (workspace.read_or_none(name) if is_read else None) or b""


def _is_read(workspace: Workspace, name: str, size: int | None) -> bool:
    return name in workspace.overlay or (size is not None and size <= _MOST_BYTES)


def names_in(data: bytes) -> frozenset[str]:
    """What looks like the name of a file in a text, or follows what a config is named by."""
    words = {
        match[1] for pattern in (_FILE_NAME, _CONFIG_NAME) for match in re.finditer(pattern, data)
    }
    return frozenset(word.decode("utf-8", "replace") for word in words)


def calls_of(name: str) -> set[str]:
    """What other files may call a file: its name, with and without its ending."""
    base = name.rpartition("/")[2]
    return {base, base.rpartition(".")[0] or base}


def _distance(one: str, other: str) -> tuple[int, str]:
    """How many folders lie between two files."""
    a, b = one.split("/")[:-1], other.split("/")[:-1]
    shared = next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )
    return len(a) + len(b) - 2 * shared, one
