"""What a client sends, line by line and message by message, none of it without end.

pygls reads as many bytes as a header says and takes any line for one. Here a header that announces more than
any editor sends is none: what follows is passed over until the next header that can be meant.
"""

from __future__ import annotations

import asyncio
import re
from typing import BinaryIO, Protocol

# Documents of 8 MiB are read; as text inside JSON one may take six times as much.
MOST_BYTES = 64 * 2**20
_LONGEST_LINE = 2**16
_LENGTH = re.compile(rb"content-length\s*:\s*(\d+)\s*", re.IGNORECASE)
_PASSED_OVER = b"-\r\n"


class BoundedStream:
    """A stream of a client's messages, for pygls to read."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readline(self) -> bytes:
        return _header(self._stream.readline(_LONGEST_LINE))

    def read(self, size: int) -> bytes:
        return self._stream.read(size)


class ClientConnection(Protocol):
    """What is read of one end of :mod:`asyncio`'s streams."""

    async def readline(self) -> bytes: ...
    async def readexactly(self, n: int) -> bytes: ...


class BoundedConnection:
    """The same of a connection."""

    def __init__(self, reader: ClientConnection) -> None:
        self._reader = reader

    async def readline(self) -> bytes:
        try:
            return _header(await self._reader.readline())
        except ValueError:  # a line longer than asyncio holds, which it has dropped
            return _PASSED_OVER

    async def readexactly(self, size: int) -> bytes:
        try:
            return await self._reader.readexactly(size)
        except asyncio.IncompleteReadError:
            return b""


def _header(line: bytes) -> bytes:
    """A line of a header as pygls knows it: another spelling of a length as it spells it, one that cannot be
    meant as a line that says nothing."""
    match = _LENGTH.fullmatch(line)
    if match is None:
        return line
    digits = match[1].lstrip(b"0") or b"0"
    is_meant = len(digits) <= len(str(MOST_BYTES)) and int(digits) <= MOST_BYTES
    return b"Content-Length: %s\r\n" % digits if is_meant else _PASSED_OVER
