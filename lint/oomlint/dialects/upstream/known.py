"""What the files of a framework were over its history: ids of git, and digests of what decides memory.

A data file has a line of JSON (:class:`Header`), and then, sorted, the known modules (four bytes of the id of git's blob,
and the day since 1970 on which it was first there), the known examples (four bytes) and what modules decided
(:func:`oomlint.dialects.upstream.statements.digests`). Made by ``python -m benchmarks.upstream``.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct
from msgspec.json import decode, encode

from oomlint.dialects.upstream.statements import DIGEST

ID, DAY = 4, 2
DATA = Path(__file__).parent / "data"


class Header(Struct, frozen=True):
    """Where the ids were read, how many there are of each kind, and the days of the releases, the earliest first."""

    repository: str
    commit: str
    date: str
    modules: int
    examples: int
    digests: int
    releases: tuple[tuple[str, int], ...] = ()


class Known(Struct, frozen=True):
    """The known files of one framework."""

    header: Header
    modules: bytes
    examples: bytes
    digests: bytes

    def day_of(self, data: bytes) -> int | None:
        """The day on which a module was first as it is in the framework's repository; ``None`` if it never was."""
        at = _place(self.modules, blob_id(data), ID + DAY)
        return None if at is None else int.from_bytes(self.modules[at + ID : at + ID + DAY], "big")

    def ships(self, data: bytes) -> bool:
        """Whether an example was ever so in the framework's repository."""
        return _place(self.examples, blob_id(data), ID) is not None

    def release_after(self, day: int) -> str | None:
        """The first release of that day or later: what a development version became."""
        return next((version for version, at in self.header.releases if at >= day), None)

    def decided(self, digest: bytes) -> bool:
        """Whether a module ever decided just this."""
        return _place(self.digests, digest, DIGEST) is not None


@cache
def known(name: str) -> Known:
    """What is known of a framework, by the name of its data file."""
    return unpacked((DATA / f"{name}.bin").read_bytes())


def unpacked(data: bytes) -> Known:
    line, _, body = data.partition(b"\n")
    header = decode(line, type=Header)
    first = header.modules * (ID + DAY)
    second = first + header.examples * ID
    return Known(header, body[:first], body[first:second], body[second:])


def packed(
    source: tuple[str, str, str],
    modules: Mapping[bytes, int],
    examples: Collection[bytes],
    digests: Collection[bytes],
    releases: Iterable[tuple[str, int]] = (),
) -> bytes:
    """The data of a framework: repository, commit and date; id of each module → the day on which it was first there."""
    header = Header(*source, len(modules), len(examples), len(digests), tuple(releases))
    rows = (blob + day.to_bytes(DAY, "big") for blob, day in sorted(modules.items()))
    return encode(header) + b"\n" + b"".join((*rows, *sorted(examples), *sorted(digests)))


def blob_id(data: bytes) -> bytes:
    """The beginning of the id that git gives to a file's bytes, of which line ends are Unix's."""
    plain = data.replace(b"\r\n", b"\n")
    return hashlib.sha1(b"blob %d\0" % len(plain) + plain).digest()[:ID]


def _place(table: bytes, key: bytes, width: int) -> int | None:
    """Where a row that begins with ``key`` stands in a sorted table of rows of that width."""
    row = bisect_left(
        range(len(table) // width), key, key=lambda n: table[n * width : n * width + len(key)]
    )
    at = row * width
    return at if table[at : at + len(key)] == key and at < len(table) else None
