"""A change that all runs of a shared file want is made in the file itself, and so is one that some want and to which the
others are indifferent: what they do stays the same to the last setting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cached_property, partial
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from oomlint.documents.text import Edit, by_path
from oomlint.errors import CannotEdit
from oomlint.fix.edits import CandidateFix, Fix, Made, make_fix
from oomlint.linting.diagnosis import Diagnosis
from oomlint.linting.rule import Applicability, SetFields, Severity
from oomlint.runs.elsewhere import stand_in
from oomlint.runs.run import Run

_Wanted: TypeAlias = tuple[str, tuple[Edit, ...], Applicability]


def with_agreement(
    found: Sequence[Diagnosis], runs: Sequence[Run], elsewhere: Sequence[str] = ()
) -> tuple[list[Diagnosis], Agreement]:
    """What was found in ``runs``, where fixes that every run of a shared file takes edit that file instead of a copy for
    each; and what they agree on. ``elsewhere``: what runs that are linted apart want too (:attr:`Agreement.elsewhere`).

    To ask for the fix of one of the runs that share files is to ask for those of them all; others' are asked alone.
    """
    agreement = Agreement([each for each in found if _shares(each)], runs, frozenset(elsewhere))
    agreed = [
        replace(each, ask=partial(agreement.fix_of, each)) if _shares(each) else each
        for each in found
    ]
    return agreed, agreement


def _shares(diagnosis: Diagnosis) -> bool:
    return diagnosis.run is not None and bool(diagnosis.run.parts.shared)


class Agreement(Struct, frozen=True, eq=False, dict=True):
    """What is proposed for several runs, some of which share files."""

    proposed: Sequence[CandidateFix]
    runs: Sequence[Run] = ()
    elsewhere: Set[str] = frozenset()
    """The changes, as :meth:`unanimous` calls them, that all runs want which are linted apart."""

    @cached_property
    def _by_name(self) -> Mapping[str, Run]:
        return {run.name: run for run in self.runs}

    @cached_property
    def _wishing(self) -> Sequence[CandidateFix]:
        """Those of which it is not known without asking that they change nothing."""
        return [each for each in self.proposed if not _is_idle(each)]

    @cached_property
    def _asking(self) -> Mapping[_Wanted, set[str]]:
        """Each change of a shared file, with the names of the runs that want it."""
        asking: dict[_Wanted, set[str]] = {}
        for each in self._wishing:
            also = each.fix.also if each.fix is not None else frozenset[str]()
            for made, wanted in _wants(each.fix):
                asking.setdefault(wanted, set()).update((made.run.name, *also))
        return asking

    @cached_property
    def _users(self) -> Mapping[str, Set[str]]:
        """Each file that is to be changed, with the runs that use it."""
        return {
            wanted[0]: frozenset(made.run.parts.shared[wanted[0]])
            for each in self._wishing
            for made, wanted in _wants(each.fix)
        }

    @cached_property
    def _without_wish(self) -> Set[str]:
        """The runs that want nothing, whatever is found in them."""
        wishing = {each.run.name for each in self._wishing if each.run is not None}
        return self._by_name.keys() - wishing

    def unanimous(self, path: str) -> frozenset[str]:
        """The changes of a file that all of its runs here ask for, so that those decide which are linted apart: a word
        for each."""
        alike = (
            wanted
            for wanted, asking in self._asking.items()
            if wanted[0] == path and self._users[path] - asking == {stand_in(path)}
        )
        return frozenset(map(_word_for, alike))

    def is_open(self, path: str) -> bool:
        """Whether runs that are linted apart may be indifferent to what one here wants of a file."""
        return any(
            _is_indifferent(made.run, made)
            for each in self._wishing
            for made, wanted in _wants(each.fix)
            if wanted[0] == path
        )

    def _is_agreed(self, wanted: _Wanted, made: Made) -> bool:
        users = frozenset(made.run.parts.shared[wanted[0]])
        # Mostly one of them wants nothing at all and does not stay as it is: what the others want need not be known.
        indifferent = (_is_indifferent(self._by_name[n], made) for n in users & self._without_wish)
        if not all(indifferent):
            return False
        missing = users - self._asking[wanted]
        if missing == {stand_in(wanted[0])}:
            return bool(self.elsewhere) and _word_for(wanted) in self.elsewhere
        return all(_is_indifferent(self._by_name.get(name), made) for name in missing)

    def fix_of(self, each: CandidateFix) -> Fix | None:
        """The fix of one of those that are proposed."""
        in_place: dict[str, Made] = {}
        others: set[str] = set()
        for made, wanted in _wants(each.fix):
            path, users = wanted[0], made.run.parts.shared[wanted[0]]
            if self._is_agreed(wanted, made):
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


def _is_idle(each: CandidateFix) -> bool:
    """Whether a candidate is one that changes nothing: without a fix, or a remark, whose fix is only shown
    (:func:`oomlint.fix.needless.why_unasked`)."""
    if not isinstance(each, Diagnosis) or each.is_planned:
        return False
    return each.severity < Severity.WARNING or not each.finding.proposals


def _is_indifferent(run: Run | None, made: Made) -> bool:
    """Whether a run of the same file is the same with what another wants of it: ``"auto"`` where the trainer passes the
    number that stands there. Of a run that is not known nobody can say."""
    wishes = [wish for wish in made.proposal.wishes if isinstance(wish, SetFields)]
    if run is None or len(wishes) < len(made.proposal.wishes):
        return False
    try:
        changed = run.what_if({f: value for wish in wishes for f, value in wish.values.items()})
    except CannotEdit:
        return False
    return bool(changed.plan == run.plan)


def _word_for(wanted: _Wanted) -> str:
    from hashlib import blake2b  # which loads OpenSSL, and few reports have two runs to agree

    path, edits, applicability = wanted
    said = [(edit.start, edit.end, edit.replacement, edit.creates) for edit in edits]
    text = repr((path, said, int(applicability)))
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
