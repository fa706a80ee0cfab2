"""The profiles in force: a project's own, those that installed packages bring, and oomlint's.

A package names one of its own that holds TOML files in the entry point group
``oomlint.profiles``; a project keeps them in ``.oomlint/profiles``, beside its settings file. A
profile is data: nothing of it is run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from oomlint.dialects.profiles.load import shipped
from oomlint.dialects.profiles.match import Profiles, Told, UnreadProfile
from oomlint.dialects.profiles.records import Match, Profile, ProfiledScript, ProfileError
from oomlint.errors import in_words
from oomlint.files import dependencies
from oomlint.files.entry_points import PROFILES, entry_points, name_of
from oomlint.files.reading import read_regular

# Far above what describes a project.
_MOST_BYTES = 256 * 2**10


@cache
def usual() -> Profiles:
    """The profiles where the project has none of its own: those of packages before oomlint's."""
    return Profiles((*of_packages().projects, *_shipped()))


def with_own(folder: str) -> Profiles:
    """The same behind a project's own, which stand in a folder."""
    return Profiles((*in_folder(folder).projects, *usual().projects))


@cache
def _shipped() -> tuple[UnreadProfile, ...]:
    """What tells the scripts of oomlint's profiles stands in :mod:`.index`, which
    ``python -m oomlint.dialects`` writes anew."""
    from oomlint.dialects.profiles.index import PROJECTS

    return tuple(
        UnreadProfile(
            tuple(
                Told(tuple(Match(**match) for match in matches), framework, _named(file, number))
                for number, framework, matches in scripts
            ),
            ignored,
        )
        for file, ignored, scripts in PROJECTS
    )


def _named(file: str, number: int) -> Callable[[], ProfiledScript]:
    return lambda: shipped(file).scripts[number]


def script_named(name: str) -> ProfiledScript:
    """The script of oomlint's profiles of a name such as reports show it: ``PROJECT's train.py``."""
    scripts = (told.load() for project in _shipped() for told in project.scripts)
    return next(script for script in scripts if script.name == name)


# -- those of others -------------------------------------------------------------------------------


class Brought(Struct, frozen=True, eq=False):
    """Profiles that others bring: how many by whom, and what is wrong with those left out, by the
    file or the package that it is."""

    projects: tuple[UnreadProfile, ...] = ()
    origins: tuple[str, ...] = ()
    faults: tuple[tuple[str, str], ...] = ()


def in_folder(folder: str) -> Brought:
    """The profiles of a project, each on its own: one that is broken costs nobody the others."""
    return _brought((folder, path, path) for path in _files_in(folder))


@cache
def of_packages() -> Brought:
    """The profiles of installed packages."""
    return _brought(_of_packages())


def _of_packages() -> Iterator[tuple[str, str, str | ProfileError]]:
    from importlib import import_module

    for point in entry_points(PROFILES):
        origin = name_of(point)
        try:
            folders = list(import_module(point.module).__path__)
            paths = [path for folder in folders for path in _files_in(folder)]
        except Exception as error:  # its author's to mend, not the user's to suffer
            yield origin, origin, ProfileError(point.module, "", in_words(error))
            continue
        if not paths:
            yield origin, origin, ProfileError(point.module, "", "holds no TOML file")
        yield from ((origin, origin, path) for path in paths)


def _brought(files: Iterable[tuple[str, str, str | ProfileError]]) -> Brought:
    """What files hold, each with who brings it and whom its faults are said of."""
    projects: list[UnreadProfile] = []
    origins: list[str] = []
    faults: list[tuple[str, str]] = []
    for origin, blamed, file in files:
        try:
            if isinstance(file, ProfileError):
                raise file
            projects.append(_project(_checked(file)))
            origins.append(origin)
        except ProfileError as error:
            faults.append((blamed, f"a profile is left out: {error}"))
    return Brought(tuple(projects), tuple(origins), tuple(faults))


def _project(profile: Profile) -> UnreadProfile:
    scripts = (
        Told(script.match, script.framework, partial(_same, script)) for script in profile.scripts
    )
    return UnreadProfile(tuple(scripts), profile.ignored)


def _same(script: ProfiledScript) -> ProfiledScript:
    return script


def _checked(path: str) -> Profile:
    from oomlint.dialects.profiles.check import checked

    name = os.path.basename(path)
    try:
        data = read_regular(Path(path))
    except OSError as error:
        dependencies.saw_no_bytes(path)
        raise ProfileError(name, "", f"cannot be read: {error.strerror or error}") from None
    dependencies.saw_bytes(path, data)
    if len(data) > _MOST_BYTES:
        raise ProfileError(name, "", f"is larger than {_MOST_BYTES // 2**10} KiB")
    return checked(data, name)


def _files_in(folder: str) -> Iterator[str]:
    try:
        names = os.listdir(folder)
    except OSError:
        dependencies.saw_any(folder, False)
        return
    dependencies.saw_names(folder, names)
    for name in sorted(names):
        if name.endswith(".toml"):
            yield os.path.join(folder, name)


def index_rows() -> Iterator[tuple[str, tuple[str, ...], tuple[Any, ...]]]:
    """What :mod:`.index` must hold: of each file, the folders it ignores, and of each script that
    a command can start, its number, its framework and what tells it."""
    from oomlint.dialects.profiles.load import DATA

    unsaid = Match()
    for file in sorted(DATA.glob("*.toml")):
        profile = shipped(file.stem)
        scripts = tuple(
            (
                number,
                script.framework,
                tuple(
                    {
                        name: value
                        for name, value in asdict(match).items()
                        if value != getattr(unsaid, name)
                    }
                    for match in script.match
                ),
            )
            for number, script in enumerate(profile.scripts)
            if script.match
        )
        yield file.stem, profile.ignored, scripts
