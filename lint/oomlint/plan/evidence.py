"""How a value is known."""

from __future__ import annotations

from enum import IntEnum


class Level(IntEnum):
    """How well a value is known, best first; of several the weakest is the largest.

    *unread*: somebody says it and we did not understand; the value, if there is one, is what
    would hold if nobody said anything.
    """

    MEASURED = 0
    STATED = 1
    FACT = 2
    DEFAULT = 3
    ASSUMED = 4
    UNREAD = 5

    @property
    def word(self) -> str:
        """As reports have it: ``stated``."""
        return self.name.lower()
