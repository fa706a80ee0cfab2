"""The errors that oomlint reports about files; each names the file and what to do."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

ErrorKind = Literal["parse", "io", "encoding", "internal"]


# Of what a library says people read a line or two; some quote a whole file.
_LONGEST = 200


def in_words(error: BaseException) -> str:
    """An error that nobody foresaw, in one line of bounded length for the user: what it says, then its kind
    for a report (``division by zero (ZeroDivisionError)``)."""
    kind = type(error).__name__
    if isinstance(error, KeyError) and len(error.args) == 1:
        said = f"there is no {error.args[0]!r}"  # it says nothing but the key
    else:
        said = " ".join(str(error).split())
    if len(said) > _LONGEST:
        said = f"{said[: _LONGEST - 1]}…"
    return f"{said} ({kind})" if said else f"no reason given ({kind})"


class FileError(Exception):
    """A file could not be used; ``line`` and ``column`` are 1-based, ``None`` if unknown."""

    kind: ClassVar[ErrorKind] = "io"

    def __init__(
        self, path: str, message: str, *, line: int | None = None, column: int | None = None
    ) -> None:
        super().__init__(message)
        self.path = path
        self.message = message
        self.line = line
        self.column = column

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.path, self.message, self.line, self.column)


def _again(
    kind: type[FileError], path: str, message: str, line: int | None, column: int | None
) -> FileError:
    """An error that another process met."""
    return kind(path, message, line=line, column=column)


class ParseError(FileError):
    """The text is not valid in its language."""

    kind = "parse"


class EncodingError(FileError):
    """The bytes are not UTF-8."""

    kind = "encoding"


class ReadError(FileError):
    """The file cannot be read: missing, no permission, a folder."""

    kind = "io"


class DeniedError(ReadError):
    """The user may not read the file, so that nobody knows what it holds."""


class PointerError(FileError):
    """What lies here stands for a file that a program brings: a pointer of Git LFS."""

    kind = "io"


class InternalError(FileError):
    """oomlint failed on this file; a bug of ours, never a traceback for the user."""

    kind = "internal"


class CannotEdit(Exception):
    """A change cannot be written safely here; ``str(error)`` says why, for the user."""


class UntrueComment(CannotEdit):
    """Nothing is against a change but a comment with what it changes, which a person would write anew."""


class UsageError(Exception):
    """The command line or the settings are wrong; exit status 2."""
