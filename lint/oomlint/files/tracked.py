"""Which files a git repository has in its index: of these no pattern leaves one out.

"Files already tracked by Git are not affected" by patterns of ignored files (gitignore(5)), be they added by force or before
somebody wrote the pattern. Of 360 repositories of strangers 34 have files of ours that a pattern of theirs names, in half of
them scripts, configs or modules that are trained with (benchmarks/strangers, the draws 36 to 41).

The index is read as git describes it (gitformat-index(5), git 2.47: versions 2 to 4, SHA-1). Of one that is another, or that
is larger than any file that is read, nothing is known.
"""

from __future__ import annotations

import os
import posixpath
import struct
from collections.abc import Iterator

from oomlint.errors import ReadError
from oomlint.files.disk import DISK

_HEADER = struct.Struct(">4sII")
# Two times of eight bytes, six numbers of four, and the object's hash of twenty.
_BEFORE_FLAGS = 2 * 8 + 6 * 4 + 20
_EXTENDED = 0x4000
# The length of a name that is at least so long is not said.
_LONG = 0xFFF
_ALIGNED = 8


class Tracked:
    """What the repositories around some paths track; each index is read once, when a path of its repository is asked for."""

    def __init__(self) -> None:
        self._roots: dict[str, str | None] = {}
        self._kept: dict[str, frozenset[str]] = {}

    def has(self, path: str, *, is_folder: bool) -> bool:
        """Whether an absolute path is a tracked file, or a folder with one."""
        root = self._root_of(os.path.dirname(path))
        if root is None:
            return False
        if root not in self._kept:
            self._kept[root] = frozenset(_with_folders(_names_in(root)))
        below = os.path.relpath(path, root).replace(os.sep, "/")
        return (f"{below}/" if is_folder else below) in self._kept[root]

    def _root_of(self, folder: str) -> str | None:
        if folder not in self._roots:
            above = os.path.dirname(folder)
            if DISK.has(os.path.join(folder, ".git")):
                self._roots[folder] = folder
            else:
                self._roots[folder] = None if above == folder else self._root_of(above)
        return self._roots[folder]


def _with_folders(names: Iterator[str]) -> Iterator[str]:
    """The names, and those of the folders that they lie in, with a slash behind each."""
    seen: set[str] = set()
    for name in names:
        yield name
        folder = posixpath.dirname(name)
        while folder and folder not in seen:
            seen.add(folder)
            yield f"{folder}/"
            folder = posixpath.dirname(folder)


def _names_in(root: str) -> Iterator[str]:
    """The names in the index of a repository; none where it cannot be read."""
    try:
        data = DISK.read(os.path.join(_git_folder(root), "index"), "index")
        names = tuple(_names_of(data))
    except (ReadError, ValueError, struct.error, IndexError):
        return
    yield from (os.fsdecode(name) for name in names)


def _git_folder(root: str) -> str:
    """Where git keeps what it knows of a repository: of a worktree and of a submodule a file tells (gitrepository-layout(5))."""
    place = os.path.join(root, ".git")
    if not DISK.is_file(place):
        return place
    told = os.fsdecode(DISK.read(place, ".git")).strip()
    return os.path.join(root, told.removeprefix("gitdir:").strip())


def _names_of(data: bytes) -> Iterator[bytes]:
    """The names of the entries of an index.

    Raises:
        ValueError: it is none that we read. Short ones raise ``struct.error`` or ``IndexError``.
    """
    signature, version, count = _HEADER.unpack_from(data)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("no index of git's")
    at, name = _HEADER.size, b""
    for _ in range(count):
        begin = at
        at += _BEFORE_FLAGS
        flags = int.from_bytes(data[at : at + 2], "big")
        at += 4 if flags & _EXTENDED else 2
        kept = 0
        if version == 4:
            cut, at = _number(data, at)
            kept = len(name) - cut
        end = data.index(b"\0", at)
        name = name[:kept] + data[at:end]
        if flags & _LONG not in (_LONG, len(name)):
            raise ValueError("hashes of another length")
        yield name
        at = end + 1
        if version < 4:
            at = begin + -(-(at - begin) // _ALIGNED) * _ALIGNED


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of as many bytes as it needs, and where it ends (as the offsets of gitformat-pack(5))."""
    byte = data[at]
    value = byte & 0x7F
    while byte & 0x80:
        at += 1
        byte = data[at]
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, at + 1
