"""Writing reports to a stream or file."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeAlias

from oomlint.documents.write import write_atomically
from oomlint.errors import ReadError
from oomlint.report.paint import UNSEEN, ColorChoice, Paint, wants_color
from oomlint.report.secrets import masked
from oomlint.session.cache import note_output

Form: TypeAlias = Literal["words", "data", "commands", "bytes"]
"""What a text is: for people; for programs, as JSON; commands to a CI service, which no other text can
hold; or one whose very bytes count (a diff that goes to a file)."""


def emit(
    text: str,
    file: Path | None = None,
    *,
    err: bool = False,
    paint: Paint | None = None,
    form: Form = "words",
) -> None:
    """Write UTF-8 text to standard output (or error), or into ``file`` as a whole.

    What files and their names hold is made visible here, whatever the format: characters that control
    a terminal or hide text stand as ``\\u001b``, which JSON reads as the character itself, and what looks
    like a secret is masked (data have that done value by value: a fix writes what it says). ``paint`` is what has coloured the text.

    Raises:
        ReadError: the file cannot be written.
    """
    to_terminal = file is None and (sys.stderr if err else sys.stdout).isatty()
    if form == "bytes" and (to_terminal or "GITHUB_ACTIONS" in os.environ):
        form = "words"
    if form != "bytes":
        text = harmless(text, paint, form)
    # A file name that is not UTF-8 reaches us as lone surrogates; escaped, JSON stays JSON.
    data = text.encode("utf-8", "backslashreplace")
    if file is not None:
        if file.exists() and (not file.is_file() or str(file).startswith("/dev/")):
            _append(file, data)  # a pipe or /dev/stdout: nothing that could be replaced
        else:
            write_atomically(file, data, expected=_present(file), roots=[Path("/")])
    elif data:
        note_output(data, err=err)
        emit_bytes(data, err=err)


def emit_bytes(data: bytes, *, err: bool = False) -> None:
    """Write to standard output (or error), after whatever was written there as text.

    Raises:
        BrokenPipeError: whoever read it has gone.
        ReadError: it cannot be written, as on a full disk.
    """
    if _held is not None:
        _held.append((data, err))
        return
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


# What is said inside of :func:`at_once`, with whether it goes to standard error.
_held: list[tuple[bytes, bool]] | None = None


@contextmanager
def at_once() -> Iterator[None]:
    """Hold what is written inside until the end: a screen shows what it showed before until all is there."""
    global _held
    _held = []
    try:
        yield
    finally:
        said, _held = _held, None
        for data, err in said:
            emit_bytes(data, err=err)


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


# All that a terminal obeys but tabs and line ends, or colours beside them; and what is not seen.
_CONTROLS = rf"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{UNSEEN}]|\r(?!\n)"
_CONTROLS_AMONG_COLOURS = (
    rf"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f{UNSEEN}]|\r(?!\n)|\x1b(?!\[[\d;]*m)"
)
# At the start of a line GitHub (actions/runner ActionCommand.cs, which trims it), Azure Pipelines and
# TeamCity take ``::error``, ``##[error]`` and ``##vso[…]`` for commands to them.
_COMMAND = re.compile(r"(?m)^([ \t]*)(:(?=:)|#(?=#\w*\[))")


def harmless(text: str, paint: Paint | None = None, form: Form = "words") -> str:
    """Text that neither moves a terminal's cursor, nor hides what it says, nor commands a CI service."""
    unwanted = _CONTROLS_AMONG_COLOURS if paint is not None and paint.enabled else _CONTROLS
    seen = re.sub(unwanted, lambda match: f"\\u{ord(match[0]):04x}", text)
    if form == "commands":
        return masked(seen)
    told = seen if form == "data" else masked(seen)
    return _COMMAND.sub(lambda match: f"{match[1]}\\u{ord(match[2]):04x}", told)


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
