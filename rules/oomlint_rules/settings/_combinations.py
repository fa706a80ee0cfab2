"""Settings that a framework refuses together: how a table of them is written, and what is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from oomlint.dialects.setting import Origin
from oomlint.documents.base import UNKNOWN
from oomlint.linting.rule import Applicability, Finding, Proposal, Rule, Severity, When
from oomlint.plan.library_changes import Release, release_of
from oomlint.runs.run import Run
from oomlint_rules._conditions import may_take, other_reader
from oomlint_rules._fixes import removal


class Combination(Struct, frozen=True):
    """One refusal.

    ``together`` are fields (of the plan or the dialect's own) or keys that are all given and
    not false. ``unless`` are such of which none may be. ``holds`` tests what no key says.
    ``message`` completes "<framework> refuses …", ``details`` say why or what is taken instead;
    ``drop`` is what the fix removes; it is only shown where that is a ``choice``: each of the two may be what
    was meant. ``since`` is the framework's release that has it first, where an
    older one that a project may pin has not.
    """

    together: tuple[Any, ...]
    message: str
    drop: Any = ""
    unless: tuple[Any, ...] = ()
    holds: Callable[[Run], bool] = lambda _run: True
    details: tuple[str, ...] = ()
    since: Release = ()
    choice: bool = False


def refusals(
    rule: Rule, run: Run, table: tuple[Combination, ...], framework: str
) -> Iterator[Finding]:
    """A finding of ``rule`` for each combination of a table that stands in a run of ``framework``,
    as people call it."""
    pinned = release_of(run.plan.versions.get(framework.lower()))
    for combination in _standing(run, table):
        if pinned is not None and pinned < combination.since:
            continue
        place = origin_of(run, combination.drop or combination.together[0])
        doubt = other_reader(run, None if place is None else place.block)
        is_open = (pinned is None and combination.since != ()) or bool(doubt)
        location = place.location if place is not None else None
        yield rule.finding(
            run,
            # The project may run on a release that has no such check yet, or read the file by itself.
            Severity.INFO if is_open else Severity.ERROR,
            f"{framework} refuses {combination.message}",
            at=location if location is not None else combination.together[0],
            details=(*combination.details, *may_take(doubt)),
            proposals=_removal(combination, place),
            ends=When.SETTINGS,
        )


def _removal(combination: Combination, place: Origin | None) -> tuple[Proposal, ...]:
    """The proposal to drop what a combination names for that, if it does."""
    if not combination.drop or place is None:
        return ()
    level = Applicability.DISPLAY if combination.choice else Applicability.UNSAFE
    return removal(f"remove {place.key}", place, level)


def _standing(run: Run, table: tuple[Combination, ...]) -> Iterator[Combination]:
    """The combinations of a table that stand in a run; keys whose value is not known count
    as absent."""
    for combination in table:
        if not all(is_on(value_of(run, name)) for name in combination.together):
            continue
        others = (value_of(run, name) for name in combination.unless)
        if not any(is_on(value) or value is UNKNOWN for value in others) and combination.holds(run):
            yield combination


def is_on(value: Any) -> bool:
    """Whether a value counts as set: false, zero, nothing and the unknown do not."""
    if value is None or value is UNKNOWN or value is False:
        return False
    return value not in (0, "", "none", "no", "false", "False", [], (), {})


def value_of(run: Run, name: Any) -> Any:
    """What is in force for a field, or what a file says under a key that is no field."""
    if name in run.settings:
        return run.settings[name].value
    origin = origin_of(run, name)
    if origin is None or origin.entry is None or origin.block is None:
        return None
    return origin.block.value(origin.entry.value)


def origin_of(run: Run, name: Any) -> Origin | None:
    """Where a field, or a key that is no field, stands."""
    if name in run.settings or name in run.unreadable:
        return run.origin(name)
    for block, _reading in reversed(run.parts.blocks):
        entry = block.find(name) if block.table.section == "training" else None
        if entry is not None:
            return Origin("explicit", block, None, entry)
    return None
