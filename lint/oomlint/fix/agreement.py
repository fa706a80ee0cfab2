"""A change that all runs of a shared file want is made in the file itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from oomlint.documents.text import Edit, by_path
from oomlint.fix.edits import CandidateFix, Fix, Made, make_fix
from oomlint.linting.diagnosis import Diagnosis
from oomlint.linting.rule import Applicability

_Wanted: TypeAlias = tuple[str, tuple[Edit, ...], Applicability]


def with_agreement(found: Sequence[Diagnosis]) -> list[Diagnosis]:
    """What was found, where fixes that every run of a shared file has alike edit that file instead of a copy for each.

    To ask for the fix of one of the runs that share files is to ask for those of them all; others' are asked alone.
    """
    agreement = Agreement([each for each in found if _shares(each)])
    return [
        replace(each, ask=partial(agreement.fix_of, each)) if _shares(each) else each
        for each in found
    ]


def _shares(diagnosis: Diagnosis) -> bool:
    return diagnosis.run is not None and bool(diagnosis.run.parts.shared)


class Agreement(Struct, frozen=True, eq=False, dict=True):
    """What is proposed for several runs, some of which share files."""

    proposed: Sequence[CandidateFix]

    @cached_property
    def _asking(self) -> Mapping[_Wanted, set[str]]:
        """Each change of a shared file, with the names of the runs that want it."""
        asking: dict[_Wanted, set[str]] = {}
        for each in self.proposed:
            also = each.fix.also if each.fix is not None else frozenset[str]()
            for made, wanted in _wants(each.fix):
                asking.setdefault(wanted, set()).update((made.run.name, *also))
        return asking

    def fix_of(self, each: CandidateFix) -> Fix | None:
        """The fix of one of those that are proposed."""
        in_place: dict[str, Made] = {}
        others: set[str] = set()
        for made, wanted in _wants(each.fix):
            path, users = wanted[0], made.run.parts.shared[wanted[0]]
            if self._asking[wanted].issuperset(users):
                in_place[path] = made
                others.update(users)
        if not in_place:
            return each.fix
        made = next(iter(in_place.values()))
        fix = make_fix(made.run, made.proposal, made.resource, agreed=in_place.keys())
        return each.fix if fix is None else replace(fix, also=frozenset(others - {made.run.name}))


def _wants(fix: Fix | None) -> Iterator[tuple[Made, _Wanted]]:
    """What a fix changes in files that other runs use too."""
    if fix is not None and fix.made is not None:
        made = fix.made
        for path, edits in by_path(made.edits).items():
            if path in made.run.parts.shared:
                yield made, (path, tuple(edits), made.proposal.applicability)
