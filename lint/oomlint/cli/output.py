"""Writing reports to a stream or file."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from oomlint.cli.cache import note_output
from oomlint.documents.write import write_atomically
from oomlint.errors import ReadError
from oomlint.report.paint import ColorChoice, Paint, wants_color


def emit(text: str, file: Path | None = None, *, err: bool = False) -> None:
    """Write UTF-8 text to standard output (or error), or into ``file`` as a whole.

    Raises:
        ReadError: the file cannot be written.
    """
    # A file name that is not UTF-8 reaches us as lone surrogates; escaped, JSON stays JSON.
    data = text.encode("utf-8", "backslashreplace")
    if file is not None:
        if file.exists() and (not file.is_file() or str(file).startswith("/dev/")):
            _append(file, data)  # a pipe or /dev/stdout: nothing that could be replaced
        else:
            write_atomically(file, data, expected=_present(file), roots=[Path("/")])
    elif data:
        if (sys.stderr if err else sys.stdout).isatty():
            data = _harmless(text).encode("utf-8", "backslashreplace")
        note_output(data, err=err)
        emit_bytes(data, err=err)


def emit_bytes(data: bytes, *, err: bool = False) -> None:
    """Write to standard output (or error), after whatever was written there as text.

    Raises:
        BrokenPipeError: whoever read it has gone.
        ReadError: it cannot be written, as on a full disk.
    """
    stream = sys.stderr if err else sys.stdout
    try:
        stream.flush()
        if data:  # a full disk refuses even nothing
            stream.buffer.write(data)
            stream.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _refused("standard error", error) if err else output_refused(error) from None


def output_refused(error: OSError) -> ReadError:
    """What to raise where standard output took nothing; what waits for it is dropped."""
    forget_output()
    return _refused("standard output", error)


def forget_output() -> None:
    """Drop what standard output does not take: at its end Python would try again, and exit with 120."""
    with suppress(OSError, ValueError):  # no file of the system's is behind it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refused(name: str, error: OSError) -> ReadError:
    return ReadError(name, f"cannot be written: {error.strerror or error}")


# All that a terminal obeys but tabs, line ends and colours.
_CONTROLS = r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]|\r(?!\n)|\x1b(?!\[[\d;]*m)"


def _harmless(text: str) -> str:
    """Text for a terminal: what files and their names hold must not move its cursor."""
    return re.sub(_CONTROLS, lambda match: f"\\x{ord(match[0]):02x}", text)


def _append(file: Path, data: bytes) -> None:
    try:
        with file.open("ab") as stream:
            stream.write(data)
    except OSError as error:
        raise _refused(str(file), error) from None


def _present(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None


def painter(choice: ColorChoice, file: Path | None = None, *, err: bool = False) -> Paint:
    """Colours for where the text goes; a file gets none unless they are always wanted."""
    if file is not None:
        return Paint(choice == "always")
    return Paint(wants_color(choice, sys.stderr if err else sys.stdout))
