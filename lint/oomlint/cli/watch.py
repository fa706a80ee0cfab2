"""``oomlint check --watch``: the same check again whenever something that it looked at has changed.

What it looked at is known from its footprint: not only the files that were named, but the DeepSpeed
JSON beside them, the settings, files that were looked for in vain, and the names in folders.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

import click

from oomlint.cli.output import at_once, emit, emit_bytes
from oomlint.errors import CannotEdit, FileError, UsageError
from oomlint.files.dependencies import FOLDERS, Sights, recording

# Without watchfiles everything is looked at this often; with it, events say when to look.
_POLL_SECONDS = 0.5
# An editor writes in several strokes: how long nothing must change, and how long to wait for that.
_QUIET_SECONDS = 0.05
_MOST_UNREST_SECONDS = 2.0
# Sends a terminal's cursor to the upper left corner and empties the screen; what scrolled away stays.
_CLEAR = b"\x1b[H\x1b[2J"
# watchfiles wakes up this often without an event, for what it was not told to watch.
_WAKE_MS = 2000

# What editors put beside a file while they write it: Vim, Emacs, JetBrains, sed, this program.
_PASSING_ENDINGS = ("~", ".swp", ".swx", ".swo", ".tmp", "___jb_tmp___", "___jb_old___")
_PASSING_NAMES = (".#", "#", "4913", ".oomlint-", "sed")

Mark: TypeAlias = object
"""What tells one state of a file or folder from the next."""


_UNSEEN = object()


class Watched:
    """What a check looked at, in the state that it was in."""

    def __init__(
        self, sights: Sights, ignored: Iterable[Path] = (), since_ns: int | None = None
    ) -> None:
        """``since_ns``: when the check began; a file that was written later was not seen so."""
        self._ignored = frozenset(os.path.abspath(path) for path in ignored)
        self._keys = [key for key in sights if key[1:] not in self._ignored]
        self._marks = self._look()
        if since_ns is not None:
            self._marks = {key: m for key, m in self._marks.items() if not _is_newer(key, since_ns)}

    def __len__(self) -> int:
        """How many files were read."""
        return sum(key.startswith("b") and mark is not None for key, mark in self._marks.items())

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders in which a change can be seen."""
        found = {
            key[1:] if key.startswith(FOLDERS) else os.path.dirname(key[1:]) for key in self._keys
        }
        return tuple(sorted(folder for folder in found if os.path.isdir(folder)))

    def changed(self) -> tuple[str, ...]:
        """The paths that are not as they were; what is new counts as seen."""
        now = self._look()
        before, self._marks = self._marks, now
        found = (key[1:] for key, mark in now.items() if before.get(key, _UNSEEN) != mark)
        return tuple(dict.fromkeys(found))

    def _look(self) -> Mapping[str, Mark]:
        return {key: self._mark(key) for key in self._keys}

    def _mark(self, key: str) -> Mark:
        path = key[1:]
        try:
            if key.startswith(FOLDERS):
                return frozenset(n for n in os.listdir(path) if not self._is_passing(path, n))
            status = os.stat(path)
        except (OSError, ValueError):
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _is_passing(self, folder: str, name: str) -> bool:
        is_of_editor = name.endswith(_PASSING_ENDINGS) or name.startswith(_PASSING_NAMES)
        return is_of_editor or os.path.join(folder, name) in self._ignored


def _is_newer(key: str, since_ns: int) -> bool:
    try:
        return key.startswith("b") and os.stat(key[1:]).st_mtime_ns >= since_ns
    except (OSError, ValueError):
        return False


def keep_checking(
    check: Callable[[], int],
    *,
    ignored: Iterable[Path] = (),
    rewrites: bool = False,
) -> int:
    """Call ``check`` until the user interrupts.

    ``ignored`` are files that it writes; with ``rewrites`` it changes what it reads, and that is
    no reason to call it again. The first check may fail for wrong usage; later ones, of a settings
    file that is being edited, only say so. Returns 0.

    Raises:
        UsageError: the first check says so.
    """
    sights: Sights = {}
    news: str | None = None
    try:
        while True:
            began = time.time_ns()
            with recording() as seen, at_once():
                if news is not None and sys.stdout.isatty():
                    emit_bytes(_CLEAR)
                    _say(news)
                _once(check, is_first=news is None)
            # A check that failed has looked at less.
            sights = {**sights, **seen}
            watched = Watched(sights, ignored, None if rewrites else began)
            _say(f"watching {len(watched)} files; Ctrl-C ends it")
            news = f"{_names(wait_for_change(watched))} changed"
            _say(news)  # below the report as it was, which stays until there is a new one
            if len(sights) > _MOST_SIGHTS:
                sights = {}
    except KeyboardInterrupt:
        emit("\n", err=True)
        return 0


# Sights of files that are gone add up over a long day; then the next check starts anew.
_MOST_SIGHTS = 200_000


def _once(check: Callable[[], int], is_first: bool) -> None:
    try:
        check()
    except (UsageError, click.ClickException) as error:
        if is_first:
            raise
        _say(f"error: {error if isinstance(error, UsageError) else error.format_message()}")
    except (FileError, CannotEdit) as error:
        path = f"{error.path}: " if isinstance(error, FileError) else ""
        _say(f"error: {path}{error}")


def wait_for_change(watched: Watched) -> tuple[str, ...]:
    """Wait until something has changed and settled; what it is."""
    for _ in _wake_ups(watched):
        changed = watched.changed()
        if changed:
            return _settled(watched, changed)
    raise AssertionError("waking up does not end")


def _settled(watched: Watched, changed: tuple[str, ...]) -> tuple[str, ...]:
    end = time.monotonic() + _MOST_UNREST_SECONDS
    while time.monotonic() < end:
        time.sleep(_QUIET_SECONDS)
        more = watched.changed()
        if not more:
            break
        changed = tuple(dict.fromkeys((*changed, *more)))
    return changed


def _wake_ups(watched: Watched) -> Iterator[None]:
    """Moments at which it is worth to look."""
    yield
    try:
        from watchfiles import watch
    except ImportError:
        while True:
            time.sleep(_POLL_SECONDS)
            yield
    for _ in watch(
        *watched.folders,
        watch_filter=None,
        debounce=100,
        rust_timeout=_WAKE_MS,
        yield_on_timeout=True,
        recursive=False,
        ignore_permission_denied=True,
    ):
        yield
    raise KeyboardInterrupt  # watchfiles ends so, too, where the signal came while it slept


def _names(paths: tuple[str, ...]) -> str:
    names = [_name(path) for path in paths[:3]]
    rest = len(paths) - len(names)
    return ", ".join(names) + (f" and {rest} more" if rest > 0 else "")


def _name(path: str) -> str:
    name = os.path.relpath(path)
    if not os.path.isdir(path):
        return name
    return "a file of this folder" if name == "." else f"a file of {name}"


def _say(text: str) -> None:
    emit(f"[{datetime.now():%H:%M:%S}] {text}\n", err=True)
