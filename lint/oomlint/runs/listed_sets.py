"""Data sets that a ``dataset_info.json`` of the project's lists, for frameworks that know a set by its name there alone.

Sure is only what no file of the project may change: nothing of the project's own writes the list, no guide shows an entry
to be added to it, and every list to which the name of the folder may lead is without the set. A project that does not hold
the framework is run from the framework's checkout more often than not, whose own ``data`` is then the folder of that name.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from oomlint.datasets.registry import LIST, Checkout
from oomlint.documents import (
    JSON_SUFFIXES,
    PYTHON_SUFFIXES,
    TOML_SUFFIXES,
    YAML_SUFFIXES,
    kind_of,
)
from oomlint.files.ignored import Ignored
from oomlint.files.reference_index import texts_below
from oomlint.files.workspace import Workspace

_DATA = (*YAML_SUFFIXES, *JSON_SUFFIXES, *TOML_SUFFIXES)
_DEEPEST = 6
# How programs write a file, whatever they call it, and how commands do: on the line that names it, or of a whole folder.
_PROGRAM_WRITES = re.compile(rb"\bdump\(|write_text|\.write\(|[\"'][wax]\+?[\"']|shutil|copy")
_COMMAND_WRITES = re.compile(
    rb"(?m)(?:\b(?:cp|mv|ln|rsync|curl|wget|jq|sed|tee|unzip|tar)\b|>)[^\n]*\bdata(?:\b|set_info)"
)


class ListedSets:
    """Looks for names in the lists of a workspace's projects."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._ignored = Ignored()
        self._lists: dict[tuple[str, str, Checkout], tuple[frozenset[str], ...]] = {}

    def unlisted(
        self, names: Iterable[str], folder: str | None, framework: Checkout, from_file: str
    ) -> str:
        """The first of some names that no list in a folder has, as a config or a command says the folder (``None``: it says
        none); empty where there is no such list, or where the name may be in it when it is read."""
        lists = self._lists_in(folder, framework, from_file)
        for name in names if lists else ():
            if not any(name in each for each in lists) and not self._is_told(name, from_file):
                return name
        return ""

    def _lists_in(
        self, folder: str | None, framework: Checkout, from_file: str
    ) -> tuple[frozenset[str], ...]:
        """The names in each list that a folder's name may lead to; none where it may lead to another."""
        said = os.path.normpath(folder or framework.folder)
        if said.startswith(("/", "~", "..", "$")) or said in ("ONLINE",) or ":" in said:
            return ()
        root = self._workspace.project_around(from_file)
        modules = (root / "src" / each / framework.module for each in framework.packages)
        is_whole = any(self._workspace.exists(self._workspace.name(each)) for each in modules)
        if not is_whole and (folder is None or said == framework.folder):
            return ()
        key = (str(root), said, framework)
        if key not in self._lists:
            self._lists[key] = self._read(root, said, framework)
        return self._lists[key]

    def _read(self, root: Path, folder: str, framework: Checkout) -> tuple[frozenset[str], ...]:
        end = f"/{folder}/{LIST}"
        lists = self._workspace.once(lists_below, str(root))
        named = {name: text for name, text in lists if f"/{name}".endswith(end)}
        files = (str(self._workspace.file(name)) for name in named)
        if any(self._ignored.covers(each, is_folder=False, top=str(root)) for each in files):
            return ()
        found = [_names(text) for text in named.values()]
        if not all(found) or self._is_written(root, framework):
            return ()
        return tuple(found)

    def _is_written(self, root: Path, framework: Checkout) -> bool:
        """Whether a program of the project's own, or a command, may write a list; the framework's own texts write none
        but of models and of results."""
        own = re.compile(rf"(?:^|/)(?:{'|'.join(framework.packages)})/")
        texts = texts_below(self._workspace, root).holding(LIST.encode())
        return any(_writes(name, text) for name, text in texts if not own.search(name))

    def _is_told(self, name: str, from_file: str) -> bool:
        """Whether a guide or another file shows an entry of a name, as one that is to be added."""
        entry = re.compile(rb"[\"']" + re.escape(name).encode() + rb"[\"']\s*\]?\s*[:=]")
        root = self._workspace.project_around(from_file)
        texts = texts_below(self._workspace, root, guides=True).holding(name.encode())
        return any(entry.search(text) for _, text in texts)


def lists_below(workspace: Workspace, root: str) -> tuple[tuple[str, bytes], ...]:
    """The lists of data sets that a project keeps, wherever they lie, by display path."""
    below = (*workspace.below(root, (".json",), _DEEPEST), *workspace.overlay)
    named = dict.fromkeys(name for name in below if name.rpartition("/")[2] == LIST)
    texts = ((name, workspace.read_or_none(name)) for name in named)
    return tuple((name, text) for name, text in texts if text is not None)


def _writes(name: str, text: bytes) -> bool:
    if kind_of(name) in PYTHON_SUFFIXES:
        return bool(_PROGRAM_WRITES.search(text))
    return kind_of(name) not in _DATA and bool(_COMMAND_WRITES.search(text))


def _names(data: bytes) -> frozenset[str]:
    """The names of a list; none of one that is no list (datasets' ``save_to_disk`` writes a file of that name, too)."""
    try:
        listed = msgspec.json.decode(data)
    except ValueError:
        return frozenset()
    is_list = isinstance(listed, dict) and all(isinstance(each, dict) for each in listed.values())
    return frozenset(listed) if is_list else frozenset()
