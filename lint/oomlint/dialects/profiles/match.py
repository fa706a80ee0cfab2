"""Telling the scripts of profiles by what starts them, or by their arguments in a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatch

from oomlint.dialects.machine.launch import Launch
from oomlint.dialects.profiles.known import profiles
from oomlint.dialects.profiles.records import Match, Profile, Script


def script_of_launch(launch: Launch) -> Script | None:
    """The script that a command starts, if a profile knows it."""
    options = set(launch.flags.entries)
    for profile in profiles():
        for script in profile.scripts:
            if any(_fits(match, launch, options) for match in script.match):
                return script
        if _is_ignored(profile, launch):
            return None
    return None


def script_of_arguments(keys: set[str]) -> Script | None:
    """The script whose arguments a file holds, if a profile knows it."""
    for profile in profiles():
        for script in profile.scripts:
            if any(match.arguments and _has(match, keys) for match in script.match):
                return script
    return None


def is_ignored(launch: Launch) -> bool:
    """Whether the command starts a program of a project whose own loops no profile describes."""
    return any(_is_ignored(profile, launch) for profile in profiles())


def _is_ignored(profile: Profile, launch: Launch) -> bool:
    """Also where a launcher of the project's has the program among its words."""
    if not profile.ignored:
        return False
    words = (launch.name, *(str(word.value) for word in launch.arguments))
    return any(folder in profile.ignored for word in words for folder in _folders(word))


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
    if match.paths and not _ends(_path(launch), match.paths):
        return False
    where = launch.document.source.path
    if match.near and not _is_like(where, match.near):
        return False
    return not _is_like(where, match.away)


def _has(match: Match, options: set[str]) -> bool:
    if not options.issuperset(match.needs) or not options.isdisjoint(match.without):
        return False
    return not match.some or len(options.intersection(match.some)) >= match.least


def _path(launch: Launch) -> str:
    """The path of the script or the module, without suffix, from a ``/`` on."""
    name = launch.name
    path = name.replace(".", "/") if launch.is_module else name.replace("\\", "/")
    return "/" + path.removesuffix(".py").lower()


def _ends(path: str, endings: Iterable[str]) -> bool:
    return any(path.endswith("/" + ending.lower()) for ending in endings)


def _is_like(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns)
