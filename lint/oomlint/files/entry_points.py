"""What installed packages declare for oomlint: entry points."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PROFILES = "oomlint.profiles"
"""The group in which packages name the profiles of scripts that they bring."""


@cache
def entry_points(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of other packages, by name.

    importlib.metadata takes tens of milliseconds to import, so the files that it would read are
    looked at first: nearly always none of them mentions oomlint.
    """
    if not any(group.encode() in text for text in _declarations()):
        return ()
    from importlib import metadata

    found = {(p.name, p.value): p for p in metadata.entry_points(group=group)}
    return tuple(found[key] for key in sorted(found))


def name_of(point: EntryPoint) -> str:
    """The package that declares an entry point, with its version."""
    package = point.dist
    return f"{package.name} {package.version}" if package is not None else point.name


@cache
def _declarations() -> tuple[bytes, ...]:
    """The texts of ``entry_points.txt`` that mention oomlint, of the packages on Python's path."""
    import os
    import sys

    found = []
    for folder in dict.fromkeys(sys.path):
        try:
            names = [
                n for n in os.listdir(folder or ".") if n.endswith((".dist-info", ".egg-info"))
            ]
        except OSError:
            continue
        for name in names:
            try:
                with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                    text = file.read()
            except OSError:
                continue
            if b"oomlint." in text:
                found.append(text)
    return tuple(found)
