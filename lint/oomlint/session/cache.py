"""Checks that were made before: their output, for as long as nothing they saw has changed.

An entry is found by everything that is known before any file is read: the version and the code of
oomlint, the interpreter, the words of the command line, the working directory, the environment.
It holds what was seen on disk (see :mod:`oomlint.files.dependencies`), and counts only while all of that
would be seen again. An entry that is damaged, was written by another user, or is that of another
check is as good as none.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from oomlint import __version__
from oomlint.files.dependencies import is_certain, recording, still_holds

# What a check or its output may depend on besides files.
_VARIABLES = (
    "CI", "COLUMNS", "FORCE_COLOR", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "HF_HOME",
    "HF_HUB_CACHE", "HOME", "LANG", "LC_ALL", "LINES", "NO_COLOR", "TERM", "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
)  # fmt: skip

_MOST_ENTRIES = 500
"""Of each kind."""
CHECK, BATCH, _PART = ".check", ".batch", ".part"
"""Kinds of entries, by the ending of their files, and that of one which is being written."""
_KEY_DIGITS = 32


class _Check:
    """A check that is being made: what it says, and its status once it may be kept."""

    def __init__(self) -> None:  # no dataclass: importing that costs more than a replay
        self.said: list[tuple[bool, str]] = []
        self.status: int | None = None


_current: _Check | None = None


def replay(arguments: Sequence[str]) -> int | None:
    """Say again what the same check said, and return its exit status; ``None`` if there is none."""
    entry = _load(arguments)
    if entry is None or not still_holds(entry["sights"]):
        return None
    for err, text in entry["said"]:
        stream = sys.stderr if err else sys.stdout
        stream.buffer.write(text.encode("latin-1"))
        stream.buffer.flush()
    status: int = entry["status"]
    return status


@contextmanager
def keeping(arguments: Sequence[str]) -> Iterator[None]:
    """Keep the check that is made inside, if :func:`keep` is called."""
    global _current
    check = _current = _Check()
    try:
        with recording() as sights:
            yield
        if check.status is not None and is_certain(sights):
            _store(arguments, {"sights": sights, "said": check.said, "status": check.status})
    finally:
        _current = None


def note_output(data: bytes, *, err: bool) -> None:
    """What goes to standard output, or error."""
    if _current is not None:
        _current.said.append((err, data.decode("latin-1")))


def keep(status: int) -> None:
    """The check depends on nothing but what its footprint holds, and ends with this status."""
    if _current is not None:
        _current.status = status


def folder() -> Path:
    """Where entries are kept: the user's cache folder of this platform, or ``OOMLINT_CACHE_DIR``."""
    given = os.environ.get("OOMLINT_CACHE_DIR")
    if given:
        return Path(given)
    home = Path(os.path.expanduser("~"))
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "oomlint"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "oomlint"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "oomlint"


def clear() -> int:
    """Remove every entry, and parts of entries whose writers died; how many entries there were.

    What has another name than ours stays: the folder may be one that holds other things.

    Raises:
        OSError: the folder cannot be listed, or an entry not removed.
    """
    entries = [*_files(CHECK), *_files(BATCH)]
    for file in (*entries, *_files(_PART)):
        file.unlink(missing_ok=True)
    return len(entries)


def _files(ending: str) -> list[Path]:
    """The files of the cache whose name begins as a key does, and ends so."""
    try:
        names = os.listdir(folder())
    except FileNotFoundError:
        return []
    ours = (n for n in names if n.endswith(ending) and _is_key(n.partition(".")[0]))
    return [folder() / name for name in ours]


def _is_key(word: str) -> bool:
    return len(word) == _KEY_DIGITS and not word.strip("0123456789abcdef")


def _key(arguments: Sequence[str]) -> str:
    streams = [stream.isatty() for stream in (sys.stdout, sys.stderr)]
    return key_of([identity(), list(arguments), os.getcwd(), streams])


def key_of(known: Sequence[Any]) -> str:
    """The name of the entry that is found by all this, which JSON can say."""
    from json import dumps

    return _digest(dumps(known).encode())


def identity() -> list[Any]:
    """What every answer depends on, whatever is asked: the program, and what it heeds of the environment."""
    return [__version__, _code(), sys.version, [os.environ.get(name) for name in _VARIABLES]]


@cache
def _code() -> list[float | str]:
    """What tells of changes of oomlint's own files and the folders of installed packages: as they are where it is first
    asked, for what changes later is not what this process runs."""
    own = Path(__file__).parents[1]
    rules = find_spec("oomlint_rules")  # found without being imported
    folders = (own, *(rules.submodule_search_locations or () if rules is not None else ()))
    # Not the newest of all times alone: a clock that was wrong once would hide every later change.
    own_times = sorted(time for package in folders for time in _times_in(os.fspath(package)))
    installed = [os.stat(entry).st_mtime for entry in sys.path if os.path.isdir(entry)]
    return [_digest("\n".join(own_times).encode("utf-8", "surrogateescape")), *installed]


def _times_in(folder: str) -> list[str]:
    """When each file in a folder was last written, but for what Python keeps of it."""
    found: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                found += () if entry.name == "__pycache__" else _times_in(entry.path)
            elif not entry.name.endswith(".pyc"):
                found.append(f"{entry.path} {entry.stat().st_mtime_ns}")
    return found


def _load(arguments: Sequence[str]) -> Any:
    from json import loads

    try:
        text = read_entry(_key(arguments), CHECK)
        return None if text is None else loads(text)
    except (OSError, ValueError):
        return None


def _store(arguments: Sequence[str], entry: Mapping[str, Any]) -> None:
    from json import dumps

    try:
        write_entry(_key(arguments), CHECK, dumps(entry).encode())
    except OSError:  # of the working directory, say, which is gone
        return


def read_entry(key: str, kind: str) -> bytes | None:
    """What was written under a key; ``None`` if nothing was, or what is there now is not that."""
    try:
        digest, _, text = _read_own(folder() / f"{key}{kind}").partition(b"\n")
        return text if _entry_digest(key, text) == digest.decode("ascii") else None
    except (OSError, ValueError):
        return None


def _read_own(file: Path) -> bytes:
    """The bytes of a file that this user wrote: in a folder that others may write to, an entry of
    theirs would have us say what they like.

    Raises:
        OSError: there is no such file.
    """
    # Not waiting for a writer, if it is a pipe.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with open(os.open(file, flags | getattr(os, "O_BINARY", 0)), "rb") as opened:
        status = os.fstat(opened.fileno())
        is_own = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
        if not (stat.S_ISREG(status.st_mode) and is_own):
            raise OSError("not an entry of ours")
        return opened.read()


def write_entry(key: str, kind: str, text: bytes) -> None:
    """Write an entry under its name at once, so that no other process ever sees half of it."""
    try:
        file = folder() / f"{key}{kind}"
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A name that nobody can foresee: not that of a link which somebody has laid out.
        part = file.with_suffix(f".{os.urandom(8).hex()}{_PART}")
        try:
            part.write_bytes(_entry_digest(key, text).encode() + b"\n" + text)
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
        _drop_oldest(kind)
    except OSError:
        return  # a check without a cache is a check all the same


def _entry_digest(key: str, text: bytes) -> str:
    """Of the key too: an entry under another one's name is not believed."""
    return _digest(key.encode() + text)


def _digest(data: bytes) -> str:
    from hashlib import blake2b

    return blake2b(data, digest_size=16).hexdigest()


def _drop_oldest(kind: str) -> None:
    entries = _files(kind)
    if len(entries) > _MOST_ENTRIES:
        entries.sort(key=lambda file: file.stat().st_mtime)
        for file in entries[: _MOST_ENTRIES // 2]:
            file.unlink(missing_ok=True)
