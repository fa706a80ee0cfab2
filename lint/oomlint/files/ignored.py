"""What a repository's ``.gitignore`` files, or a list of such patterns, leave out.

A file that is named is never left out by git: only what a walk through a folder comes upon, and that git does not track
(:mod:`oomlint.files.tracked`).
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

from oomlint.errors import ReadError
from oomlint.files.disk import DISK

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_NAME = ".gitignore"

# A pattern becomes a regular expression that tries every way to share a name out among its stars: with six in a
# name of 60 letters it takes a second (pathspec 1.1.1), and with more it does not end. Whoever writes a repository's
# files would hold up a check of it.
MOST_STARS = 3
MOST_DEEP = 3
# Linux's PATH_MAX (limits.h). To compile a pattern of a megabyte takes ten seconds.
LONGEST_PATTERN = 4096


@lru_cache(maxsize=64)
def patterns(lines: tuple[str, ...]) -> GitIgnoreSpec:
    """Patterns as git reads them, for paths with slashes. What is none (a lone ``!``) leaves nothing out, nor does
    one that :func:`is_costly`."""
    from pathspec import GitIgnoreSpec  # most projects have no patterns, and do not wait for it

    return GitIgnoreSpec.from_lines(line for line in lines if _is_sound(line))


def is_costly(pattern: str) -> bool:
    """Whether to match a pattern could take longer than anybody waits."""
    parts = pattern.split("/")
    if len(pattern) > LONGEST_PATTERN or parts.count("**") > MOST_DEEP:
        return True
    return any(part.count("*") > MOST_STARS for part in parts if part != "**")


def _is_sound(line: str) -> bool:
    from pathspec import GitIgnoreSpec

    if is_costly(line):
        return False
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


class Ignored:
    """What git leaves out of the repositories around some paths; files are read once."""

    def __init__(self) -> None:
        self._lines: dict[str, tuple[str, ...]] = {}
        self._is_root: dict[str, bool] = {}

    def covers(self, path: str, *, is_folder: bool, top: str = "") -> bool:
        """Whether an absolute path is left out by the nearest pattern that speaks of it.

        Folders above it are not asked: a walk that has come here was let into them. ``top`` is the folder of a project
        that is no repository here, such as an archive of one: its patterns tell what its author's has.
        """
        for folder in self._folders_up(os.path.dirname(path), top):
            lines = self._read(folder)
            if not lines:
                continue
            below = os.path.relpath(path, folder).replace(os.sep, "/")
            said = patterns(lines).check_file(f"{below}/" if is_folder else below).include
            if said is not None:
                return said
        return False

    def _folders_up(self, folder: str, top: str) -> list[str]:
        """From a folder up to the top of its repository, or to what is said to be one; none outside of both."""
        found = []
        while True:
            found.append(folder)
            if self._tops(folder) or folder == top:
                return found
            above = os.path.dirname(folder)
            if above == folder:
                return []
            folder = above

    def _tops(self, folder: str) -> bool:
        if folder not in self._is_root:
            self._is_root[folder] = DISK.has(os.path.join(folder, ".git"))
        return self._is_root[folder]

    def _read(self, folder: str) -> tuple[str, ...]:
        if folder not in self._lines:
            path = os.path.join(folder, _NAME)
            self._lines[folder] = _lines_of(path) if DISK.is_file(path) else ()
        return self._lines[folder]


def _lines_of(path: str) -> tuple[str, ...]:
    try:
        data = DISK.read(path, _NAME)
    except ReadError:
        return ()
    return tuple(data.decode("utf-8", "replace").removeprefix("\ufeff").splitlines())
