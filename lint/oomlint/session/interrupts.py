"""Ctrl-C: whatever runs at that moment ends with status 130, and says nothing."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

STATUS = 130
"""128 and the number of the signal, as shells have it."""


def heed() -> None:
    """Let the first Ctrl-C raise :class:`KeyboardInterrupt`, so that what is being written is put back,
    and a second one, or one that comes where no exception can leave, end the process at once."""
    with suppress(ValueError):  # only the main thread hears signals
        signal.signal(signal.SIGINT, _first)
    sys.unraisablehook = _unraisable


def _first(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, _second)
    raise KeyboardInterrupt


def _second(_number: int, _frame: FrameType | None) -> None:
    os._exit(STATUS)


def _unraisable(told: Any) -> None:
    if told.exc_type is not None and issubclass(told.exc_type, KeyboardInterrupt):
        os._exit(STATUS)
    sys.__unraisablehook__(told)


@contextmanager
def held_back() -> Iterator[None]:
    """Let a Ctrl-C wait: while a process is forked, so that it hears one only once it has said that it does
    not care, and while code runs that cannot be left by an exception."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore() -> None:
    """In a process that another one ends: what came while it was forked is forgotten, too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
