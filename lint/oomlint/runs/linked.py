"""What linking is told, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping as MappingABC
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from oomlint.errors import FileError
from oomlint.runs.run import Run

if TYPE_CHECKING:
    from oomlint.dialects.ending import Ending
    from oomlint.hardware import Hardware
    from oomlint.runs.unused import Unused


class LinkOptions(Struct, frozen=True):
    """What the user told oomlint about the machine and the run."""

    hardware: Hardware | None = None
    framework: str | None = None
    values: MappingABC[str, Any] = field(default_factory=dict)
    margin: float = 0.85
    as_written: bool = False
    find_endings: Callable[[Run], Iterable[Ending]] = lambda _run: ()
    """What the rules are sure of that ends a run before its first step; nothing where none are asked."""


class Linked(Struct):
    """Runs found, files that were opened, errors on the way, asides recognised."""

    unused: Unused
    explicit: frozenset[str] = frozenset()
    """Display paths of the files that the user named one by one."""
    runs: list[Run] = field(default_factory=list)
    errors: list[FileError] = field(default_factory=list)
    opened: frozenset[str] = frozenset()
    """Files that were read for what they hold."""
    taken: frozenset[str] = frozenset()
    """Files that runs take in, so that they are none by themselves."""
    recognised: dict[str, str] = field(default_factory=dict)
    """Display path → framework, of every file that a dialect claimed."""
    asides: list[Run] = field(default_factory=list)
    """Training scripts that hold no run we can read, but facts for rules on habits."""
    merges: list[Run] = field(default_factory=list)
    """Jobs that train nothing: they add an adapter to its base and write the model."""
