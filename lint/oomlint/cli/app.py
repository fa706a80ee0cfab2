"""One call of the command line: who answers it, and what errors turn into."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from oomlint.cli.output import emit_bytes, forget_output, harmless
from oomlint.errors import CannotEdit, FileError, UsageError, in_words
from oomlint.session import interrupts


def run(words: Sequence[str]) -> int:
    """See :func:`oomlint.cli.main`."""
    try:
        from oomlint.cli.group import call

        status = call(words)
        emit_bytes(b"")
    except UsageError as error:
        say(str(error))
        return 2
    except (FileError, CannotEdit) as error:
        path = f"{error.path}: " if isinstance(error, FileError) else ""
        say(f"{path}{error}")
        return 3
    except KeyboardInterrupt:
        return interrupts.STATUS  # who pressed Ctrl-C knows why
    except BrokenPipeError:
        forget_output()  # the reader (head, less) has gone
        return 0
    except Exception as error:
        if isinstance(error, FileNotFoundError) and not _has_working_directory():
            say("the working directory does not exist any more")
            return 2
        say(f"internal error, please report it: {_described(error)}")
        return 3
    return status


def _described(error: BaseException) -> str:
    """The error in one line, with the innermost place of ours, for a bug report."""
    place = ""
    trace = error.__traceback__
    while trace is not None:
        code: Any = trace.tb_frame.f_code
        if "oomlint" in code.co_filename:
            place = f" at {os.path.basename(code.co_filename)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{in_words(error)}{place}"


def _has_working_directory() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def say(message: str) -> None:
    """Tell of an error; where that cannot be written either, the exit status has to do."""
    with suppress(OSError):
        print(harmless(f"oomlint: error: {message}"), file=sys.stderr, flush=True)
