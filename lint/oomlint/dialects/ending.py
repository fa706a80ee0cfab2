"""What ends a run before its first step: why, where, and how far the program gets."""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from oomlint.documents.text import Location


class When(IntEnum):
    """How far a program gets that ends before its first step. What it would have come to later is a remark; what comes
    before, of loading the model say, it meets all the same."""

    SETTINGS = 1
    LOADING = 2
    LOADED = 3
    ENGINE = 4

    @property
    def word(self) -> str:
        """``after_load``, in what programs read."""
        return _WORDS[self]


_WORDS = {
    When.SETTINGS: "settings",
    When.LOADING: "before_load",
    When.LOADED: "after_load",
    When.ENGINE: "engine",
}


class Ending(Struct, frozen=True):
    """Why a run is sure to end before its first step, in words, and where that stands.

    ``when``: while its settings are read, before the model is loaded, once it is (as the Trainer is made, as DeepSpeed
    takes the model, with the first allocation), or as the engine starts that writes its answers; ``None`` where it is
    not known which. ``now``: of a key that has another name now, which. ``code`` and ``name`` are the rule's that tells
    of it, empty where none does; ``line`` is that of the place, once the run is known.
    """

    why: str
    at: Location
    when: When | None = None
    now: str = ""
    code: str = ""
    name: str = ""
    line: int | None = None
