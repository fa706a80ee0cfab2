"""Texts that are searched for words.

What is made of a search depends on a text only where it holds the word; of any other it depends on that alone. So a
check in which a word was looked for all over a project is no other after somebody has changed a file without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oomlint.files import dependencies
from oomlint.files.workspace import Workspace


class SearchedTexts:
    """Files of a workspace by display path, read when first searched."""

    def __init__(self, workspace: Workspace, names: Iterable[str]) -> None:
        self._workspace = workspace
        self._names = tuple(dict.fromkeys(names))
        self._texts: dict[str, bytes | None] = {}
        self._sights: dict[str, dependencies.Sights] = {}

    def holding(self, word: bytes) -> Iterator[tuple[str, bytes]]:
        """The files in which a word stands, with their texts; those that cannot be read are none."""
        for name in self._names:
            data = self._read(name)
            sights = self._sights.get(name)
            if data is None or word in data:
                dependencies.saw_all(sights or {})
            elif sights:
                dependencies.saw_without(self._workspace.file(name), word)
            if data is not None and word in data:
                yield name, data

    def _read(self, name: str) -> bytes | None:
        if name not in self._texts and dependencies.is_recording():
            with dependencies.recording() as sights:
                self._texts[name] = self._workspace.read_or_none(name)
            self._sights[name] = sights
        elif name not in self._texts:
            self._texts[name] = self._workspace.read_or_none(name)
        return self._texts[name]
