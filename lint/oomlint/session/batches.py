"""Many files in batches that know nothing of each other, so that each can be linted alone.

A file can only take in another one that it names. So two parts of a tree stay together if some
file of the one mentions a path into the other, as plain text: ``../shared/ds.json``,
``cd shared``, ``"shared"``. A mention that means nothing only makes a batch larger; one that goes on to what
is not there, as ``shared/train.py`` where it has another name by now, means none of its files.

A config that serves many runs and names nothing itself would keep them all together. They are taken apart at such files,
and what needs all runs of one is a second step (:mod:`oomlint.session.shared_files`).
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from oomlint.errors import FileError
from oomlint.files.workspace import Workspace

# Enough to keep a process busy for some tenths of a second, and few enough that little is linted again where one of
# them has changed: all of a batch. Batches of a quarter as many files as 40 cost no more in all.
_FILES = 10

# Of names in any script, as UTF-8 has their letters.
_WORD = re.compile(rb"[\w.\x80-\xff-]+")
_INSIDE = re.compile(rb"[\w.-]")
_GOES_ON = re.compile(rb"[\w-]")


class Batch(Struct, frozen=True):
    """Files that are linted together.

    Those of one ``group`` hang together by ``shared`` files alone, which several of its batches may use and one of them
    has: what is said of each depends on what the others say of these.
    """

    names: tuple[str, ...]
    group: int | None = None
    shared: tuple[str, ...] = ()


def batches(
    workspace: Workspace,
    names: Sequence[str],
    size: int = _FILES,
    *,
    is_part: Callable[[str], bool] = lambda _name: False,
) -> list[Batch]:
    """The files ``names`` (display paths) in batches of ``size``, or more where they hang
    together; each in the order of ``names``, and so are the batches.

    Those that hang together by nothing but files that name no others are taken apart; ``is_part``: whether a file is
    at most a part of runs.
    """
    units = list(_units(list(names), "", size))
    mentions = list(_mentions(workspace, units))
    place = {name: number for number, name in enumerate(names)}

    def in_order(numbers: Iterable[int]) -> list[str]:
        return sorted((n for number in numbers for n in units[number][1]), key=place.__getitem__)

    whole: list[list[int]] = []
    out: list[Batch] = []
    for number, group in enumerate(_groups(range(len(units)), mentions)):
        files = in_order(group)
        pieces, leaves = [group], list[int]()
        if len(files) > size:
            pieces, leaves = _taken_apart(group, mentions, lambda n: all(map(is_part, units[n][1])))
        if len(pieces) < 2:
            whole.append(group)
            continue
        shared = tuple(in_order(leaves))
        packed = _packed([in_order(piece) for piece in pieces], size)
        out += (Batch(tuple(each), number, shared) for each in (*packed, list(shared)))
    out += (Batch(tuple(each)) for each in _packed(map(in_order, whole), size))
    ranked = (replace(b, names=tuple(sorted(b.names, key=place.__getitem__))) for b in out)
    return sorted(ranked, key=lambda batch: place[batch.names[0]])


def _groups(numbers: Iterable[int], mentions: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Units in groups: two of which one mentions the other are in one."""
    parents = {number: number for number in numbers}

    def root(number: int) -> int:
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    for first, second in mentions:
        if first in parents and second in parents:
            parents[max(root(first), root(second))] = min(root(first), root(second))
    groups: dict[int, list[int]] = {}
    for number in parents:
        groups.setdefault(root(number), []).append(number)
    return list(groups.values())


def _taken_apart(
    group: Sequence[int], mentions: Iterable[tuple[int, int]], is_part: Callable[[int], bool]
) -> tuple[list[list[int]], list[int]]:
    """The pieces of a group between the leaves that several of them mention, and these; a leaf of one piece is in it."""
    inside = set(group)
    within = [pair for pair in mentions if pair[0] in inside]
    naming = {first for first, _ in within}
    leaves = {number for number in group if number not in naming and is_part(number)}
    pieces = _groups((n for n in group if n not in leaves), within)
    piece_of = {number: at for at, piece in enumerate(pieces) for number in piece}
    shared = []
    for leaf in sorted(leaves):
        users = {piece_of[first] for first, second in within if second == leaf}
        if len(users) == 1:
            pieces[users.pop()].append(leaf)
        else:
            shared.append(leaf)
    return pieces, shared


def _packed(groups: Iterable[list[str]], size: int) -> list[list[str]]:
    """Groups of files, put together up to a size."""
    out: list[list[str]] = []
    for group in groups:
        if out and len(out[-1]) + len(group) <= size:
            out[-1] += group
        else:
            out.append(group)
    return out


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
    # A name with a space or brackets in it stands where the longest of its words does.
    by_word: dict[bytes, list[bytes]] = {}
    for word in called:
        by_word.setdefault(max(_WORD.findall(word), key=len, default=b""), []).append(word)
    nameless = by_word.pop(b"", [])
    heads = {word.partition(b".")[0] for word in by_word}
    paths = [entry.rstrip("/").split("/") for entry, _ in units]
    inside = [_entries(workspace, *unit) for unit in units]
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
            mentioned = (word for each in said & by_word.keys() for word in by_word[each])
            for word in (*mentioned, *nameless):
                ways = _ways_on(word, data)
                for other in called[word] if ways else ():
                    if (
                        other != number
                        and _is_in_reach(paths[other], above, data)
                        and _leads_into(inside[other], ways)
                    ):
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


def _entries(workspace: Workspace, entry: str, files: Sequence[str]) -> frozenset[bytes] | None:
    """The names that stand in the folder of a unit, linted or not: what is not may name what is. ``None`` of a
    unit that is a file."""
    if not entry.endswith("/"):
        return None
    linted = (name[len(entry) :].partition("/")[0] for name in files)
    there = workspace.disk.names(os.path.join(workspace.cwd, entry))
    return frozenset(map(os.fsencode, (*linted, *there)))


def _leads_into(entries: frozenset[bytes] | None, ways: Iterable[bytes]) -> bool:
    """Whether one of the ways on from a mention leads to something of a unit, whose name may be cut off before
    its ending, or where a variable begins."""
    if entries is None:
        return True
    return any(not way or any(entry.startswith(way) for entry in entries) for way in ways)


def _ways_on(word: bytes, data: bytes) -> set[bytes]:
    """Where ``data`` names ``word`` (a folder in a path, in quotes or behind `cd`; a file by its name without the
    ending), what the path goes on to: nothing where it ends there, or what comes next is no plain name."""
    ways: set[bytes] = set()
    start = data.find(word)
    while start >= 0:
        end = start + len(word)
        alone = not (_INSIDE.match(data, start - 1) if start else None) and not _GOES_ON.match(
            data, end
        )
        if alone and _is_path(data, start, end):
            following = _WORD.match(data, end + 1) if data[end : end + 1] == b"/" else None
            ways.add(following[0].rstrip(b".-") if following else b"")
        start = data.find(word, end)
    return ways


def _is_path(data: bytes, start: int, end: int) -> bool:
    before, after = data[start - 1 : start], data[end : end + 1]
    return (
        b"/" in (before, after)
        or after == b"."
        or (before in (b'"', b"'") and before == after)
        or data[max(0, start - 3) : start] == b"cd "
    )
