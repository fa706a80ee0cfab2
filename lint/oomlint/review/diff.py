"""The hunks of a forge's diff: which lines of the new file a comment may stand on."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

_HEADER = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")


class Hunk(Struct, frozen=True):
    """Lines of the new file that a diff shows: 1-based number → the same line's number in the
    old file, ``None`` of an added one."""

    lines: Mapping[int, int | None]

    def holds(self, first: int, last: int) -> bool:
        return first in self.lines and last in self.lines


class Hunks(Struct, frozen=True):
    """The hunks of one file, in order; none where the forge shows no diff of it."""

    hunks: tuple[Hunk, ...] = ()

    def around(self, first: int, last: int) -> Hunk | None:
        """The hunk that shows the lines from ``first`` to ``last`` of the new file."""
        return next((hunk for hunk in self.hunks if hunk.holds(first, last)), None)


def parse_patch(patch: str | None) -> Hunks:
    """Read the hunks of one file's unified diff, without its ``---`` and ``+++`` lines.

    What a forge has cut off in the middle ends the last hunk; text that is no diff has none.
    """
    hunks: list[Hunk] = []
    lines: dict[int, int | None] = {}
    old = new = old_left = new_left = 0
    for line in (patch or "").removesuffix("\n").split("\n"):
        if old_left <= 0 and new_left <= 0:
            header = _HEADER.match(line)
            if header is None:
                continue
            old, new = int(header[1]), int(header[3])
            old_left, new_left = int(header[2] or 1), int(header[4] or 1)
            lines = {}
            hunks.append(Hunk(lines))
        elif line.startswith("+"):
            lines[new] = None
            new, new_left = new + 1, new_left - 1
        elif line.startswith("-"):
            old, old_left = old + 1, old_left - 1
        elif line.startswith(" ") or not line:  # some tools strip the blank of an empty line
            lines[new] = old
            old, new, old_left, new_left = old + 1, new + 1, old_left - 1, new_left - 1
    return Hunks(tuple(hunk for hunk in hunks if hunk.lines))
