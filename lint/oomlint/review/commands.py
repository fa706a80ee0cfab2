"""Commands to type, as they run in a checkout of the change."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from oomlint.session.request import CheckRequest

_MOST_PATHS = 20


def flags(given: CheckRequest) -> tuple[str, ...]:
    """What was said of machine and run, so that a command that is printed judges as the review did."""
    said = (
        ("--hardware", given.hardware),
        ("--host-memory", given.host_memory),
        ("--gpus", given.gpus),
        ("--framework", given.framework),
        ("--config", str(given.config) if given.config is not None else None),
    )
    values = [("--set", f"{name}={value}") for name, value in (given.values or {}).items()]
    return tuple(word for name, value in (*said, *values) if value for word in (name, value))


def fix_command(paths: Sequence[str], flags: Sequence[str], *, unsafe: bool = False) -> str:
    """What makes the fixes of some files; of many those of the folder that they are in."""
    named = list(paths) if len(paths) <= _MOST_PATHS else [_common(paths)]
    words = ["--fix", *(["--unsafe-fixes"] if unsafe else []), *flags, *named]
    return f"oomlint check {shlex.join(words)}".replace("`", "'")


def _common(paths: Sequence[str]) -> str:
    folders = [path.split("/")[:-1] for path in paths]
    shared = []
    for parts in zip(*folders, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return "/".join(shared) or "."
