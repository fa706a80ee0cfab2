"""Telling the scripts of profiles by what starts them, or by their arguments in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatch
from typing import TYPE_CHECKING

from msgspec import Struct

from oomlint.dialects.profiles.records import Match, ProfiledScript

if TYPE_CHECKING:
    from oomlint.dialects.machine.launch import Launch


class Told(Struct, frozen=True, eq=False):
    """A script before its profile is read: what tells it, and what reports call its runs."""

    match: tuple[Match, ...]
    framework: str
    load: Callable[[], ProfiledScript]


class UnreadProfile(Struct, frozen=True, eq=False):
    """A profile before it is read: see :class:`.records.Profile`."""

    scripts: tuple[Told, ...]
    ignored: tuple[str, ...]

    def has(self, launch: Launch) -> bool:
        """Whether the command starts a program in a folder that is the project's alone; also where
        a launcher of the project's has the program among its words."""
        if not self.ignored:
            return False
        words = (launch.name, *(str(word.value) for word in launch.arguments))
        return any(folder in self.ignored for word in words for folder in _folders(word))


class Profiles(Struct, frozen=True, eq=False):
    """All profiles in force, in the order in which they are tried."""

    projects: tuple[UnreadProfile, ...]

    @property
    def frameworks(self) -> tuple[str, ...]:
        """What reports call the runs of scripts, where their profiles say so."""
        scripts = (told for project in self.projects for told in project.scripts)
        return tuple(dict.fromkeys(told.framework for told in scripts if told.framework))

    def script_of(self, launch: Launch) -> ProfiledScript | None:
        """The script that a command starts, if a profile knows it."""
        options = set(launch.flags.entries)
        for project in self.projects:
            for told in project.scripts:
                if any(_fits(match, launch, options) for match in told.match):
                    return told.load()
            if project.has(launch):
                return None
        return None

    def script_of_arguments(self, keys: Iterable[str]) -> ProfiledScript | None:
        """The script whose arguments a file holds, if a profile knows it."""
        held = set(keys)
        for project in self.projects:
            for told in project.scripts:
                if any(match.arguments and _has(match, held) for match in told.match):
                    return told.load()
        return None

    def describe(self, launch: Launch) -> bool:
        """Whether the command starts a program of one project, which looks like another one's."""
        known = self.script_of(launch)
        return self.ignore(launch) or (known is not None and known.is_known)

    def tell_all_of(self, launch: Launch) -> bool:
        """Whether the command starts a script that a profile describes from a folder which is that project's alone:
        what loops the script has are described with it."""
        known = self.script_of(launch) if self.ignore(launch) else None
        return known is not None and known.is_known

    def ignore(self, launch: Launch) -> bool:
        """Whether the command starts a program of a project whose own loops no profile describes."""
        return any(project.has(launch) for project in self.projects)


def _folders(word: str) -> Iterator[str]:
    """The parts of a path, or of a module's dotted name, but for the last."""
    for part in word.replace("\\", "/").split("/")[:-1]:
        yield from part.split(".")
    if "/" not in word:
        yield from word.split(".")[:-1]


def _fits(match: Match, launch: Launch, options: set[str]) -> bool:
    if match.arguments or not _has(match, options):
        return False
    if match.stems and launch.stem not in match.stems:
        return False
    words = [str(word.value) for word in launch.arguments]
    if len(words) < len(match.words) or not all(map(fnmatch, words, match.words)):
        return False
    if match.paths and not _ends(_path(launch), match.paths):
        return False
    where = (launch.document.source.path, launch.command.folder)
    if match.near and not any(_is_like(place, match.near) for place in where):
        return False
    return not any(_is_like(place, match.away) for place in where)


def _has(match: Match, options: set[str]) -> bool:
    if not options.issuperset(match.needs) or not options.isdisjoint(match.without):
        return False
    return not match.some or len(options.intersection(match.some)) >= match.least


def _path(launch: Launch) -> str:
    """The path of the script or the module, without suffix, from a ``/`` on."""
    name = launch.name
    path = name.replace(".", "/") if launch.is_module else name.replace("\\", "/")
    if launch.command.folder:
        path = f"{launch.command.folder.strip('/')}/{path.removeprefix('./')}"
    return "/" + path.removesuffix(".py").lower()


def _ends(path: str, endings: Iterable[str]) -> bool:
    return any(path.endswith("/" + ending.lower()) for ending in endings)


def _is_like(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns)
