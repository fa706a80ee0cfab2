"""Which releases of a framework have which of the keys of its table, and which refuse those that they do not know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping as MappingABC
from pathlib import Path

from msgspec import Struct

from oomlint.plan.library_changes import Release, release_of


class Past(Struct, frozen=True):
    """Keys that earlier releases of a framework had, each with the first release without it."""

    package: str
    keys: MappingABC[str, str]


class Refusal(Struct, frozen=True):
    """Where a framework's package refuses unknown keys: a project's copy of it may be of a release, or changed to one,
    that drops them without a word."""

    paths: tuple[str, ...]
    """The files that may do so, by release."""
    by: bytes
    """What stands in one that does, a regular expression."""


class Spans(Struct, frozen=True):
    """Keys that a table has and some releases of its framework have not: the first release with each, and the first
    without it again, ``""`` where there is none; a key below one that is listed came and went with that. ``by_objective``:
    each objective has a class of its own there, and keys are called ``sft.packing``. ``only_told``: a key that came late
    is added only where something tells that the release which runs has it."""

    package: str
    keys: MappingABC[str, tuple[str, str]]
    by_objective: bool = False
    only_told: bool = False

    def why_not(
        self, key: str, pinned: Release | None, beside: Iterable[str], objective: str = ""
    ) -> str | None:
        """Why a key may not be added: the release that a project pins has it not yet, or, where none is pinned, a
        key of the same file went before it came. ``None`` where nothing tells."""
        of = f"{objective}." if self.by_objective else ""
        came, said = self._came(key, of)
        if came is None:
            return None
        if pinned is not None:
            is_older = pinned < came
            return (
                f"{said}, and the project pins {'.'.join(map(str, pinned))}" if is_older else None
            )
        for other in beside:
            gone = self.keys.get(of + other, ("", ""))[1]
            went = _beginning(gone)
            if went is not None and went <= came:
                return f"{said}, and the file has {other}, which went with {gone}"
        return None

    def why_untold(self, key: str, oldest: Release, beside: Iterable[str]) -> str | None:
        """Why a key may not be added that all releases from ``oldest`` on ought to have: some have it not yet, and no
        key ``beside`` it came as late. ``None`` where that is told, or need not be."""
        came, said = self._came(key)
        if not self.only_told or came is None or oldest >= came:
            return None
        firsts = (_beginning(self.keys.get(other, ("", ""))[0]) for other in beside)
        if any(first is not None and first >= came for first in firsts):
            return None
        return f"{said}, and nothing tells that the one which runs is as late"

    def _came(self, key: str, of: str = "") -> tuple[Release | None, str]:
        """With which release a key came, if with none that was read first, and the same in words."""
        key = next((each for each in _upwards(key) if of + each in self.keys), "")
        first = self.keys.get(of + key, ("", ""))[0]
        return _beginning(first), f"{self.package} has {key} from {first} on"


def _upwards(key: str) -> Iterator[str]:
    """A dotted key and those above it, the nearest first."""
    while key:
        yield key
        key = key.rpartition(".")[0]


def _beginning(version: str) -> Release | None:
    """The numbers of a version up to its last that is not zero: a project may pin 4.45 for 4.45.0."""
    release = release_of(version)
    while release and not release[-1]:
        release = release[:-1]
    return release


def past_keys(package: str, framework: str) -> Past:
    """The keys listed in ``keys/past/<framework>.txt``, of a package by the name under which projects pin it."""
    text = (Path(__file__).parent / "keys" / "past" / f"{framework}.txt").read_text("utf-8")
    lines = (line.partition(" ") for line in text.splitlines() if not line.startswith("#"))
    return Past(package, {key: release for key, _, release in lines})


def key_spans(
    package: str, framework: str, *, by_objective: bool = False, only_told: bool = False
) -> Spans:
    """The keys listed in ``keys/spans/<framework>.txt``, of a package by the name under which projects pin it."""
    text = (Path(__file__).parent / "keys" / "spans" / f"{framework}.txt").read_text("utf-8")
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            key, first, *gone = line.split()
            found[key] = (first.strip("-"), gone[0] if gone else "")
    return Spans(package, found, by_objective, only_told)
