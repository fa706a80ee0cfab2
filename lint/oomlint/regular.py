"""Reading whole files that others may have put there: no pipe, no device, nothing without end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

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
