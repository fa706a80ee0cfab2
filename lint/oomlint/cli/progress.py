"""A progress bar for work that takes a while, where somebody is watching."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeAlias, TypeVar

T = TypeVar("T")

# Work that is done by then shows nothing.
_PATIENCE_SECONDS = 1.5
# The clock in the bar tells that the work goes on: it moves as often as one looks at it.
_REPAINT_SECONDS = 0.25
_BAR_WIDTH = 30
_ERASE_LINE = "\r\x1b[2K"

Tick: TypeAlias = Callable[[int, "int | None"], None]
"""Told how much is done and how much there is, ``None`` if that is not known."""


@contextmanager
def shown(what: str, *, quiet: bool = False) -> Iterator[Tick]:
    """A bar on standard error while the context is open; gone without a trace at its end.

    Nothing is shown where standard error is no terminal, in CI, or on a terminal that cannot move
    its cursor.
    """
    if quiet or not _is_watched():
        yield ignore
        return
    bar = _Bar(what)
    try:
        yield bar.tick
    finally:
        bar.stop()


def counted(things: Sequence[T], tick: Tick) -> Iterator[T]:
    """The things one by one; ``tick`` is told how many have been dealt with. Of a single one that
    says nothing, and the bar only shows that it is alive."""
    total = len(things) if len(things) > 1 else None
    for done, thing in enumerate(things):
        tick(done, total)
        yield thing
    tick(len(things), total)


def ignore(_done: int, _total: int | None) -> None:
    """A tick that nobody watches."""


def _is_watched() -> bool:
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not in_ci


class _Bar:
    """The bar itself, one line that a thread of its own draws again and again; the worker's tells it how far it is."""

    def __init__(self, what: str) -> None:
        from threading import Event, Thread

        self._what = what
        self._done = 0
        self._total: int | None = None
        self._is_over = Event()
        self._thread = Thread(target=self._keep_drawing, daemon=True)
        self._thread.start()

    def tick(self, done: int, total: int | None) -> None:
        self._done, self._total = done, total

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _keep_drawing(self) -> None:
        from time import monotonic

        began = monotonic()
        if self._is_over.wait(_PATIENCE_SECONDS):
            return
        with suppress(OSError, ValueError):  # a terminal that went away: the work goes on
            while True:
                _draw(_ERASE_LINE + _line(self._what, self._done, self._total, monotonic() - began))
                if self._is_over.wait(_REPAINT_SECONDS):
                    break
            _draw(_ERASE_LINE)


def _draw(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _line(what: str, done: int, total: int | None, seconds: float) -> str:
    """``checking [======>         ] 40 %, 3 s``; without the bar where no share of the work is known."""
    if not total:
        return f"{what}, {seconds:.0f} s"
    filled = min(_BAR_WIDTH, _BAR_WIDTH * done // total)
    bar = ("=" * filled + ">").ljust(_BAR_WIDTH)[:_BAR_WIDTH]
    return f"{what} [{bar}] {100 * done // total} %, {seconds:.0f} s"
