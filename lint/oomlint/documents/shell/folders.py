"""Where a script stands as it runs: what ``cd`` and its kin make of it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar


class Folders:
    """The folder that commands run in, seen from where the script starts.

    A folder that only running the script would tell is the start again: paths are then looked for
    wherever they may be.
    """

    PROGRAMS: ClassVar[frozenset[str]] = frozenset({"cd", "pushd", "popd"})

    def __init__(self) -> None:
        self.current = ""
        self.is_open = False
        """Whether it was changed to one that only running the script would tell."""
        self._before = ""
        self._stack: list[str] = []

    def change(self, program: str, words: Sequence[str | None]) -> None:
        """Follow a ``cd``, ``pushd`` or ``popd`` with its words, ``None`` where not known (bash(1),
        "SHELL BUILTIN COMMANDS")."""
        operands = [word for word in words if word is None or word == "-" or word[:1] != "-"]
        if program == "popd":
            self._go(self._stack.pop() if self._stack else "")
            return
        if program == "pushd":
            self._stack.append(self.current)
        target = operands[0] if operands else "~"
        is_anew = target is not None and target.startswith(("/", "~"))
        self.is_open = target is None or (self.is_open and not is_anew)
        if target == "-":
            self._go(self._before)
        elif not target:
            self._go("")
        else:
            self._go(posixpath.normpath(posixpath.join(self.current, target)))

    def _go(self, folder: str) -> None:
        self._before, self.current = self.current, "" if folder == "." else folder

    @contextmanager
    def kept(self) -> Iterator[None]:
        """What runs meanwhile, in a shell of its own or perhaps, leaves the script where it is."""
        held = self.current, self.is_open, self._before, list(self._stack)
        yield
        self.current, self.is_open, self._before, self._stack = held
