"""What the files of a run say, field by field."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping as MappingABC
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from oomlint.dialects.block import Block
from oomlint.dialects.meaning import Left, Said
from oomlint.dialects.reading import Reading, StrayKey, WrongValue
from oomlint.dialects.setting import Origin, Setting
from oomlint.dialects.table import Row, Table

T = TypeVar("T")


class Differing(Struct, frozen=True):
    """What the files of a run say otherwise than before."""

    fields: set[Any]
    """Of which something else is said, or in another file."""
    replaced: set[Any]
    """Of which the same is said as before, in blocks that were read anew: at another place."""
    moved: set[Any]
    """Of which nothing is said, as before, in blocks that were read anew."""
    instead: MappingABC[Block, Block]
    """These, by what they were before."""


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

    def differing(self, earlier: Given) -> Differing:
        """What is said otherwise than before."""
        found = _differing(self.stated, earlier.stated, are_one)
        for here, there in ((self.unread, earlier.unread), (self.auto, earlier.auto)):
            found |= _differing(here, there, are_one_place)
        instead = self._instead_of(earlier)
        replaced = {field for field in found if self._says_again(field, earlier, instead)}
        found -= replaced
        moved = {field for field, home in earlier._homes.items() if home in instead}
        if self.blocks == earlier.blocks or instead:
            self._homes = {
                field: home if home is None else instead.get(home, home)
                for field, home in earlier._homes.items()
            }
        else:
            homes = earlier._homes.items()
            found |= {field for field, home in homes if self.block_with(field) is not home}
        for field in _differing(self.defaults, earlier.defaults, operator.is_):
            is_moved = field in self.defaults and field in earlier.defaults
            is_moved = is_moved and _has_moved(
                earlier.defaults[field], self.defaults[field], instead
            )
            (moved if is_moved else found).add(field)
        return Differing(found, replaced - found, moved - found, instead)

    def _says_again(self, field: Any, earlier: Given, instead: MappingABC[Block, Block]) -> bool:
        """Whether the same is said of a field as before, but that blocks were read anew."""
        here, there = self.stated.get(field), earlier.stated.get(field)
        if not (here is there or (here and there and _is_said_again(there, here, instead))):
            return False
        places = ((each.unread.get(field), each.auto.get(field)) for each in (earlier, self))
        return all(
            was is now or (was is not None and now is not None and _is_replaced(was, now, instead))
            for was, now in zip(*places, strict=True)
        )

    def _instead_of(self, earlier: Given) -> dict[Block, Block]:
        """Blocks of documents that were read anew, in the places of those of before; none if there is any block more or
        less, or one that says itself what can be written to it."""
        pairs = list(zip(earlier.blocks, self.blocks, strict=False))
        others = {was: now for was, now in pairs if was is not now}
        are_like = len(earlier.blocks) == len(self.blocks) and all(
            was.table is now.table and type(was) is type(now) is Block
            for was, now in others.items()
        )
        return others if are_like else {}

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


def _is_said_again(was: Setting, now: Setting, instead: MappingABC[Block, Block]) -> bool:
    """Whether a setting says what another one said, in a block that was read anew."""
    return (
        _is_replaced(was.origin, now.origin, instead)
        and was.level is now.level
        and _are_one_value(was.value, now.value)
        and len(was.shadowed) == len(now.shadowed)
        and all(
            _is_said_again(before, after, instead)
            for before, after in zip(was.shadowed, now.shadowed, strict=True)
        )
    )


def _is_replaced(was: Origin, now: Origin, instead: MappingABC[Block, Block]) -> bool:
    """Whether a place is the same as before, but that its block was read anew."""
    return are_one_place(was, now) or (
        was.block is not None
        and instead.get(was.block) is now.block
        and was.row is now.row
        and (was.key if was.entry else None) == (now.key if now.entry else None)
        and (was.kind, was.source, was.inputs) == (now.kind, now.source, now.inputs)
    )


def have_one_value(one: Setting | None, other: Setting | None) -> bool:
    """Whether two settings are the same value of the same kind of origin, wherever they are said."""
    if one is None or other is None:
        return one is other
    return one.origin.kind == other.origin.kind and _are_one_value(one.value, other.value)


def _has_moved(
    was: tuple[Row, Setting], now: tuple[Row, Setting], instead: MappingABC[Block, Block]
) -> bool:
    """Whether a default differs by nothing but the block that would say otherwise, if by that."""
    return was[0] is now[0] and are_one(elsewhere(was[1], instead), now[1])


def elsewhere(setting: Setting, instead: MappingABC[Block, Block]) -> Setting:
    """A setting that nobody says, with blocks in the places of those that it was of."""
    origin = setting.origin
    block = None if origin.block is None or origin.entry is not None else instead.get(origin.block)
    shadowed = tuple(elsewhere(each, instead) for each in setting.shadowed)
    if block is not None:
        origin = replace(origin, block=block)
    return Setting(setting.value, origin, shadowed, setting.level)
