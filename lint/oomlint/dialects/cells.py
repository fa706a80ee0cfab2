"""The cells of a run: every field's value, how it is known, and what it was computed from.

A cell is computed when it is first read, once. What a derivation reads is recorded, so that
nobody lists its inputs, nothing stands in an order made by hand, and a change of some fields
(:meth:`Cells.changed`) computes anew only what depends on them.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Container,
    Hashable,
    Iterable,
    Mapping as MappingABC,
    Set as AbstractSet,
)
from functools import cached_property, partial
from itertools import islice
from typing import Any, TypeVar

from msgspec.structs import replace

from oomlint.dialects.given import Differing, Given, are_one, are_one_place, elsewhere
from oomlint.dialects.meaning import (
    NOTHING,
    ROW_DEFAULTS,
    Derivation,
    Left,
    Meaning,
    Said,
    Sourced,
    Unsaid,
    Wishes,
    rank_of,
)
from oomlint.dialects.surroundings import Surroundings
from oomlint.dialects.table import Block, Origin, Row, Setting, Table
from oomlint.plan import Plan, leaf_paths
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.plan.library_changes import LibraryChange, Release, release_of

T = TypeVar("T")

# No bounds on the releases of a library.
_ANY: tuple[Release, Release] = ((), (1 << 62,))


class CircularDerivation(Exception):
    """A field that depends on itself; ``str(error)`` is the path from it back to it."""


def _at(setting: Setting, level: Level) -> Setting:
    """The same setting, known so well."""
    if setting.level is level:
        return setting
    return Setting(setting.value, setting.origin, setting.shadowed, level)


class _Frame:
    """A computation under way: what it has read so far, and how well that is known."""

    __slots__ = ("field", "forces", "level", "open", "reads", "self_value", "tier")

    def __init__(self, field: Any, tier: str, forces: tuple[Any, ...] = ()) -> None:
        self.field, self.tier, self.forces = field, tier, forces
        self.reads: dict[Any, None] = {}
        self.level = Level.MEASURED
        self.open: dict[LibraryChange, bool] = {}
        self.self_value: _Cell | None = None


class _Cell:
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

    def of(self, setting: Setting) -> _Cell:
        """The same, with the setting of another place."""
        return _Cell(setting, self.level, self.reads, self.open, self.origin, auto=self.auto)

    def is_like(self, other: _Cell) -> bool:
        """Whether whoever reads it finds nothing that is not in the other, too."""
        return (
            self.level is other.level
            and self.auto is other.auto
            and [*self.reads] == [*other.reads]
            and self.open == other.open
            and are_one(self.setting, other.setting)
            and are_one_place(self.origin, other.origin)
        )


# What the statements about a field come to, the field without what the framework forces on it,
# and the field.
_SAID, _BASE, _FINAL = "said", "base", "final"
# Of a computation that gives several fields.
_GROUP = "group"

# What is looked for in the files: where a field would be written.
_HOME = "home"

# No reads, and no open changes.
_NONE: MappingABC[Any, Any] = {}


def _option_field(name: str) -> Any:
    """The field that an option of the user decides on."""
    for whole in (f.versions, f.model.dims):
        if name.startswith(f"{whole}."):
            return whole
    return name


class _Readers:
    """Of each field that is read by others those others: what changes with it.

    Cells are only added, and stay as they were computed. Those of a run that is a change of another are mostly the
    other's, and so is who reads whom; a field that is said to be read by one that has been computed anew, and no longer
    reads it, is but computed once more.
    """

    __slots__ = ("_cells", "_earlier", "_found", "_seen")

    def __init__(
        self, cells: MappingABC[str, dict[Any, _Cell]], earlier: _Readers | None = None
    ) -> None:
        self._cells = cells
        self._found: dict[Any, dict[Any, None]] = {}
        self._earlier: tuple[dict[Any, dict[Any, None]], ...] = ()
        # The first cells of each tier whose reads are known.
        self._seen = dict.fromkeys(cells, 0)
        if earlier is not None:
            self._earlier = (earlier._found, *earlier._earlier)
            self._seen = {tier: len(known) for tier, known in cells.items()}

    def of(self, cells: MappingABC[str, dict[Any, _Cell]]) -> _Readers:
        """Of cells that were taken over from these, all of which were looked at: the same, and nothing of them apart."""
        made = _Readers(cells)
        made._found, made._earlier = self._found, self._earlier
        made._seen = {tier: len(known) for tier, known in cells.items()}
        return made

    def dependents(self, fields: Iterable[Any]) -> set[Any]:
        """The fields, and all that hang on them."""
        self._look()
        known = (self._found, *self._earlier)
        affected: set[Any] = set()
        todo = list(fields)
        while todo:
            field = todo.pop()
            if field not in affected:
                affected.add(field)
                for readers in known:
                    todo += readers.get(field, ())
        return affected

    def of_one(self, fields: Iterable[Any]) -> set[Any]:
        """What reads one of some fields itself."""
        self._look()
        known = (self._found, *self._earlier)
        return {reader for field in fields for found in known for reader in found.get(field, ())}

    def _look(self) -> None:
        """Note what cells read that have been added."""
        found, based = self._found, self._cells[_BASE]
        for tier, cells in self._cells.items():
            # What was added stands last: of a change of a run some cells behind hundreds that it shares with it.
            for field, cell in islice(reversed(cells.items()), len(cells) - self._seen[tier]):
                if tier == _FINAL and cell is based.get(field):
                    continue  # nothing is forced on it, as on most
                for read in cell.reads:
                    readers = found.get(read)
                    if readers is None:
                        found[read] = {field: None}
                    else:
                        readers[field] = None
            self._seen[tier] = len(cells)


class Cells:
    """The fields of one run. Not thread-safe."""

    def __init__(self, given: Given, meaning: Meaning, known: Surroundings) -> None:
        self._given = given
        self.meaning = meaning
        self.known = known
        self.wished: Wishes = {}
        """Of a changed run: what its files would have to say, in the dialect's own fields."""
        self._cells: dict[str, dict[Any, _Cell]] = {_SAID: {}, _BASE: {}, _FINAL: {}}
        self._groups: dict[int, tuple[Derivation, MappingABC[Any, Any], _Frame]] = {}
        self._trail: list[_Frame] = []
        self._under_way: set[tuple[Any, str]] = set()
        self._made: tuple[Plan, MappingABC[str, Any]] | None = None
        self._near: Cells | None = None
        self._affected: Collection[Any] | None = None
        """Of a changed run, the fields that may be otherwise than in the run that it is a change of; ``None`` where
        not all of that had been computed, but what its plan is made of."""
        self._start: tuple[Plan, MappingABC[str, Any]] = (Plan(), _NONE)
        """A plan that this one is like, and what it is made of."""
        self._moved: Collection[Any] | None = None
        """The leaves of the plan that may be otherwise than there; ``None`` are all that have a value."""
        self._readers = _Readers(self._cells)
        self._looks: dict[Hashable, tuple[Callable[[Given], Any], set[Any]]] = {}
        """What was looked for in the files besides what they say of fields, how, and for which fields."""
        self._whole: set[Any] = set()
        """The fields for which all of them were looked at."""
        self._placed: dict[Any, set[Any]] = {}
        """Fields of which not the value alone was read, and for which others."""

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
        return self._read(field, _FINAL).value  # type: ignore[no-any-return]

    def get(self, field: T | None, otherwise: T) -> T:
        """The value of a field, ``otherwise`` where it is not known."""
        value = self[field]
        return otherwise if value is None else value

    def base(self, field: T) -> T:
        """The value of a field before the framework forces another on it (``override``)."""
        return self._read(field, _BASE).value  # type: ignore[no-any-return]

    def says(self, field: Any) -> bool:
        """Whether a file or an option sets the field (not a default, not a derivation)."""
        setting = self._read(field, _SAID).setting
        return setting is not None and setting.origin.kind in ("explicit", "option")

    def is_unread(self, field: Any) -> bool:
        """Whether the field is set to something that cannot be read statically; who asks so and
        hears yes is as weak."""
        cell = self._read(field, _SAID)
        return cell.setting is None and cell.origin is not None

    def mentions(self, field: Any) -> bool:
        """Whether anybody sets the field, to what we can read or not."""
        cell = self._read(field, _SAID, weakens=False)
        return cell.setting is not None or cell.origin is not None

    def is_auto(self, field: Any) -> bool:
        """Whether the field's key says ``"auto"``: somebody else's value is taken."""
        return self._read(field, _SAID, weakens=False).auto

    def otherwise(self, field: T | None, value: T) -> T:
        """The value of a field, or where it cannot be read ``value``, which is then assumed."""
        cell = self._read(field, _SAID, weakens=False)
        if cell.setting is not None or cell.origin is None:
            return self.get(field, value)
        if self._trail:
            frame = self._trail[-1]
            frame.level = max(frame.level, Level.ASSUMED)
        return value

    def setting(self, field: Any) -> Setting | None:
        """Value, place and evidence of a field; ``None`` where it has no value."""
        if self._trail:
            self._note(self._placed.setdefault(field, set()))
        return self._read(field, _FINAL).setting

    def said(self, field: Any) -> Said:
        """What the files and the options come to say of a field."""
        cell = self._read(field, _SAID)
        return cell.setting or cell.origin

    def stated(self, field: Any) -> Said:
        """What the files say of a field, whether or not it counts."""
        if self._trail:
            self._trail[-1].reads[field] = None
        return self._given.said(field)

    def level(self, field: Any) -> Level:
        """How well a field is known; of one without a value, what leaves it open."""
        return self._read(field, _FINAL).level

    def reads(self, field: Any) -> tuple[Any, ...]:
        """What a field was computed from."""
        return tuple(self._read(field, _FINAL).reads)

    def roots(self, field: Any, but: Collection[Any] = ()) -> tuple[Any, ...]:
        """The fields where the weakness of one begins: no field that they read is as weak.

        Fields in ``but`` are no roots, nor are those that are as weak for nothing else; what is assumed itself is."""
        level = self.level(field)
        found: dict[Any, None] = {}
        seen: set[Any] = set()
        todo = [field]
        while todo:
            each = todo.pop()
            if each in seen:
                continue
            seen.add(each)
            weak = [read for read in self.reads(each) if self.level(read) >= level]
            others = [read for read in weak if read not in but]
            todo += others
            if not weak or (not others and self._is_assumed(each)):
                found[each] = None
        return tuple(found)

    def _is_assumed(self, field: Any) -> bool:
        """Whether a field's own value is an assumption, whatever it was computed from."""
        setting = self.setting(field)
        return setting is not None and setting.origin.kind == "assumed"

    # -- the files themselves ----------------------------------------------------------

    @property
    def given(self) -> Given:
        """What the files say. Who looks at it while a field is computed hangs on all of them."""
        if self._trail:
            self._note(self._whole)
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

    def block_with(self, field: Any) -> Block | None:
        """The block of highest precedence whose table can write the field."""
        return self._look((_HOME, field), partial(Given.block_with, field=field))

    def _look(self, what: Hashable, find: Callable[[Given], T]) -> T:
        """What there is to find in the files; who looks for it while a field is computed is noted."""
        if self._trail:
            self._note(self._looks.setdefault(what, (find, set()))[1])
        return find(self._given)

    def _note(self, fields: set[Any]) -> None:
        """Count what is being computed among some fields."""
        frame = self._trail[-1]
        if frame.tier == _GROUP:
            fields.update(frame.field)
        else:
            fields.add(frame.field)

    # -- libraries -------------------------------------------------------------------

    def version(self, package: str) -> Release | None:
        """The release of a library that the run's project pins."""
        return release_of((self[f.versions] or {}).get(package))

    def oldest(self, package: str) -> Release:
        """The oldest release of a library that may run; ``()`` where no file tells one."""
        return self.version(package) or self._reach(package)[0]

    def made(self, change: LibraryChange) -> bool | None:
        """Whether the library that runs has made a change; ``None`` where nobody pins it and both
        are possible."""
        known = self.version(change.package)
        if known is not None:
            return known >= change.since
        oldest, beyond = self._reach(change.package)
        if change.since <= oldest:
            return True
        return False if change.since >= beyond else None

    def surely_made(self, change: LibraryChange) -> bool | None:
        """The same where frameworks that nobody pins may be of any release, and not the newest: what a program is said to
        end of has to be certain."""
        from oomlint.dialects.common.fields import library

        known = self.version(change.package)
        if known is not None:
            return known >= change.since
        oldest, beyond = (self[library.sure_bounds] or {}).get(change.package, _ANY)
        if change.since <= oldest:
            return True
        return False if change.since >= beyond else None

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

    def _reach(self, package: str) -> tuple[Release, Release]:
        from oomlint.dialects.common.fields import library

        reach = self[library.bounds] or {}
        return reach.get(package, _ANY)

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
        computed = self._cells[_FINAL]
        found: dict[Any, Setting] = {}
        fields: Iterable[Any] = self.fields
        if self._near is not None and self._affected is not None:
            # The others are those of the run that this one is a change of.
            found.update(self._near.settings)
            fields = self._affected
        for field in fields:
            # Mostly they have been computed, and nobody records this.
            cell = None if self._trail else computed.get(field)
            setting = (cell or self._read(field, _FINAL)).setting
            if setting is not None:
                found[field] = setting
            else:
                found.pop(field, None)
        return found

    @property
    def unreadable(self) -> dict[Any, Origin]:
        """Fields that are set to what cannot be read, and whose value nothing else tells."""
        for field in self.fields:
            self._read(field, _FINAL)
        # Those included that nobody speaks of and something was computed from.
        return {
            field: cell.origin
            for field, cell in self._cells[_FINAL].items()
            if cell.setting is None and cell.origin is not None
        }

    @cached_property
    def open(self) -> dict[LibraryChange, bool]:
        """Changes of libraries whose version nobody says, and whether they were taken as made; whatever asked for them
        first, in one order."""
        self.settings  # noqa: B018  the cells are what notes them
        out: dict[LibraryChange, bool] = {}
        for tier in self._cells.values():
            for cell in tier.values():
                if cell.open:
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
            value = self._read(field, _FINAL).value
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
        made._readers = _Readers(made._cells, self._readers)
        return made

    def keep(self, earlier: Cells) -> None:
        """Take over what was computed for the same run when its files stood otherwise, but for what hangs on what has
        changed since: a document that was read anew says each of its fields anew, at new places."""
        if set(self._given.blocks).isdisjoint(earlier._given.blocks):
            return
        if self.meaning is not earlier.meaning or not self.known.answer_like(earlier.known):
            return
        differing = self._given.differing(earlier._given)
        affected = earlier._readers.dependents(differing.fields)
        self._hold(earlier, affected)
        self._move(differing)
        self._looks, self._whole, self._placed = earlier._looks, earlier._whole, earlier._placed
        again = (
            self._whole if self._given.blocks != earlier._given.blocks else (),
            *(
                each
                for find, each in self._looks.values()
                if find(self._given) != find(earlier._given)
            ),
            *(self._placed.get(field, ()) for field in differing.moved),
        )
        affected = affected.union(*again, self._compute_again(set().union(*again)))
        if earlier._made is not None:
            self._start, self._moved = earlier._made, leaf_paths().intersection(affected)

    def _move(self, differing: Differing) -> None:
        """Let fields of which nothing is said be of the blocks that could say them now."""
        for tier in (_BASE, _FINAL):
            cells = self._cells[tier]
            for field in differing.moved:
                cell = cells.get(field)
                if cell is not None and cell.setting is not None:
                    cells[field] = cell.of(elsewhere(cell.setting, differing.instead))

    def _compute_again(self, fields: AbstractSet[Any]) -> AbstractSet[Any]:
        """Compute fields anew, and where one is not as it was, what hangs on it; these."""
        before = [
            (tier, field, cells[field])
            for tier, cells in self._cells.items()
            for field in fields
            if field in cells
        ]
        self._hold(self, fields)
        changed = {field for tier, field, was in before if not self._read(field, tier).is_like(was)}
        # One that was computed just now is so once more if it hangs on another.
        affected = self._readers.dependents(self._readers.of_one(changed))
        if affected:
            self._hold(self, affected)
        return affected

    def _hold(self, other: Cells, but: AbstractSet[Any]) -> None:
        """Have what was computed of another's fields, all of which its readers know of, ``but`` of these."""
        for tier, cells in other._cells.items():
            self._cells[tier] = kept = cells.copy()
            for field in but:
                kept.pop(field, None)
        self._groups = {
            key: group for key, group in other._groups.items() if but.isdisjoint(group[0].fields)
        }
        self._readers = other._readers.of(self._cells)

    # -- computing -------------------------------------------------------------------

    def _read(self, field: Any, tier: str, *, weakens: bool = True) -> _Cell:
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

    def _compute(self, field: Any, tier: str) -> _Cell:
        if tier == _FINAL and not self.meaning.overrides(field):
            cell = self._cells[_BASE].get(field) or self._compute(field, _BASE)
        elif tier == _SAID and self._is_silent(field):
            cell = _UNSAID
        else:
            cell = self._computed(field, tier)
        self._cells[tier][field] = cell
        return cell

    def _is_silent(self, field: Any) -> bool:
        """Whether nothing is said of a field, as of most, and nobody makes anything of that."""
        if self._given.said(field) is not None:
            return False
        unsaid = self.meaning.unsaid_of(field)
        if not unsaid:  # of most fields nobody has to be asked
            return unsaid is not None
        return not any(field in self._left_unsaid(each, field) for each in unsaid)

    def _left_unsaid(self, find: Unsaid, field: Any) -> Container[Any]:
        """The fields that a reader makes something of although nothing is said of them, for one of whom it is asked."""
        looked = self._looks.get(find)
        if looked is None:
            looked = self._looks[find] = (partial(Given.once, function=find), set())
        look, asking = looked
        asking.add(field)
        found: Container[Any] = look(self._given)
        return found

    def _computed(self, field: Any, tier: str) -> _Cell:
        """A cell for which others may have to be read."""
        key = (field, tier)
        if key in self._under_way:
            raise CircularDerivation(self._circle(field, tier))
        frame = _Frame(field, tier)
        self._trail.append(frame)
        self._under_way.add(key)
        try:
            if tier == _SAID:
                return self._statement(field, frame)
            if tier == _BASE:
                return self._based(field, frame)
            return self._forced(field, frame)
        finally:
            self._under_way.discard(key)
            self._trail.pop()

    def _circle(self, field: Any, tier: str) -> str:
        """How a computation that is under way has come to its own field again."""
        fields = [each.field for each in self._trail if each.tier in (tier, _GROUP)]
        return " -> ".join(map(str, (*fields[fields.index(field) :], field)))

    def _statement(self, field: Any, frame: _Frame) -> _Cell:
        said = self._given.said(field)
        for reader in self.meaning.readers_of(field):
            said = reader(self, field, said)
        return _as_said(said, frame.level, frame.reads, frame.open)

    def _based(self, field: Any, frame: _Frame) -> _Cell:
        said = self._read(field, _SAID, weakens=False)
        frame.reads.update(said.reads)
        if said.setting is not None or said.origin is not None:
            return _Cell(said.setting, said.level, frame.reads, frame.open, said.origin)
        if said.level > Level.DEFAULT:
            frame.level = said.level
        row_is_due = field in self._given.defaults and not said.auto
        for derivation in self.meaning.chain(field):
            if row_is_due and rank_of(derivation) > ROW_DEFAULTS:
                row_is_due = False
                row, setting = self._given.defaults[field]
                cell = self._row_default(field, row, setting, frame)
                if cell is not None:
                    return cell
            found = self._derived(field, derivation, frame)
            if found is not None:
                return found
        if row_is_due:
            row, setting = self._given.defaults[field]
            cell = self._row_default(field, row, setting, frame)
            if cell is not None:
                return cell
        return _Cell(None, max(frame.level, Level.DEFAULT), frame.reads, frame.open)

    def _row_default(self, field: Any, row: Row, setting: Setting, frame: _Frame) -> _Cell | None:
        """The default of a table's row, known as well as it is that nothing else says the key."""
        frame.level = max(frame.level, setting.level)
        return self._defaulted(field, setting.value, setting.origin, row.changes, frame)

    def _defaulted(
        self,
        field: Any,
        value: Any,
        origin: Origin,
        changes: Iterable[LibraryChange],
        frame: _Frame,
    ) -> _Cell | None:
        """A default of the framework, as the release of its library has it."""
        for change in sorted(changes, key=lambda c: c.since, reverse=True):
            if not self.has(change):
                value, origin = change.was, replace(origin, source=change.source)
        if value is None:
            return None
        level = max(frame.level, Level.DEFAULT)
        return _Cell(Setting(value, origin, (), level), level, frame.reads, frame.open)

    def _derived(self, field: Any, derivation: Derivation, frame: _Frame) -> _Cell | None:
        value, source, is_assumed = self._result(field, derivation, frame)
        if value is None:
            return None
        block = self._given.block_with(field)
        if derivation.rank == "default":
            origin = Origin("default", block, source=source)
            return self._defaulted(field, value, origin, derivation.changes, frame)
        level = frame.level
        if is_assumed:
            kind: Any = "assumed"
            level = max(level, Level.ASSUMED)
        elif derivation.rank == "derive":
            kind = "derived"
            level = max(level, Level.STATED if frame.reads else Level.DEFAULT)
        elif derivation.rank == "fact":
            kind, level, block = "catalog", max(level, Level.FACT), None
        else:
            kind, level = "assumed", max(level, Level.ASSUMED)
        origin = Origin(kind, block, source=source, inputs=tuple(frame.reads))
        return _Cell(Setting(value, origin, (), level), level, frame.reads, frame.open)

    def _result(self, field: Any, derivation: Derivation, frame: _Frame) -> tuple[Any, str, bool]:
        """What a derivation gives for a field, its source, and whether it is a guess; its reads
        count for the computation under way."""
        if len(derivation.fields) == 1:
            value = derivation.compute(self)
        else:
            value = self._grouped(field, derivation, frame)
        if isinstance(value, Sourced):
            return value.value, value.source, value.is_assumed
        return value, derivation.source, False

    def _grouped(self, field: Any, derivation: Derivation, frame: _Frame) -> Any:
        key = id(derivation)
        if key not in self._groups:
            forces = derivation.fields if derivation.rank == "override" else ()
            inner = _Frame(derivation.fields, _GROUP, forces)
            self._trail.append(inner)
            try:
                found = derivation.compute(self) or {}
            finally:
                self._trail.pop()
            strange = found.keys() - set(derivation.fields)
            if strange:
                raise TypeError(f"{derivation.name} does not declare {sorted(strange)}")
            self._groups[key] = (derivation, found, inner)
        _, found, inner = self._groups[key]
        reads = inner.reads
        if field in reads:
            reads = {read: None for read in reads if read != field}
        frame.reads.update(reads)
        frame.level = max(frame.level, inner.level)
        return found.get(field)

    def _forced(self, field: Any, frame: _Frame) -> _Cell:
        cell = self._read(field, _BASE, weakens=False)
        for derivation in self.meaning.overrides(field):
            frame.reads = dict(cell.reads)
            frame.level = Level.MEASURED
            frame.self_value = cell
            value, source, is_assumed = self._result(field, derivation, frame)
            noted = {**cell.open, **frame.open}
            earlier = cell.setting
            if value is None:
                # Whether the framework forces anything may hang on what was not understood.
                level = max(cell.level, frame.level) if frame.level is Level.UNREAD else cell.level
                setting = None if earlier is None else _at(earlier, level)
                cell = _Cell(setting, level, frame.reads, noted, cell.origin)
                continue
            level = max(frame.level, Level.STATED if frame.reads else Level.DEFAULT)
            if value is NOTHING:
                cell = _Cell(None, level, frame.reads, noted)
                continue
            shadowed = () if earlier is None else (earlier, *earlier.shadowed)
            kind: Any = "derived"
            if is_assumed:
                kind, level = "assumed", max(level, Level.ASSUMED)
            origin = Origin(
                kind, self._given.block_with(field), source=source, inputs=tuple(frame.reads)
            )
            cell = _Cell(
                Setting(value, origin, shadowed, level), level, frame.reads, noted, cell.origin
            )
        return cell


def _as_said(
    said: Said,
    level: Level = Level.MEASURED,
    reads: MappingABC[Any, None] = _NONE,
    open_: MappingABC[LibraryChange, bool] = _NONE,
) -> _Cell:
    """What is said of a field, as a cell that was found by reading others, known so well."""
    if isinstance(said, Setting):
        level = max(level, said.level)
        return _Cell(_at(said, level), level, reads, open_)
    if isinstance(said, Left):
        return _Cell(None, max(level, Level.DEFAULT), reads, open_, auto=True)
    if said is not None:
        return _Cell(None, Level.UNREAD, reads, open_, said)
    return _Cell(None, max(level, Level.DEFAULT), reads, open_)


_UNSAID = _as_said(None)


def _said_in_order(change: LibraryChange) -> tuple[object, ...]:
    return change.package, change.since, change.before
