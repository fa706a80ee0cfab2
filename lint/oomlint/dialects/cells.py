"""The cells of a run: every field's value, how it is known, and what it was computed from.

A cell is computed when it is first read, once. What a derivation reads is recorded, so that
nobody lists its inputs, nothing stands in an order made by hand, and a change of some fields
(:meth:`Cells.changed`) computes anew only what depends on them.
"""

from __future__ import annotations

import operator
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Mapping as MappingABC,
    Set as AbstractSet,
)
from functools import cached_property, partial
from typing import Any, TypeVar

from msgspec.structs import replace

from oomlint.dialects.block import Block
from oomlint.dialects.cell import BASE, FINAL, GROUP, NONE, SAID, UNSAID, Cell, Frame
from oomlint.dialects.given import Differing, Given, elsewhere
from oomlint.dialects.looks import Looks
from oomlint.dialects.meaning import Derivation, Meaning, Said, Wishes
from oomlint.dialects.precedence import based, forced, statement
from oomlint.dialects.readers import Readers
from oomlint.dialects.reading import StrayKey
from oomlint.dialects.setting import Origin, Setting
from oomlint.dialects.surroundings import Surroundings
from oomlint.dialects.table import Table
from oomlint.plan import Plan, leaf_paths
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.plan.library_changes import LibraryChange, Release, release_of

T = TypeVar("T")

# No bounds on the releases of a library.
_ANY: tuple[Release, Release] = ((), (1 << 62,))


class CircularDerivation(Exception):
    """A field that depends on itself; ``str(error)`` is the path from it back to it."""


# What is looked for in the files: where a field would be written.
_HOME = "home"


def _option_field(name: str) -> Any:
    """The field that an option of the user decides on."""
    for whole in (f.versions, f.model.dims):
        if name.startswith(f"{whole}."):
            return whole
    return name


class Cells:
    """The fields of one run. Not thread-safe."""

    def __init__(self, given: Given, meaning: Meaning, known: Surroundings) -> None:
        self._given = given
        self.meaning = meaning
        self.known = known
        self.wished: Wishes = {}
        """Of a changed run: what its files would have to say, in the dialect's own fields."""
        self._cells: dict[str, dict[Any, Cell]] = {SAID: {}, BASE: {}, FINAL: {}}
        self._open: dict[str, dict[Any, Cell]] = {SAID: {}, BASE: {}, FINAL: {}}
        """Those of them that hang on changes of libraries which nobody knows to be made."""
        self._groups: dict[int, tuple[Derivation, MappingABC[Any, Any], Frame]] = {}
        self._trail: list[Frame] = []
        self._under_way: set[tuple[Any, str]] = set()
        self._made: tuple[Plan, MappingABC[str, Any]] | None = None
        self._near: Cells | None = None
        self._affected: Collection[Any] | None = None
        """Of a changed run, the fields that may be otherwise than in the run that it is a change of; ``None`` where
        not all of that had been computed, but what its plan is made of."""
        self._start: tuple[Plan, MappingABC[str, Any]] = (Plan(), NONE)
        """A plan that this one is like, and what it is made of."""
        self._moved: Collection[Any] | None = None
        """The leaves of the plan that may be otherwise than there; ``None`` are all that have a value."""
        self._readers = Readers(self._cells)
        self._looks = Looks()
        self._plans: dict[tuple[str, str], tuple[Plan, Looks]] = {}
        """The plans that these cells make with more that is said, and what was looked at in the files for each."""

    # -- reading ---------------------------------------------------------------------

    def __getitem__(self, field: T) -> T:
        """The value of a field, ``None`` where it is not known. The read is recorded."""
        trail = self._trail
        if trail:
            frame = trail[-1]
            if frame.self_value is not None and field == frame.field:
                cell = frame.self_value
                frame.level = max(frame.level, cell.level)
                return cell.value  # type: ignore[no-any-return]
            if field in frame.forces:
                return self.base(field)
        return self.cell(field, FINAL).value  # type: ignore[no-any-return]

    def get(self, field: T | None, otherwise: T) -> T:
        """The value of a field, ``otherwise`` where it is not known."""
        value = self[field]
        return otherwise if value is None else value

    def base(self, field: T) -> T:
        """The value of a field before the framework forces another on it (``override``)."""
        return self.cell(field, BASE).value  # type: ignore[no-any-return]

    def says(self, field: Any) -> bool:
        """Whether a file or an option sets the field (not a default, not a derivation)."""
        setting = self.cell(field, SAID).setting
        return setting is not None and setting.origin.kind in ("explicit", "option")

    def is_unread(self, field: Any) -> bool:
        """Whether the field is set to something that cannot be read statically; who asks so and
        hears yes is as weak."""
        cell = self.cell(field, SAID)
        return cell.setting is None and cell.origin is not None

    def mentions(self, field: Any) -> bool:
        """Whether anybody sets the field, to what we can read or not."""
        cell = self.cell(field, SAID, weakens=False)
        return cell.setting is not None or cell.origin is not None

    def is_auto(self, field: Any) -> bool:
        """Whether the field's key says ``"auto"``: somebody else's value is taken."""
        return self.cell(field, SAID, weakens=False).auto

    def otherwise(self, field: T | None, value: T) -> T:
        """The value of a field, or where it cannot be read ``value``, which is then assumed."""
        cell = self.cell(field, SAID, weakens=False)
        if cell.setting is not None or cell.origin is None:
            return self.get(field, value)
        if self._trail:
            frame = self._trail[-1]
            frame.level = max(frame.level, Level.ASSUMED)
        return value

    def setting(self, field: Any) -> Setting | None:
        """Value, place and evidence of a field; ``None`` where it has no value."""
        if self._trail:
            self._looks.at_place(field, self._trail[-1])
        return self.cell(field, FINAL).setting

    def said(self, field: Any) -> Said:
        """What the files and the options come to say of a field."""
        if self._trail:
            self._looks.at_place(field, self._trail[-1])
        cell = self.cell(field, SAID)
        return cell.setting or cell.origin

    def stated(self, field: Any) -> Said:
        """What the files say of a field, whether or not it counts."""
        if self._trail:
            self._looks.at_place(field, self._trail[-1])
            self._trail[-1].reads[field] = None
        return self._given.said(field)

    def level(self, field: Any) -> Level:
        """How well a field is known; of one without a value, what leaves it open."""
        return self.cell(field, FINAL).level

    def reads(self, field: Any) -> tuple[Any, ...]:
        """What a field was computed from."""
        return tuple(self.cell(field, FINAL).reads)

    # -- the files themselves ----------------------------------------------------------

    @property
    def given(self) -> Given:
        """What the files say. Who looks at it while a field is computed hangs on all of them."""
        if self._trail:
            self._looks.at_all(self._trail[-1])
        return self._given

    @property
    def blocks(self) -> list[Block]:
        """The blocks of the run's files, in rising precedence."""
        return self.given.blocks

    def blocks_of(self, *tables: Table) -> list[Block]:
        """Those of some tables; who looks for them hangs on no others."""
        return self._look(tuple(map(id, tables)), partial(Given.blocks_of, tables=tables))

    def blocks_in(self, section: str) -> list[Block]:
        """Those of a section; who looks for them hangs on no others."""
        return self._look(section, partial(Given.blocks_in, section=section))

    def has_block_of(self, *tables: Table) -> bool:
        """Whether there is one of some tables; who asks that alone hangs on nothing that stands in it."""
        return self._look(
            ("any of", *map(id, tables)), lambda given: bool(given.blocks_of(tables=tables))
        )

    def has_block_in(self, section: str) -> bool:
        """The same of a section."""
        return self._look(("any in", section), lambda given: bool(given.blocks_in(section)))

    def block_with(self, field: Any) -> Block | None:
        """The block of highest precedence whose table can write the field."""
        return self._look((_HOME, field), partial(Given.block_with, field=field))

    def once(self, function: Callable[[list[Block]], T]) -> T:
        """What a function makes of the blocks, worked out once for a run and all changes of it; who asks hangs on what it
        gives, and not on the blocks."""
        return self._look(function, partial(Given.once, function=function))

    @property
    def strays(self) -> list[StrayKey]:
        """The keys that the framework does not know; who asks for them hangs on nothing else."""
        return self._look("strays", operator.attrgetter("stray"))

    def _look(self, what: Hashable, find: Callable[[Given], T]) -> T:
        """What there is to find in the files; who looks for it while a field is computed is noted."""
        if self._trail:
            self._looks.at(what, find, self._trail[-1])
        return find(self._given)

    # -- libraries -------------------------------------------------------------------

    def version(self, package: str) -> Release | None:
        """The release of a library that the run's project pins."""
        return release_of((self[f.versions] or {}).get(package))

    def oldest(self, package: str) -> Release:
        """The oldest release of a library that may run; ``()`` where no file tells one."""
        from oomlint.dialects.common.fields import library

        return self.version(package) or (self[library.bounds] or {}).get(package, _ANY)[0]

    def made(self, change: LibraryChange) -> bool | None:
        """Whether the library that runs has made a change; ``None`` where nobody pins it and both
        are possible."""
        from oomlint.dialects.common.fields import library

        return self._made_within(change, library.bounds)

    def surely_made(self, change: LibraryChange) -> bool | None:
        """The same where frameworks that nobody pins may be of any release, and not the newest: what a program is said to
        end of has to be certain."""
        from oomlint.dialects.common.fields import library

        return self._made_within(change, library.sure_bounds)

    def _made_within(self, change: LibraryChange, bounds: Any) -> bool | None:
        known = self.version(change.package)
        oldest, beyond = (self[bounds] or {}).get(change.package, _ANY)
        if known is not None:
            is_open = known >= change.since > oldest and self._is_in_range(change.package)
            return None if is_open else known >= change.since
        if change.since <= oldest:
            return True
        return False if change.since >= beyond else None

    def _is_in_range(self, package: str) -> bool:
        """Whether the version of a package is only the newest of those that the project allows."""
        known = self.known
        return package in known.ranges and f"versions.{package}" not in known.options

    def has(self, change: LibraryChange, *, otherwise: bool = True, noted: bool = True) -> bool:
        """Whether the library that runs has made a change; where both are possible, ``otherwise``,
        and the change is noted as open.

        What moves no memory, or was noted elsewhere, need not be ``noted``.
        """
        made = self.made(change)
        if made is not None:
            return made
        if noted and self._trail:
            self._trail[-1].open.setdefault(change, otherwise)
        return otherwise

    # -- the whole -------------------------------------------------------------------

    @cached_property
    def fields(self) -> tuple[Any, ...]:
        """Every field that anything speaks of."""
        if self._near is not None:
            return tuple(
                dict.fromkeys((*self._near.fields, *self._given.stated, *self._given.unread))
            )
        seen: dict[Any, None] = dict.fromkeys(self._given.stated)
        for more in (self._given.unread, self._given.defaults, self.meaning.fields):
            seen.update(dict.fromkeys(more))
        return tuple(seen)

    @cached_property
    def settings(self) -> dict[Any, Setting]:
        """Every field that has a value."""
        computed = self._cells[FINAL]
        found: dict[Any, Setting] = {}
        fields: Iterable[Any] = self.fields
        if self._near is not None and self._affected is not None:
            # The others are those of the run that this one is a change of.
            found.update(self._near.settings)
            fields = self._affected
        for field in fields:
            # Mostly they have been computed, and nobody records this.
            cell = None if self._trail else computed.get(field)
            setting = (cell or self.cell(field, FINAL)).setting
            if setting is not None:
                found[field] = setting
            else:
                found.pop(field, None)
        return found

    @property
    def unreadable(self) -> dict[Any, Origin]:
        """Fields that are set to what cannot be read, and whose value nothing else tells."""
        computed = self._cells[FINAL]
        for field in self.fields:
            # Mostly they have been computed, and nobody records this.
            if self._trail or field not in computed:
                self.cell(field, FINAL)
        # Those included that nobody speaks of and something was computed from.
        return {
            field: cell.origin
            for field, cell in computed.items()
            if cell.setting is None and cell.origin is not None
        }

    @cached_property
    def open(self) -> dict[LibraryChange, bool]:
        """Changes of libraries whose version nobody says, and whether they were taken as made; whatever asked for them
        first, in one order."""
        self.settings  # noqa: B018  the cells are what notes them
        out: dict[LibraryChange, bool] = {}
        for tier in self._open.values():
            for cell in tier.values():
                out.update(cell.open)
        for _, _, frame in self._groups.values():
            out.update(frame.open)
        return {change: out[change] for change in sorted(out, key=_said_in_order)}

    def plan(self, name: str | None = None) -> Plan:
        """The plan that the cells make."""
        if self._made is None:
            self._made = self._make()
        plan, _ = self._made
        return plan if name in (None, plan.name) else plan.with_values({"name": name})

    def _make(self) -> tuple[Plan, MappingABC[str, Any]]:
        plan, known = self._start
        values, changes = dict(known), {}
        moved = leaf_paths().intersection(self.settings) if self._moved is None else self._moved
        for field in moved:
            value = self.cell(field, FINAL).value
            if value is None:
                if values.pop(field, None) is not None:
                    changes[field] = Plan().get(field)
            elif values.get(field) is not value:
                changes[field] = values[field] = value
        return plan.with_values(changes), values

    # -- changing --------------------------------------------------------------------

    def changed(self, own: Wishes) -> Cells:
        """The cells as they would be if the files said ``own`` too; what does not depend on it
        is not computed again."""
        given = self._given.with_options(own, "a proposed change")
        made = self._with(given, self.known, own)
        made.wished = {**self.wished, **own}
        return made

    def assuming(self, values: MappingABC[str, Any]) -> Cells:
        """The cells under more options of the user: fields, ``versions.NAME``, and members of the
        model's dimensions (``model.dims.layers``)."""
        options = {**self.known.options, **values}
        known = replace(self.known, options=options)
        changed = {_option_field(name): value for name, value in values.items()}
        stated = {k: v for k, v in changed.items() if k not in (f.versions, f.model.dims)}
        made = self._with(self._given.with_options(stated, "--set"), known, changed)
        made.wished = self.wished
        return made

    def plan_under(self, options: MappingABC[str, Any]) -> Plan | None:
        """The plan under all these options of the user, if it was made of cells with the same values."""
        return self._planned(("options", _written(options)))

    def plan_with(self, own: Wishes) -> Plan | None:
        """The plan if the files said ``own`` too (:meth:`changed`), if it was made of cells with the same values."""
        return self._planned(("changes", _written(own)))

    def note_plan_under(self, options: MappingABC[str, Any], made: Cells) -> None:
        """Remember the plan that comes of more options: it is the same for as long as the values here are, and what was
        looked at for it in the files."""
        self._plans["options", _written(options)] = (made.plan(), made._looks)

    def note_plan_with(self, own: Wishes, made: Cells) -> None:
        """The same of one that comes of a change."""
        self._plans["changes", _written(own)] = (made.plan(), made._looks)

    def _planned(self, key: tuple[str, str]) -> Plan | None:
        found = self._plans.get(key)
        return None if found is None else found[0]

    def _with(self, given: Given, known: Surroundings, changed: Iterable[Any]) -> Cells:
        made = Cells(given, self.meaning, known)
        made._near = self
        self.plan()
        assert self._made is not None
        affected = self._readers.dependents(changed)
        made._start, made._moved = self._made, leaf_paths().intersection(affected)
        if "settings" in vars(self):
            made._affected = affected
        made._hold(self, affected)
        made._readers = Readers(made._cells, self._readers)
        return made

    def keep(self, earlier: Cells) -> None:
        """Take over what was computed for the same run when its files stood otherwise, but for what hangs on what has
        changed since. Of a field of which a document that was read anew says the same the place alone has."""
        if set(self._given.blocks).isdisjoint(earlier._given.blocks):
            return
        if self.meaning is not earlier.meaning or not self.known.answer_like(earlier.known):
            return
        differing = self._given.differing(earlier._given)
        affected = earlier._readers.dependents(differing.fields)
        self._hold(earlier, affected)
        self._move(differing)
        self._looks = earlier._looks
        placed = differing.moved | differing.replaced
        again = self._looks.changed(self._given, earlier._given, placed)
        others = self._compute_again(again, differing.replaced)
        if not affected and not others:
            self._plans = {
                key: (plan, looks)
                for key, (plan, looks) in earlier._plans.items()
                if not looks.changed(self._given, earlier._given, placed)
            }
        affected = affected.union(again, others)
        if earlier._made is not None:
            self._start, self._moved = earlier._made, leaf_paths().intersection(affected)

    def _move(self, differing: Differing) -> None:
        """Let fields of which nothing is said be of the blocks that could say them now."""
        based, final = self._cells[BASE], self._cells[FINAL]
        for field in differing.moved:
            before, forced_on = based.get(field), final.get(field)
            moved = _elsewhere(before, differing.instead)
            if moved is not None:
                based[field] = moved
            if forced_on is not before:
                moved = _elsewhere(forced_on, differing.instead)
            if forced_on is not None and moved is not None:
                final[field] = moved

    def _compute_again(
        self, fields: AbstractSet[Any], replaced: AbstractSet[Any]
    ) -> AbstractSet[Any]:
        """Compute fields anew, those included that are said again at another place, and where one is not as it was,
        what hangs on it; such fields and these."""
        before = [
            (tier, field, cells[field])
            for tier, cells in self._cells.items()
            for field in fields | replaced
            if field in cells
        ]
        self._hold(self, fields | replaced)
        changed = {
            field
            for tier, field, was in before
            for now in [self.cell(field, tier)]
            if not (now.is_like(was) if field in fields else now.is_worth(was))
        }
        # One that was computed just now is so once more if it hangs on another.
        affected = self._readers.dependents(self._readers.of_one(changed))
        if affected:
            self._hold(self, affected)
        return affected | changed

    def _hold(self, other: Cells, but: AbstractSet[Any]) -> None:
        """Have what was computed of another's fields, all of which its readers know of, ``but`` of these."""
        for of_run, of_other in ((self._cells, other._cells), (self._open, other._open)):
            for tier, cells in of_other.items():
                of_run[tier] = kept = cells.copy()
                for field in but:
                    kept.pop(field, None)
        self._groups = other._groups.copy()
        for field in but:
            for derivation in self.meaning.shared(field):
                self._groups.pop(id(derivation), None)
        self._readers = other._readers.of(self._cells)

    # -- computing -------------------------------------------------------------------

    def cell(self, field: Any, tier: str, *, weakens: bool = True) -> Cell:
        """The cell of a field at a tier. The read is recorded, and who reads it is as weak unless it is to know no more
        than that there is one."""
        cell = self._cells[tier].get(field)
        if cell is None:
            cell = self._compute(field, tier)
        trail = self._trail
        if trail:
            frame = trail[-1]
            if frame.field != field:
                frame.reads.pop(field, None)  # what is read last is last, however often
                frame.reads[field] = None
            if weakens and cell.level > frame.level:
                frame.level = cell.level
        return cell

    def _compute(self, field: Any, tier: str) -> Cell:
        if tier == FINAL and not self.meaning.overrides(field):
            cell = self._cells[BASE].get(field) or self._compute(field, BASE)
        elif tier == SAID and self._is_silent(field):
            cell = UNSAID
        else:
            cell = self._computed(field, tier)
        self._cells[tier][field] = cell
        if cell.open:
            self._open[tier][field] = cell
        return cell

    def _is_silent(self, field: Any) -> bool:
        """Whether nothing is said of a field, as of most, and nobody makes anything of that."""
        if self._given.said(field) is not None:
            return False
        unsaid = self.meaning.unsaid_of(field)
        if not unsaid:  # of most fields nobody has to be asked
            return unsaid is not None
        return not any(
            field in self._looks.left_unsaid(each, field, self._given) for each in unsaid
        )

    def _computed(self, field: Any, tier: str) -> Cell:
        """A cell for which others may have to be read."""
        key = (field, tier)
        if key in self._under_way:
            raise CircularDerivation(self._circle(field, tier))
        frame = Frame(field, tier)
        self._trail.append(frame)
        self._under_way.add(key)
        try:
            if tier == SAID:
                return statement(self, self._given, field, frame)
            if tier == BASE:
                return based(self, self._given, field, frame)
            return forced(self, self._given, field, frame)
        finally:
            self._under_way.discard(key)
            self._trail.pop()

    def _circle(self, field: Any, tier: str) -> str:
        """How a computation that is under way has come to its own field again."""
        fields = [each.field for each in self._trail if each.tier in (tier, GROUP)]
        return " -> ".join(map(str, (*fields[fields.index(field) :], field)))

    def group(self, derivation: Derivation) -> tuple[MappingABC[Any, Any], Frame]:
        """What a derivation of several fields gives, computed once for all of them, and what that read."""
        known = self._groups.get(id(derivation))
        if known is None:
            forces = derivation.fields if derivation.rank == "override" else ()
            frame = Frame(derivation.fields, GROUP, forces)
            self._trail.append(frame)
            try:
                found = derivation.compute(self) or {}
            finally:
                self._trail.pop()
            strange = found.keys() - set(derivation.fields)
            if strange:
                raise TypeError(f"{derivation.name} does not declare {sorted(strange)}")
            known = self._groups[id(derivation)] = (derivation, found, frame)
        return known[1:]


def _elsewhere(cell: Cell | None, instead: MappingABC[Block, Block]) -> Cell | None:
    """A cell with a value, of the blocks that are there instead; ``None`` where there is none."""
    if cell is None or cell.setting is None:
        return None
    return cell.of(elsewhere(cell.setting, instead))


def _written(options: MappingABC[Any, Any]) -> str:
    return repr(sorted(options.items()))


def _said_in_order(change: LibraryChange) -> tuple[object, ...]:
    return change.package, change.since, change.before
