"""The command line: one module a command, loaded when that command runs."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn


def command() -> NoReturn:
    """``oomlint`` as installed: :func:`main`, and the end of the process."""
    from oomlint.session import interrupts

    try:
        interrupts.heed()
        status = main()
    except KeyboardInterrupt:
        os._exit(interrupts.STATUS)  # half a report that waits to be printed helps nobody
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # of which the status tells already
            stream.flush()
    # To take down all objects one by one, as Python does, is a tenth of a lint of one file.
    os._exit(status)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; no exception and no traceback leaves.

    0 nothing at or above the fail level, 1 findings, 2 usage or settings error, 3 a file
    could not be used or oomlint failed.
    """
    _open_what_is_closed()
    if arguments is not None:  # a caller in this process: nothing is kept of what it does
        return _anew(arguments)
    # Little of what a lint makes refers to itself: looking for such garbage as often as Python
    # usually does takes a quarter of the time, and frees nothing. A million objects are some 130 MB.
    gc.set_threshold(1_000_000, 20, 20)
    words = sys.argv[1:]
    is_completing = "_OOMLINT_COMPLETE" in os.environ  # then the words are elsewhere
    return _anew(words) if is_completing or "--no-cache" in words else _from_cache(words)


def _open_what_is_closed() -> None:
    """Give a process that was started without standard streams (``>&-``) some that lead nowhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - stays open


def _anew(words: Sequence[str]) -> int:
    from oomlint.session import interrupts

    # msgspec 0.22.0 drops the KeyboardInterrupt of a Ctrl-C that comes while its C module loads `datetime`, and then
    # dies of a segmentation fault as soon as it decodes.
    with interrupts.held_back():
        import msgspec  # noqa: F401
    from oomlint.cli.app import run

    return run(words)


def _from_cache(words: Sequence[str]) -> int:
    from oomlint.session.cache import keeping, replay

    try:
        status = replay(words)
    except BrokenPipeError:
        from oomlint.cli.output import forget_output

        forget_output()
        return 0
    except OSError as error:
        from oomlint.cli.app import say
        from oomlint.cli.output import forget_output

        forget_output()
        say(f"output cannot be written: {error.strerror or error}")
        return 3
    if status is not None:
        return status
    with keeping(words):
        return _anew(words)
