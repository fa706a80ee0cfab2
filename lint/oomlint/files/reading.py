"""Reading whole files that others may have put there: no pipe, no device, nothing without end."""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path
from typing import IO

# Settings and baselines are kilobytes; a baseline of a hundred thousand findings has 30 MB.
_MOST_BYTES = 64 * 2**20


def read_regular(path: Path) -> bytes:
    """The bytes of a file.

    Raises:
        OSError: it is missing, unreadable, no regular file, or larger than 64 MiB.
    """
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if status.st_size > _MOST_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {_MOST_BYTES // 2**20} MiB", str(path))
    # The kernel's own files say that they are empty, and some of them never end.
    return path.read_bytes() if status.st_size else b""


def read_given(name: str, most: int) -> bytes:
    """The bytes of what the user names: a file, a pipe (as of ``<(...)``), or ``-``, standard input.

    Raises:
        OSError: it is missing, unreadable, a device, or larger than ``most`` bytes.
    """
    if name == "-":
        return _bounded(sys.stdin.buffer, most)
    check_ends(os.stat(name))
    with open(name, "rb") as stream:
        return _bounded(stream, most)


def check_ends(status: os.stat_result) -> None:
    """
    Raises:
        OSError: it is a device, of which many never end.
    """
    is_device = stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)
    if is_device and status.st_rdev != os.stat(os.devnull).st_rdev:
        raise OSError(errno.EINVAL, "it is a device")


def _bounded(stream: IO[bytes], most: int) -> bytes:
    data = stream.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most // 2**20} MiB")
    return data
