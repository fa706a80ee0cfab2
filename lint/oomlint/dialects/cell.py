"""A cell, a field's value with how it is known and what was read for it, and the computation that one comes of."""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from typing import Any

from oomlint.dialects.given import are_one, are_one_place, have_one_value
from oomlint.dialects.meaning import Left, Said
from oomlint.dialects.setting import Origin, Setting
from oomlint.plan.evidence import Level
from oomlint.plan.library_changes import LibraryChange

# What the statements about a field come to, the field without what the framework forces on it,
# and the field.
SAID, BASE, FINAL = "said", "base", "final"
# Of a computation that gives several fields.
GROUP = "group"

# No reads, and no open changes.
NONE: MappingABC[Any, Any] = {}


class Frame:
    """A computation under way: what it has read so far, and how well that is known."""

    __slots__ = ("field", "forces", "level", "open", "reads", "self_value", "tier")

    def __init__(self, field: Any, tier: str, forces: tuple[Any, ...] = ()) -> None:
        self.field, self.tier, self.forces = field, tier, forces
        self.reads: dict[Any, None] = {}
        self.level = Level.MEASURED
        self.open: dict[LibraryChange, bool] = {}
        self.self_value: Cell | None = None

    def count_among(self, fields: set[Any]) -> None:
        """Have what is computed here stand among some fields."""
        if self.tier == GROUP:
            fields.update(self.field)
        else:
            fields.add(self.field)


class Cell:
    """A computed field. ``setting`` is ``None`` where nothing gives it a value; ``origin`` then
    is the place that says it and cannot be read, if there is one."""

    __slots__ = ("auto", "level", "open", "origin", "reads", "setting")

    def __init__(
        self,
        setting: Setting | None,
        level: Level,
        reads: MappingABC[Any, None],
        open_: MappingABC[LibraryChange, bool],
        origin: Origin | None = None,
        *,
        auto: bool = False,
    ) -> None:
        self.setting, self.level, self.reads, self.open = setting, level, reads, open_
        self.origin, self.auto = origin, auto

    @property
    def value(self) -> Any:
        return None if self.setting is None else self.setting.value

    def of(self, setting: Setting) -> Cell:
        """The same, with the setting of another place."""
        return Cell(setting, self.level, self.reads, self.open, self.origin, auto=self.auto)

    def is_like(self, other: Cell) -> bool:
        """Whether whoever reads it finds nothing that is not in the other, too."""
        return (
            self._is_known_like(other)
            and are_one(self.setting, other.setting)
            and are_one_place(self.origin, other.origin)
        )

    def is_worth(self, other: Cell) -> bool:
        """The same of those who do not ask at which place it is said."""
        return (
            self._is_known_like(other)
            and have_one_value(self.setting, other.setting)
            and (self.origin is None) is (other.origin is None)
        )

    def _is_known_like(self, other: Cell) -> bool:
        return (
            self.level is other.level
            and self.auto is other.auto
            and [*self.reads] == [*other.reads]
            and self.open == other.open
        )


def known_so_well(setting: Setting, level: Level) -> Setting:
    """The same setting, known at a level."""
    if setting.level is level:
        return setting
    return Setting(setting.value, setting.origin, setting.shadowed, level)


def as_said(
    said: Said,
    level: Level = Level.MEASURED,
    reads: MappingABC[Any, None] = NONE,
    open_: MappingABC[LibraryChange, bool] = NONE,
) -> Cell:
    """What is said of a field, as a cell that was found by reading others, known so well."""
    if isinstance(said, Setting):
        level = max(level, said.level)
        return Cell(known_so_well(said, level), level, reads, open_)
    if isinstance(said, Left):
        return Cell(None, max(level, Level.DEFAULT), reads, open_, auto=True)
    if said is not None:
        return Cell(None, Level.UNREAD, reads, open_, said)
    return Cell(None, max(level, Level.DEFAULT), reads, open_)


UNSAID = as_said(None)
"""Of a field of which nothing is said."""
