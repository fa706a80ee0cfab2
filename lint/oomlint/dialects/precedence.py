"""How the cell of a field comes about: what is said of it, else what derivations and defaults give it, and then
what the framework makes of it whatever it was."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from oomlint.dialects.cell import BASE, SAID, Cell, Frame, as_said, known_so_well
from oomlint.dialects.common.fields import ANY_ENDS
from oomlint.dialects.given import Given
from oomlint.dialects.meaning import NOTHING, ROW_DEFAULTS, Derivation, Sourced, rank_of
from oomlint.dialects.setting import Origin, Setting
from oomlint.plan.evidence import Level
from oomlint.plan.library_changes import LibraryChange

if TYPE_CHECKING:
    from oomlint.dialects.cells import Cells


def statement(run: Cells, given: Given, field: Any, frame: Frame) -> Cell:
    """What is said of a field, as the framework takes it."""
    said = given.said(field)
    for reader in run.meaning.readers_of(field):
        said = reader(run, field, said)
    return as_said(said, frame.level, frame.reads, frame.open)


def based(run: Cells, given: Given, field: Any, frame: Frame) -> Cell:
    """A field before the framework forces anything on it."""
    said = run.cell(field, SAID, weakens=False)
    frame.reads.update(said.reads)
    if said.setting is not None or said.origin is not None:
        return Cell(said.setting, said.level, frame.reads, frame.open, said.origin)
    if said.level > Level.DEFAULT:
        frame.level = said.level
    row_is_due = field in given.defaults and not said.auto
    # What keeps one derivation from an answer leaves open whether it is the next one's turn.
    ahead = passed = frame.level
    for derivation in run.meaning.chain(field):
        frame.level = passed
        if row_is_due and rank_of(derivation) > ROW_DEFAULTS:
            row_is_due = False
            cell = _row_default(run, given, field, frame)
            if cell is not None:
                return cell
        if field in ANY_ENDS:
            frame.level = ahead
        found = _derived(run, given, field, derivation, frame)
        if found is not None:
            return found
        passed = max(passed, frame.level)
    frame.level = passed
    if row_is_due:
        cell = _row_default(run, given, field, frame)
        if cell is not None:
            return cell
    return Cell(None, max(frame.level, Level.DEFAULT), frame.reads, frame.open)


def _row_default(run: Cells, given: Given, field: Any, frame: Frame) -> Cell | None:
    """The default of a table's row, known as well as it is that nothing else says the key."""
    row, setting = given.defaults[field]
    frame.level = max(frame.level, setting.level)
    return _defaulted(run, setting.value, setting.origin, row.changes, frame)


def _defaulted(
    run: Cells, value: Any, origin: Origin, changes: Iterable[LibraryChange], frame: Frame
) -> Cell | None:
    """A default of the framework, as the release of its library has it."""
    for change in sorted(changes, key=lambda c: c.since, reverse=True):
        if not run.has(change):
            value, origin = change.was, replace(origin, source=change.source)
    if value is None:
        return None
    level = max(frame.level, Level.DEFAULT)
    return Cell(Setting(value, origin, (), level), level, frame.reads, frame.open)


def _derived(
    run: Cells, given: Given, field: Any, derivation: Derivation, frame: Frame
) -> Cell | None:
    value, source, is_assumed = _result(run, field, derivation, frame)
    if value is None:
        return None
    block = given.block_with(field)
    if derivation.rank == "default":
        origin = Origin("default", block, source=source)
        return _defaulted(run, value, origin, derivation.changes, frame)
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
    return Cell(Setting(value, origin, (), level), level, frame.reads, frame.open)


def forced(run: Cells, given: Given, field: Any, frame: Frame) -> Cell:
    """A field with what the framework makes of it, each override upon the one before."""
    cell = run.cell(field, BASE, weakens=False)
    for derivation in run.meaning.overrides(field):
        frame.reads = dict(cell.reads)
        frame.level = Level.MEASURED
        frame.self_value = cell
        value, source, is_assumed = _result(run, field, derivation, frame)
        noted = {**cell.open, **frame.open}
        earlier = cell.setting
        if value is None:
            # Whether the framework forces anything may hang on what was not understood.
            level = max(cell.level, frame.level) if frame.level is Level.UNREAD else cell.level
            setting = None if earlier is None else known_so_well(earlier, level)
            cell = Cell(setting, level, frame.reads, noted, cell.origin)
            continue
        level = max(frame.level, Level.STATED if frame.reads else Level.DEFAULT)
        if value is NOTHING:
            cell = Cell(None, level, frame.reads, noted)
            continue
        shadowed = () if earlier is None else (earlier, *earlier.shadowed)
        kind: Any = "derived"
        if is_assumed:
            kind, level = "assumed", max(level, Level.ASSUMED)
        origin = Origin(kind, given.block_with(field), source=source, inputs=tuple(frame.reads))
        cell = Cell(Setting(value, origin, shadowed, level), level, frame.reads, noted, cell.origin)
    return cell


def _result(run: Cells, field: Any, derivation: Derivation, frame: Frame) -> tuple[Any, str, bool]:
    """What a derivation gives for a field, its source, and whether it is a guess; its reads
    count for the computation under way."""
    if len(derivation.fields) == 1:
        value = derivation.compute(run)
    else:
        value = _of_group(run, field, derivation, frame)
    if isinstance(value, Sourced):
        return value.value, value.source, value.is_assumed
    return value, derivation.source, False


def _of_group(run: Cells, field: Any, derivation: Derivation, frame: Frame) -> Any:
    """What a derivation of several fields gives for one of them."""
    found, inner = run.group(derivation)
    reads = inner.reads
    if field in reads:
        reads = {read: None for read in reads if read != field}
    frame.reads.update(reads)
    frame.level = max(frame.level, inner.level)
    return found.get(field)
