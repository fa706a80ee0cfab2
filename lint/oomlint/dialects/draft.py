"""The draft of a run: settings merged from all its blocks, completed field by field.

Blocks come in order of rising precedence. A dialect's ``finish`` reads the draft and
fills in what the files leave to the framework: defaults, and what follows from several
keys together (the dtype law, the world size, what ``"auto"`` means).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping as MappingABC
from typing import Any

from oomlint.changes import Change, Release, release_of
from oomlint.dialects.table import (
    Block,
    Origin,
    Reading,
    Setting,
    StrayKey,
    WrongValue,
)
from oomlint.frozen import replace
from oomlint.plan import Plan, leaf_paths

# No bounds on the releases of a library.
_ANY: tuple[Release, Release] = ((), (1 << 62,))


class Draft:
    """Settings of one run in the making. Not thread-safe, lives for one resolution."""

    def __init__(
        self,
        blocks: Iterable[tuple[Block, Reading]],
        homes: dict[str, Block | None] | None = None,
    ) -> None:
        self.settings: dict[str, Setting] = {}
        self.unknown: dict[str, Origin] = {}
        self.auto: dict[str, Origin] = {}
        self.blocks: list[Block] = []
        self.stray: list[StrayKey] = []
        self.wrong: list[WrongValue] = []
        self.wished: dict[str, Any] = {}
        self.open: dict[Change, bool] = {}
        """Changes of libraries whose version nobody says, and whether they were taken as made."""
        self._homes = {} if homes is None else homes
        """Of fields that were asked for, the block that they are written to."""
        self._made: tuple[Plan, MappingABC[str, Any]] | None = None
        self._reach: dict[str, tuple[Release, Release]] = {}
        for block, reading in blocks:
            self._merge(block, reading)

    def _merge(self, block: Block, reading: Reading) -> None:
        self.blocks.append(block)
        self.stray += reading.stray
        self.wrong += reading.wrong
        self.auto.update(reading.auto)
        for field, origin in reading.unknown.items():
            self.settings.pop(field, None)
            self.unknown[field] = origin
        for field, setting in reading.settings.items():
            earlier = self.settings.get(field)
            if earlier is not None:
                shadowed = (earlier, *earlier.shadowed)
                setting = Setting(setting.value, setting.origin, shadowed)
            self.settings[field] = setting
            self.unknown.pop(field, None)

    # -- reading ---------------------------------------------------------------------

    def get(self, field: Any, otherwise: Any = None) -> Any:
        """The value of a field, or ``otherwise`` while it is not known."""
        setting = self.settings.get(field)
        return otherwise if setting is None else setting.value

    def __getitem__(self, field: Any) -> Any:
        return self.get(field)

    def says(self, field: Any) -> bool:
        """Whether a file or a wish sets the field (not a default, not a derivation)."""
        setting = self.settings.get(field)
        return setting is not None and setting.origin.kind in ("explicit", "option")

    def is_unknown(self, field: Any) -> bool:
        """Whether the field is set to something that cannot be read statically."""
        return field in self.unknown

    @property
    def unreadable(self) -> dict[str, Origin]:
        return dict(self.unknown)

    def block_with(self, field: Any) -> Block | None:
        """The block of highest precedence whose table can write the field."""
        if field not in self._homes:
            blocks = reversed(self.blocks)
            self._homes[field] = next((b for b in blocks if b.can_write(field)), None)
        return self._homes[field]

    # -- library versions --------------------------------------------------------------

    def version(self, package: str) -> Release | None:
        """The release of a library that the run's project pins."""
        return release_of((self.get("versions") or {}).get(package))

    def has(self, change: Change, *, otherwise: bool = True, noted: bool = True) -> bool:
        """Whether the library that runs has made a change.

        Where nobody pins it and both are possible, ``otherwise``, and the change is noted as open.
        What moves no memory, or was noted elsewhere, need not be ``noted``.
        """
        known = self.version(change.package)
        if known is not None:
            return known >= change.since
        oldest, beyond = self._reach.get(change.package, _ANY)
        if change.since <= oldest:
            return True
        if change.since >= beyond:
            return False
        if noted:
            self.open.setdefault(change, otherwise)
        return otherwise

    def narrow(self, package: str, *, oldest: Release = (), beyond: Release = ()) -> None:
        """A library is ``oldest`` or newer, and older than ``beyond``: what another one requires,
        or what the keys of a file tell."""
        least, most = self._reach.get(package, _ANY)
        self._reach[package] = (max(least, oldest), min(most, beyond or most))

    def imply(self, package: str, version: str, by: str | None) -> None:
        """Another library brings this one along in a version of its own, unless the project pins
        one: ``by`` names it where that one is pinned, else it is the newest of its kind."""
        if self.version(package) is not None:
            return
        if by is not None:
            known = self.settings.get("versions")
            origin = Origin("catalog", source=f"the release of {by} requires {package} {version}")
            versions = {**(known.value if known else {}), package: version}
            self.settings["versions"] = Setting(versions, origin)
            return
        release = release_of(version) or ()
        self.narrow(package, oldest=release, beyond=(*release, 1))

    # -- filling in ------------------------------------------------------------------

    def apply_row_defaults(self) -> None:
        """Give every field that a present block's table knows, and nobody set, its default."""
        for block in reversed(self.blocks):
            for row, setting in block.defaults:
                if self._is_open(row.field) and row.field not in self.auto:
                    value, origin = setting.value, setting.origin
                    if row.changes:
                        self._fill_by_version(row.field, value, origin, row.changes)
                    else:
                        self.settings[row.field] = setting

    def default(self, field: Any, value: Any, source: str, *changes: Change) -> None:
        """The framework's own value where nobody set the field; ``changes`` are those of it."""
        if self._is_open(field):
            origin = Origin("default", self.block_with(field), source=source)
            self._fill_by_version(field, value, origin, changes)

    def _is_open(self, field: Any) -> bool:
        """Whether nobody says the field, nor sets it to something that cannot be read."""
        return field not in self.settings and field not in self.unknown

    def _fill_by_version(
        self, field: Any, value: Any, origin: Origin, changes: Iterable[Change]
    ) -> None:
        for change in sorted(changes, key=lambda c: c.since, reverse=True):
            if not self.has(change):
                value, origin = change.was, replace(origin, source=change.source)
        if value is not None:
            self.settings[field] = Setting(value, origin)

    def derive(self, field: Any, value: Any, *inputs: str, source: str = "") -> None:
        """A value that follows from other fields; never overrides what a file says."""
        if value is None or self.says(field) or field in self.unknown:
            return
        origin = Origin("derived", self.block_with(field), source=source, inputs=inputs)
        self.settings[field] = Setting(value, origin)

    def override(self, field: Any, value: Any, *inputs: str, source: str = "") -> None:
        """What the framework makes of a field whatever the file says (it keeps the original)."""
        earlier = self.settings.get(field)
        shadowed = (earlier, *earlier.shadowed) if earlier else ()
        origin = Origin("derived", self.block_with(field), source=source, inputs=inputs)
        self.settings[field] = Setting(value, origin, shadowed)

    def forget(self, field: Any) -> None:
        self.settings.pop(field, None)

    def assume(self, field: Any, value: Any, why: str) -> None:
        """A stated guess; it is listed with every prediction that rests on it."""
        if value is not None and self._is_open(field):
            origin = Origin("assumed", self.block_with(field), source=why)
            self.settings[field] = Setting(value, origin)

    def fact(self, field: Any, value: Any, source: str, *inputs: str) -> None:
        """Something known about the model or the hardware; ``inputs`` are the fields that say it."""
        if value is not None and self._is_open(field):
            origin = Origin("catalog", source=source, inputs=inputs)
            self.settings[field] = Setting(value, origin)

    def option(self, field: Any, value: Any, source: str) -> None:
        """A value given to oomlint itself; it wins over the files."""
        earlier = self.settings.get(field)
        shadowed = (earlier, *earlier.shadowed) if earlier else ()
        self.settings[field] = Setting(value, Origin("option", source=source), shadowed)
        self.unknown.pop(field, None)

    def wish(self, field: Any, value: Any) -> None:
        """What a fix would make a file say; ``None`` leaves the value to others (``"auto"``)."""
        self.wished[field] = value
        if value is None:
            self.forget(field)
            self.auto[field] = Origin("option", source="a proposed change")
        else:
            self.option(field, value, "a proposed change")

    # -- the result ------------------------------------------------------------------

    def plan(self, name: str | None = None, *, near: Draft | None = None) -> Plan:
        """The plan that the settings, which are finished now, make; ``near`` is a draft which shares
        most of them, whose plan is then only changed where they differ."""
        if self._made is None:
            self._made = self._make(name, near if near is not self else None)
        plan, _ = self._made
        return plan if name in (None, plan.name) else plan.with_values({"name": name})

    def _make(self, name: str | None, near: Draft | None) -> tuple[Plan, MappingABC[str, Any]]:
        """The plan, and its leaves that are known."""
        leaves = leaf_paths()
        values = {f: s.value for f, s in self.settings.items() if f in leaves}
        if name is not None:
            values["name"] = name
        if near is None:
            return Plan().with_values(values), values
        near.plan(name)
        assert near._made is not None
        plan, known = near._made
        changes = {f: v for f, v in values.items() if known.get(f) is not v}
        changes |= {f: Plan().get(f) for f in known.keys() - values.keys()}
        return plan.with_values(changes), values
