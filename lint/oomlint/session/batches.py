"""Many files in batches that know nothing of each other, so that each can be linted alone.

A file can only take in another one that it names. So two parts of a tree stay together if some
file of the one mentions a path into the other, as plain text: ``../shared/ds.json``,
``cd shared``, ``"shared"``. A mention that means nothing only makes a batch larger.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Sequence

from oomlint.errors import FileError
from oomlint.files.workspace import Workspace

# Enough to keep a process busy for some tenths of a second, and few enough that little is linted again where one of
# them has changed: all of a batch. Batches of half as many files as 40 cost no more in all.
_FILES = 20

_WORD = re.compile(rb"[\w.-]+")
_INSIDE = re.compile(rb"[\w.-]")
_GOES_ON = re.compile(rb"[\w-]")


def batches(workspace: Workspace, names: Sequence[str], size: int = _FILES) -> list[list[str]]:
    """The files ``names`` (display paths) in batches of ``size``, or more where they hang
    together; each in the order of ``names``, and so are the batches."""
    units = list(_units(list(names), "", size))
    parents = list(range(len(units)))

    def root(number: int) -> int:
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    for first, second in _mentions(workspace, units):
        parents[max(root(first), root(second))] = min(root(first), root(second))
    groups: dict[int, list[str]] = {}
    for number, (_, files) in enumerate(units):
        groups.setdefault(root(number), []).extend(files)
    place = {name: number for number, name in enumerate(names)}
    out: list[list[str]] = []
    for group in groups.values():
        if out and len(out[-1]) + len(group) <= size:
            out[-1] += group
        else:
            out.append(group)
    return sorted(
        (sorted(batch, key=place.__getitem__) for batch in out), key=lambda b: place[b[0]]
    )


_Unit = tuple[str, list[str]]
"""A file or a folder (with a slash at its end), and the files of it that are linted."""


def _units(names: list[str], folder: str, size: int) -> Iterable[_Unit]:
    """What a folder holds, each entry by itself; entries with too many files by theirs."""
    entries: dict[str, list[str]] = {}
    for name in names:
        entry, slash, _ = name[len(folder) :].partition("/")
        entries.setdefault(folder + entry + slash, []).append(name)
    for entry, files in entries.items():
        if entry.endswith("/") and (len(entries) == 1 or len(files) > size):
            yield from _units(files, entry, size)
        else:
            yield entry, files


def _mentions(workspace: Workspace, units: Sequence[_Unit]) -> Iterable[tuple[int, int]]:
    """Pairs of units of which the first has a file that mentions the second."""
    called: dict[bytes, list[int]] = {}
    for number, (entry, _) in enumerate(units):
        called.setdefault(_called(entry), []).append(number)
    odd = [word for word in called if not _WORD.fullmatch(word)]
    heads = {word.partition(b".")[0] for word in called}
    paths = [entry.rstrip("/").split("/") for entry, _ in units]
    for number, (_, files) in enumerate(units):
        for name in files:
            try:
                data = workspace.read(name)
            except FileError:
                continue
            above = name.split("/")[:-1]
            words = set(_WORD.findall(data))
            dotted = (w for w in words if b"." in w and w.partition(b".")[0] in heads)
            said = words.union(*map(_starts, dotted))
            mentioned = [
                word for word in (*(said & called.keys()), *odd) if _is_mentioned(word, data)
            ]
            for other in (other for word in mentioned for other in called[word]):
                if other != number and _is_in_reach(paths[other], above, data):
                    yield number, other


def _is_in_reach(path: Sequence[str], above: Sequence[str], data: bytes) -> bool:
    """Whether a mention in a file below the folders ``above`` can mean this path and not one of
    that name elsewhere: paths start in a folder above the file, and say the name of the one that
    they go down into."""
    shared = 0
    for here, there in zip(path[:-1], above, strict=False):
        if here != there:
            break
        shared += 1
    return shared == len(path) - 1 or os.fsencode(path[shared]) in data


def _called(entry: str) -> bytes:
    """How other files would name a unit."""
    name = entry.rstrip("/").rpartition("/")[2]
    word = name if entry.endswith("/") else os.path.splitext(name)[0]
    return word.encode("utf-8", "surrogateescape")


def _starts(word: bytes) -> Iterable[bytes]:
    """``ds`` and ``ds.v2`` of ``ds.v2.json``: names may stand without an ending."""
    while (dot := word.rfind(b".")) > 0:
        word = word[:dot]
        yield word


def _is_mentioned(word: bytes, data: bytes) -> bool:
    """Whether ``data`` names ``word``: a folder in a path, in quotes or behind `cd`; a file by
    its name without the ending."""
    start = data.find(word)
    while start >= 0:
        end = start + len(word)
        alone = not (_INSIDE.match(data, start - 1) if start else None) and not _GOES_ON.match(
            data, end
        )
        if alone and _is_path(data, start, end):
            return True
        start = data.find(word, end)
    return False


def _is_path(data: bytes, start: int, end: int) -> bool:
    before, after = data[start - 1 : start], data[end : end + 1]
    return (
        b"/" in (before, after)
        or after == b"."
        or (before in (b'"', b"'") and before == after)
        or data[max(0, start - 3) : start] == b"cd "
    )
