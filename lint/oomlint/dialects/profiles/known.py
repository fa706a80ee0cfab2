"""The profiles that are known: oomlint's own, and those that installed packages bring.

A package names one of its own that holds TOML files in the entry point group
``oomlint.profiles``. A profile is data: nothing of it is run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from oomlint.dialects.profiles.build import script_table
from oomlint.dialects.profiles.load import in_folder
from oomlint.dialects.profiles.records import Profile, Script
from oomlint.entry_points import entry_points
from oomlint.frozen import frozen

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "oomlint.profiles"


@cache
def profiles() -> tuple[Profile, ...]:
    """Every profile; those of packages are tried before oomlint's own."""
    brought = (profile for package in of_packages() for profile in package.profiles)
    return (*brought, *in_folder(Path(__file__).parent / "data"))


def script_named(name: str) -> Script:
    """The script of a name such as reports show it: ``PROJECT's train.py``."""
    return next(s for profile in profiles() for s in profile.scripts if s.name == name)


@frozen
class Package:
    """What an entry point brings; ``fault``: why nothing of it is used."""

    point: EntryPoint
    profiles: tuple[Profile, ...] = ()
    fault: str = ""


@cache
def of_packages() -> tuple[Package, ...]:
    """The profiles of installed packages: all of one, or none where one of them is broken."""
    return tuple(map(_package, entry_points(GROUP)))


def _package(point: EntryPoint) -> Package:
    try:
        found = tuple(_read(point))
    except Exception as error:  # its author's to mend, not the user's to suffer
        return Package(point, fault=" ".join(str(error).split()) or type(error).__name__)
    return Package(point, found) if found else Package(point, fault="holds no TOML file")


def _read(point: EntryPoint) -> Iterator[Profile]:
    from importlib.resources import files

    for profile in in_folder(files(point.module)):
        for script in profile.scripts:
            if script.match:
                script_table(script)
        yield profile
