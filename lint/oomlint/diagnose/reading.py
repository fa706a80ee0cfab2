"""Logs of any size as blocks of whole lines, in memory that does not grow with them.

A log may be compressed, written by PowerShell in UTF-16, hold progress bars that move with
carriage returns, or be one line of a gigabyte. What is searched is bytes; only the neighbourhood
of what was found is ever decoded.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import sys
import zlib
from collections.abc import Iterator
from lzma import LZMAError, LZMAFile
from pathlib import Path
from typing import IO, cast

from msgspec import Struct

from oomlint.errors import ReadError, UsageError
from oomlint.files.reading import check_ends

_CHUNK = 1 << 20
# What stays in sight before a block: the traceback of an error, with the ranks' frames mixed up.
_BEHIND = 1 << 17
# Where a line has no end, it is cut this far before what was read of it, so that a message that
# begins before the cut is whole.
_AHEAD = 1 << 13
# How much of a line is of use before a place in it, and after.
_MOST_BEHIND, _MOST_AHEAD = 1 << 11, 1 << 12

# Escape sequences of a terminal: CSI (colours, cursor) and OSC (titles, links), ECMA-48.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_LINE_END = re.compile(rb"[\r\n]")


class LogPiece(Struct, frozen=True, eq=False):
    """A piece of a log. Offsets from ``start`` up to ``end`` are its own; what lies before was
    seen with the block before it, what lies after belongs to the next one."""

    data: bytes
    start: int
    end: int
    first_line: int
    """Number of the line that offset ``start`` is in, from 1."""

    def line(self, offset: int) -> int:
        """The number of the line that a place is in, as editors count: by line feeds."""
        return self.first_line + self.data.count(b"\n", self.start, offset)

    def line_start(self, offset: int) -> int:
        """Where the line (or the drawing of a progress bar) begins that a place is in."""
        floor = max(0, offset - _MOST_BEHIND)
        found = max(self.data.rfind(b"\n", floor, offset), self.data.rfind(b"\r", floor, offset))
        return max(found + 1, floor)

    def line_text(self, offset: int) -> str:
        """The line that a place is in, or as much of it as is of use."""
        last = offset + _MOST_AHEAD
        end = _LINE_END.search(self.data, offset, last)
        return plain(self.data[self.line_start(offset) : end.start() if end else last])

    def after(self, offset: int, most: int) -> str:
        """The text from a place on, over line ends."""
        return plain(self.data[offset : offset + most])

    def before(self, offset: int, most: int = _BEHIND) -> str:
        """The text up to a place."""
        return plain(self.data[max(0, offset - most) : offset])


def plain(data: bytes) -> str:
    """Bytes of a log as text, without what colours it; what is not UTF-8 is replaced."""
    return _ESCAPES.sub("", data.decode("utf-8", "replace")).replace("\0", "")


def blocks(name: str) -> Iterator[LogPiece]:
    """A log, block by block; ``-`` is standard input.

    Raises:
        UsageError: there is no such file.
        ReadError: it cannot be read, or what is compressed is damaged. What came before was
            given.
    """
    if name == "-":
        _check_standard_input()
        yield from _blocks(_decoded(cast("IO[bytes]", sys.stdin.buffer), "standard input"))
        return
    path = Path(name)
    if path.is_dir():
        raise UsageError(f"{name} is a folder; name the logs in it")
    try:
        check_ends(os.stat(path))
        stream = path.open("rb")
    except FileNotFoundError:
        raise UsageError(f"{name} does not exist") from None
    except (OSError, ValueError) as error:
        raise _unreadable(name, error) from None
    with stream:
        yield from _blocks(_decoded(stream, name))


def size_of(name: str) -> int | None:
    """The size of a log in bytes, as it lies on the disk; ``None`` where it does not."""
    try:
        return None if name == "-" else Path(name).stat().st_size
    except (OSError, ValueError):
        return None


def _check_standard_input() -> None:
    """
    Raises:
        ReadError: it is a device that nobody types into.
    """
    try:
        status = os.fstat(sys.stdin.fileno())
    except (OSError, ValueError):
        return  # no file of the system's is behind it
    if not sys.stdin.isatty():
        try:
            check_ends(status)
        except OSError as error:
            raise _unreadable("standard input", error) from None


def _unreadable(name: str, error: Exception) -> ReadError:
    return ReadError(name, f"cannot be read: {getattr(error, 'strerror', None) or error}")


def _decoded(stream: IO[bytes], name: str) -> Iterator[bytes]:
    """The stream's bytes in UTF-8, decompressed; at most a chunk at a time."""
    try:
        head = stream.read(_CHUNK)
        source = _decompressed(cast("IO[bytes]", _Prefixed(head, stream)), head)
        first = source.read(_CHUNK)
        for bom, encoding in (
            (codecs.BOM_UTF16_LE, "utf-16"),
            (codecs.BOM_UTF16_BE, "utf-16"),
            (codecs.BOM_UTF8, "utf-8-sig"),
        ):
            if first.startswith(bom):
                decoder = codecs.getincrementaldecoder(encoding)("replace")
                yield decoder.decode(first).encode("utf-8", "replace")
                while data := source.read(_CHUNK):
                    yield decoder.decode(data).encode("utf-8", "replace")
                return
        yield first
        while data := source.read(_CHUNK):
            yield data
    except (EOFError, zlib.error, LZMAError) as error:
        raise ReadError(name, f"is compressed and damaged: {error}") from None
    except OSError as error:
        raise _unreadable(name, error) from None


class _Prefixed(io.RawIOBase):
    """A stream of which a head was read already."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self._head:
            data = self._head if size < 0 else self._head[:size]
            self._head = self._head[len(data) :]
            return data
        return self._rest.read(size) or b""

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _decompressed(stream: IO[bytes], head: bytes) -> IO[bytes]:
    """The stream read through what its first bytes say that it was written with."""
    if head.startswith(b"\x1f\x8b"):
        import gzip

        return cast("IO[bytes]", gzip.GzipFile(fileobj=stream))
    if head.startswith(b"BZh"):
        import bz2

        return cast("IO[bytes]", bz2.BZ2File(stream))
    if head.startswith(b"\xfd7zXZ\0"):
        return cast("IO[bytes]", LZMAFile(stream))
    return stream


def _blocks(chunks: Iterator[bytes]) -> Iterator[LogPiece]:
    behind, pending, line = b"", b"", 1
    for chunk in chunks:
        fresh = pending + chunk
        cut = max(fresh.rfind(b"\n"), fresh.rfind(b"\r")) + 1
        if not cut:
            cut = len(fresh) - _AHEAD
            if cut < _CHUNK:
                pending = fresh
                continue
        block = LogPiece(behind + fresh, len(behind), len(behind) + cut, line)
        yield block
        line += fresh.count(b"\n", 0, cut)
        behind = block.data[max(0, block.end - _BEHIND) : block.end]
        pending = fresh[cut:]
    if pending:
        yield LogPiece(behind + pending, len(behind), len(behind) + len(pending), line)
