"""What a check looks at on disk, so that a later one can tell that nothing of it has changed.

Everything counts that the answer depends on: the bytes of files, how others begin, files that were looked for and
are not there, the names in folders, and words that a file was searched for in vain. Nothing is noted unless :func:`recording` is on.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

Sights: TypeAlias = dict[str, str]
"""Kind of look, one letter, and path → what was seen."""

_BYTES, _FILE, _ANY, _NAMES, _TREE, _WITHOUT, _START = "b", "f", "a", "n", "t", "w", "s"
FOLDERS = (_NAMES, _TREE)
"""The kinds of look at what stands in a folder."""

_UNKNOWN = "unknown"

# As large as the largest file that is read (:mod:`oomlint.files.disk`).
_MOST_SEARCHED = 128 * 2**20

_sights: Sights | None = None
_missed: dict[str, set[bytes]] = {}
"""The words that each file was searched for in vain, by the key that they get among the sights."""


@contextmanager
def recording() -> Iterator[Sights]:
    """Note every look at the disk while the context is open; searches in vain are among them once it is closed."""
    global _sights, _missed
    before = _sights, _missed
    sights: Sights = {}
    missed: dict[str, set[bytes]] = {}
    _sights, _missed = sights, missed
    try:
        yield sights
    finally:
        _sights, _missed = before
        sights.update((key, _words_said(words)) for key, words in missed.items())


def is_recording() -> bool:
    return _sights is not None


def saw_all(sights: Sights) -> None:
    """What another process saw."""
    for key, value in sights.items():
        if key[:1] == _WITHOUT:
            _note_without(key, _words_in(value))
        else:
            _note(key[:1], key[1:], partial(str, value))


def saw_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    _note(_BYTES, path, lambda: _of_bytes(data))


def saw_no_bytes(path: str | os.PathLike[str]) -> None:
    """A file could not be read: for good if it is missing, else for reasons that may pass."""
    _note(_BYTES, path, lambda: _UNKNOWN if os.path.lexists(path) else "")


def saw_file(path: str | os.PathLike[str], is_there: bool) -> None:
    """Whether a regular file of that name was there."""
    _note(_FILE, path, lambda: str(is_there))


def saw_any(path: str | os.PathLike[str], is_there: bool) -> None:
    """Whether anything of that name was there."""
    _note(_ANY, path, lambda: str(is_there))


def saw_without(path: str | os.PathLike[str], word: bytes) -> None:
    """A file was searched for a word that does not stand in it."""
    _note_without(_WITHOUT + os.fspath(path), [word])


def saw_start(path: str | os.PathLike[str], start: bytes) -> None:
    """How a file begins; of the rest nothing counts."""
    _note(_START, path, lambda: _of_bytes(start))


def saw_names(folder: str | os.PathLike[str], names: Iterable[str]) -> None:
    """What stood in a folder."""
    _note(_NAMES, folder, lambda: _digest_names(names))


def saw_tree(folder: str | os.PathLike[str], folders: Iterable[str], files: Iterable[str]) -> None:
    """What stood in a folder, of which the folders were entered."""
    _note(_TREE, folder, lambda: _digest_tree(folders, files))


def still_holds(sights: Sights, again: set[tuple[str, str]] | None = None) -> bool:
    """Whether all that was seen would be seen again. ``again``: what has just been, which is not looked at
    twice, and which this adds to."""
    again = set() if again is None else again
    for key, value in sights.items():
        if (key, value) not in again:
            if value == _UNKNOWN or _look(key, value) != value:
                return False
            again.add((key, value))
    return True


def is_certain(sights: Sights) -> bool:
    """Whether everything that was seen can be compared later."""
    return _UNKNOWN not in sights.values()


def _note(kind: str, path: str | os.PathLike[str], seen: Callable[[], str]) -> None:
    if _sights is not None:
        key, value = kind + os.fspath(path), seen()
        changed_meanwhile = _sights.get(key, value) != value
        _sights[key] = _UNKNOWN if changed_meanwhile else value


def _note_without(key: str, words: Iterable[bytes]) -> None:
    """Add to the words that a file is without."""
    if _sights is not None:
        _missed.setdefault(key, set()).update(words)


def _words_said(words: Iterable[bytes]) -> str:
    return " ".join(sorted(word.hex() for word in words if word))


def _words_in(said: str) -> Iterable[bytes]:
    return map(bytes.fromhex, said.split())


def _look(key: str, before: str) -> str:
    kind, path = key[:1], key[1:]
    try:
        if kind == _WITHOUT:
            return before if _is_without(path, _words_in(before)) else _UNKNOWN
        if kind == _START:
            return _of_start(path, before)
        if kind == _BYTES:
            return _of_file(path, before) if os.path.lexists(path) else ""
        if kind == _NAMES:
            return _digest_names(os.listdir(path))
        if kind == _TREE:
            _, folders, files = next(os.walk(path))
            return _digest_tree(folders, files)
        return str(os.path.isfile(path) if kind == _FILE else os.path.exists(path))
    except (OSError, ValueError, StopIteration):
        return _UNKNOWN


def _of_file(path: str, before: str) -> str:
    status = os.stat(path)
    # In place of a config there may be a pipe by now, or a file that is larger than memory.
    is_alike = stat.S_ISREG(status.st_mode) and before.startswith(f"{status.st_size} ")
    if not is_alike:
        return _UNKNOWN
    return _of_bytes(Path(path).read_bytes() if status.st_size else b"")


def _of_start(path: str, before: str) -> str:
    if not stat.S_ISREG(os.stat(path).st_mode):
        return _UNKNOWN
    with open(path, "rb") as file:
        return _of_bytes(file.read(int(before.partition(" ")[0])))


def _is_without(path: str, words: Iterable[bytes]) -> bool:
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_SEARCHED:
        return False
    data = Path(path).read_bytes() if status.st_size else b""
    return not any(word in data for word in words)


def _of_bytes(data: bytes) -> str:
    return f"{len(data)} {_digest(data)}"


def _digest(data: bytes) -> str:
    from hashlib import blake2b

    return blake2b(data, digest_size=16).hexdigest()


def _digest_names(names: Iterable[str]) -> str:
    return _digest("\0".join(sorted(names)).encode("utf-8", "surrogateescape"))


def _digest_tree(folders: Iterable[str], files: Iterable[str]) -> str:
    return _digest_names((*(f"{folder}/" for folder in folders), *files))
