"""The files of a commit as data in a folder of ours.

They come from the checkout's git objects, or from the forge's archive: nothing is checked out, no
filter and no hook runs.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import subprocess
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from msgspec import Struct

from oomlint.documents import kind_of
from oomlint.errors import ReadError
from oomlint.files.disk import MAX_FILE_BYTES, MAX_NOTEBOOK_BYTES

# What is no config may still be named by one (a hostfile, a DeepSpeed JSON by another ending), or
# pin versions; such files are small.
_MOST_OTHER_BYTES = 64 * 2**10
_MOST_TREE_BYTES = 2 * 2**30
_COMMIT = re.compile(r"[0-9a-f]{40,64}")


class CommitTree(Struct, frozen=True):
    """The files of a commit that a lint may look at, below ``folder``."""

    folder: Path
    digests: Mapping[str, bytes]
    """Path from the repository's root → digest of the bytes."""

    def changed_to(self, other: CommitTree) -> frozenset[str]:
        """The paths at which two trees differ."""
        paths = self.digests.keys() | other.digests.keys()
        return frozenset(p for p in paths if self.digests.get(p) != other.digests.get(p))


def write_tree(files: Iterable[tuple[str, bytes]], folder: Path) -> CommitTree:
    """Write files into a folder that is empty and nobody else's.

    Raises:
        ReadError: they take up far more than configs do, or the disk does not take them.
    """
    digests: dict[str, bytes] = {}
    total = 0
    try:
        # Lookups of settings and references end here, as they do in a checkout.
        (folder / ".git").mkdir(parents=True)
    except OSError as error:
        raise _unwritten(folder, error) from None
    for path, data in files:
        if not _is_wanted(path, len(data)) or not _is_plain(path):
            continue
        total += len(data)
        if total > _MOST_TREE_BYTES:
            raise ReadError(path, f"is of a tree of more than {_MOST_TREE_BYTES >> 30} GiB")
        file = folder / path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        except OSError as error:
            if error.errno in _OF_NAMES:  # no run can use it on this system either
                continue
            raise _unwritten(folder, error) from None
        digests[path] = hashlib.sha256(data).digest()
    return CommitTree(folder, digests)


# A name that is too long or of odd characters; one that is a file's and a folder's at once.
_OF_NAMES = frozenset(
    {errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOENT}
)  # fmt: skip


def _unwritten(folder: Path, error: OSError) -> ReadError:
    """Less than the whole tree would pass for a clean one."""
    return ReadError(str(folder), f"cannot be written: {error.strerror or error}")


def _is_wanted(path: str, size: int) -> bool:
    kind = kind_of(path)
    if kind == ".ipynb":
        return size <= MAX_NOTEBOOK_BYTES
    return size <= (MAX_FILE_BYTES if kind else _MOST_OTHER_BYTES)


def _is_plain(path: str) -> bool:
    """Whether a path stays below the folder that it is joined to, on any system."""
    parts = path.split("/")
    return not any(
        part in ("", ".", "..") or part.lower() == ".git" or any(c in part for c in "\\:\0")
        for part in parts
    )


def committed(commit: str, checkout: Path) -> Iterator[tuple[str, bytes]] | None:
    """Path and bytes of the files that a commit holds, from the objects of a checkout; ``None``
    where they are not all here."""
    if not _COMMIT.fullmatch(commit):
        return None
    listing = _git(checkout, "ls-tree", "-r", "-z", "-l", "--full-tree", commit)
    if listing is None:
        return None
    wanted: list[tuple[str, str]] = []
    for entry in listing.split(b"\0"):
        head, _, name = entry.partition(b"\t")
        words = head.split()
        path = name.decode("utf-8", "surrogateescape")
        # Links (120000) and submodules (160000) are no files.
        if len(words) == 4 and words[0].startswith(b"100"):
            if not words[3].isdigit():
                return None
            if _is_wanted(path, int(words[3])):
                wanted.append((path, words[2].decode()))
    blobs = _git(
        checkout,
        *("cat-file", "--batch"),
        given="".join(f"{identity}\n" for _, identity in wanted).encode(),
    )
    return None if blobs is None else _paired(wanted, blobs)


def _paired(wanted: Iterable[tuple[str, str]], blobs: bytes) -> Iterator[tuple[str, bytes]]:
    """What ``git cat-file --batch`` printed, file by file."""
    start = 0
    for path, _ in wanted:
        end = blobs.index(b"\n", start)
        words = blobs[start:end].split()
        if len(words) != 3:
            start = end + 1
            continue
        size = int(words[2])
        yield path, blobs[end + 1 : end + 1 + size]
        start = end + 1 + size + 1


def _git(checkout: Path, *arguments: str, given: bytes = b"") -> bytes | None:
    environ = {
        **os.environ,
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
    }
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *arguments],
            input=given,
            capture_output=True,
            check=False,
            env=environ,
        )
    except OSError:  # no git here
        return None
    return done.stdout if done.returncode == 0 else None


def current_commit(checkout: Path) -> str | None:
    """The commit that is checked out here, if anything is."""
    found = _git(checkout, "rev-parse", "--verify", "HEAD")
    return None if found is None else found.decode("ascii", "replace").strip()


def unpacked(archive: IO[bytes], host: str) -> Iterator[tuple[str, bytes]]:
    """Path and bytes of the files in a forge's ``.tar.gz``, which puts all into one folder.

    Raises:
        ReadError: it is damaged.
    """
    try:
        with tarfile.open(fileobj=archive, mode="r|gz") as members:
            for member in members:
                _, _, path = member.name.partition("/")
                if not member.isreg() or not _is_wanted(path, member.size):
                    continue
                stream = members.extractfile(member)
                if stream is not None:
                    yield path, stream.read()
    # tarfile lets out what it stumbles over in a head that is cut off or out of range.
    except (tarfile.TarError, zlib.error, EOFError, OSError, TypeError, ValueError) as error:
        raise ReadError(host, f"sent an archive that cannot be read: {error}") from None
