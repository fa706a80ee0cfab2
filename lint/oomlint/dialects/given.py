"""What the files of a run say, field by field."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping as MappingABC
from typing import Any, TypeVar

from oomlint.dialects.meaning import Left, Said
from oomlint.dialects.table import Block, Origin, Reading, Row, Setting, StrayKey, Table, WrongValue

T = TypeVar("T")


class Given:
    """What the files of a run say, merged by precedence, before anything follows from it.

    Made once for a run's blocks, whatever is then asked of them.
    """

    def __init__(self, blocks: Iterable[tuple[Block, Reading]]) -> None:
        self.blocks: list[Block] = []
        self.stated: dict[Any, Setting] = {}
        self.unread: dict[Any, Origin] = {}
        self.auto: dict[Any, Origin] = {}
        self.defaults: dict[Any, tuple[Row, Setting]] = {}
        self.stray: list[StrayKey] = []
        self.wrong: list[WrongValue] = []
        self._homes: dict[Any, Block | None] = {}
        self._worked_out: dict[Any, Any] = {}
        for block, reading in blocks:
            self._merge(block, reading)
        for block in reversed(self.blocks):
            for row, setting in block.defaults:
                self.defaults.setdefault(row.field, (row, setting))

    def _merge(self, block: Block, reading: Reading) -> None:
        self.blocks.append(block)
        self.stray += reading.stray
        self.wrong += reading.wrong
        self.auto.update(reading.auto)
        for field, origin in reading.unknown.items():
            self.stated.pop(field, None)
            self.unread[field] = origin
        for field, setting in reading.settings.items():
            self.stated[field] = _over(self.stated.get(field), setting)
            self.unread.pop(field, None)

    def with_options(self, options: MappingABC[Any, Any], source: str) -> Given:
        """The same with values over those of the files; ``None`` leaves a field to others."""
        made = object.__new__(Given)
        made.__dict__.update(vars(self))
        made.stated, made.unread, made.auto = (
            dict(self.stated), dict(self.unread), dict(self.auto),
        )  # fmt: skip
        for field, value in options.items():
            if value is None:
                made.stated.pop(field, None)
                made.auto[field] = Origin("option", source=source)
            else:
                setting = Setting(value, Origin("option", source=source))
                made.stated[field] = _over(made.stated.get(field), setting)
            made.unread.pop(field, None)
        return made

    def differing(self, earlier: Given) -> set[Any]:
        """The fields of which something else is said than before, or that stand or would be written elsewhere."""
        found = _differing(self.stated, earlier.stated, are_one)
        for here, there in ((self.unread, earlier.unread), (self.auto, earlier.auto)):
            found |= _differing(here, there, are_one_place)
        found |= _differing(self.defaults, earlier.defaults, _are_one_default)
        homes = earlier._homes.items()
        return found | {field for field, home in homes if self.block_with(field) is not home}

    def block_with(self, field: Any) -> Block | None:
        """The block of highest precedence whose table can write the field."""
        if field not in self._homes:
            blocks = reversed(self.blocks)
            self._homes[field] = next((b for b in blocks if b.can_write(field)), None)
        return self._homes[field]

    def blocks_of(self, tables: Collection[Table]) -> list[Block]:
        return [block for block in self.blocks if any(block.table is table for table in tables)]

    def blocks_in(self, section: str) -> list[Block]:
        return [block for block in self.blocks if block.table.section == section]

    def once(self, function: Callable[[list[Block]], T]) -> T:
        """What a function makes of the blocks, worked out once."""
        if function not in self._worked_out:
            self._worked_out[function] = function(self.blocks)
        result: T = self._worked_out[function]
        return result

    def said(self, field: Any) -> Said:
        found = self.stated.get(field) or self.unread.get(field)
        if found is None and field in self.auto:
            return Left(self.auto[field])
        return found


def _over(earlier: Setting | None, setting: Setting) -> Setting:
    if earlier is None:
        return setting
    return Setting(setting.value, setting.origin, (earlier, *earlier.shadowed), setting.level)


def _differing(
    here: MappingABC[Any, T], there: MappingABC[Any, T], are_one: Callable[[T, T], bool]
) -> set[Any]:
    """The fields that one side alone has, or of which it has another thing."""
    return {
        field
        for field in here.keys() | there.keys()
        if field not in here or field not in there or not are_one(here[field], there[field])
    }


def are_one(one: Setting | None, other: Setting | None) -> bool:
    """Whether two settings are the same value, of the very same places."""
    if one is other or one is None or other is None:
        return one is other
    return (
        are_one_place(one.origin, other.origin)
        and _are_one_value(one.value, other.value)
        and one.level is other.level
        and len(one.shadowed) == len(other.shadowed)
        and all(map(are_one, one.shadowed, other.shadowed))
    )


def are_one_place(one: Origin | None, other: Origin | None) -> bool:
    """Whether two origins are the very same place, or the same words where there is none."""
    if one is other or one is None or other is None:
        return one is other
    return (
        one.block is other.block
        and one.row is other.row
        and one.entry is other.entry
        and (one.kind, one.source, one.inputs) == (other.kind, other.source, other.inputs)
    )


def _are_one_value(one: Any, other: Any) -> bool:
    """Whether nobody can tell two values apart, as 1 and 1.0 can be."""
    return one is other or (type(one) is type(other) and repr(one) == repr(other))


def _are_one_default(one: tuple[Row, Setting], other: tuple[Row, Setting]) -> bool:
    return one[0] is other[0] and are_one(one[1], other[1])
