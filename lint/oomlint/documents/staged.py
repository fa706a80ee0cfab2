"""New texts that wait beside the files whose place they are to take.

Each is locked for as long as its oomlint lives, so that what a killed one left behind can be told from what
another is writing right now.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from oomlint.documents.suffixes import STAGED


def new_staged(target: Path) -> tuple[int, str]:
    """A new file beside ``target``, locked: its descriptor and its path."""
    import tempfile  # which brings shutil and random: most lints write nothing

    while True:
        descriptor, path = tempfile.mkstemp(
            dir=target.parent, prefix=f".{target.name[:100]}.", suffix=STAGED
        )
        _lock(descriptor, wait=True)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                return descriptor, path
        # Before it was locked, another oomlint took it for one that was left behind.
        os.close(descriptor)


def is_staged(name: str) -> bool:
    return name.endswith(STAGED)


def clear_folders(folders: Iterable[Path]) -> None:
    """Delete what killed oomlints left in some folders."""
    for folder in folders:
        with contextlib.suppress(OSError):
            for name in filter(is_staged, os.listdir(folder)):
                clear(folder / name)


def clear(file: Path) -> bool:
    """Delete a text that a killed oomlint left behind; whether it is gone.

    It stays where its writer may be alive: where that still holds its lock, or there are no locks.
    """
    try:
        # Without waiting: in place of the file there may be a pipe.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(file, flags)
    except OSError:
        return False
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        if not is_file or not _lock(descriptor, wait=False):
            return False
        os.unlink(file)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _lock(descriptor: int, *, wait: bool) -> bool:
    """Lock an open file for as long as this process lives; whether that was possible."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True
