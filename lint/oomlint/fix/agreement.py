"""A change that all runs of a shared file want is made in the file itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias, TypeVar

from msgspec.structs import replace

from oomlint.documents.text import Edit, by_path
from oomlint.fix.edits import Fix, Made, Planned, make_fix
from oomlint.linting.diagnosis import Diagnosis
from oomlint.linting.rule import Applicability

Proposed = TypeVar("Proposed", bound="Diagnosis | Planned")

_Wanted: TypeAlias = tuple[str, tuple[Edit, ...], Applicability]


def with_agreement(proposed: Sequence[Proposed]) -> list[Proposed]:
    """What is proposed, where fixes that every run of a shared file has alike edit that file
    instead of a copy for each."""
    asking: dict[_Wanted, set[str]] = {}
    for each in proposed:
        also = each.fix.also if each.fix is not None else frozenset[str]()
        for made, wanted in _wants(each.fix):
            asking.setdefault(wanted, set()).update((made.run.name, *also))
    return [_agreed(each, asking) for each in proposed] if asking else list(proposed)


def _agreed(each: Proposed, asking: dict[_Wanted, set[str]]) -> Proposed:
    in_place: dict[str, Made] = {}
    others: set[str] = set()
    for made, wanted in _wants(each.fix):
        path, users = wanted[0], made.run.parts.shared[wanted[0]]
        if asking[wanted].issuperset(users):
            in_place[path] = made
            others.update(users)
    if not in_place:
        return each
    made = next(iter(in_place.values()))
    fix = make_fix(made.run, made.proposal, made.resource, agreed=in_place.keys())
    if fix is None:
        return each
    return replace(each, fix=replace(fix, also=frozenset(others - {made.run.name})))


def _wants(fix: Fix | None) -> Iterator[tuple[Made, _Wanted]]:
    """What a fix changes in files that other runs use too."""
    if fix is not None and fix.made is not None:
        made = fix.made
        for path, edits in by_path(made.edits).items():
            if path in made.run.parts.shared:
                yield made, (path, tuple(edits), made.proposal.applicability)
