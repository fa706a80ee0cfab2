"""Batches that use the same files: what each has to know of the others, worked out from what all of them said.

Each is linted first as if the others wanted nothing of what they share. What that leaves open is little: whether all runs of
a file want the same change of it, which of several runs says what they all say of it, and what the other run is called that
uses a file too. Batches for which the answers are others than they were linted under are linted once more under these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from oomlint.judgement import judgement_of
from oomlint.linting.diagnosis import Given, Told
from oomlint.linting.engine import Report, Results, order_of, said_once
from oomlint.linting.rule import Severity
from oomlint.runs.elsewhere import Elsewhere, named

if TYPE_CHECKING:
    from oomlint.fix.agreement import Agreement

Root: TypeAlias = tuple[str, str] | None
"""The kind of what a run begins with, and its file."""
Rank: TypeAlias = tuple[int, int]
"""The place of a run among all, by its root."""
Unanimous: TypeAlias = Mapping[str, frozenset[str]]
"""Files that are shared, and the changes of each that all its runs here ask for."""

_PROPOSED, _PLANNED = 0, 1


class Shares(Struct, frozen=True):
    """What a batch says of the files that it shares with others."""

    users: Mapping[str, tuple[int, ...]]
    """Of each its runs that use it, by their number."""
    taken: frozenset[str]
    """Those that its runs take in."""
    unanimous: tuple[Unanimous, Unanimous]
    """What all its runs ask for by what rules propose, and by plans."""
    roots: tuple[Root, ...]
    """Where the run of each diagnosis begins."""
    is_inseparable: bool
    """Whether they cannot be told without all others: some file is more than a part of its runs, or the others may be
    indifferent to what is wanted of it."""


class Part(Struct, frozen=True):
    """What comes back of a batch."""

    report: Results
    names: tuple[str, ...]
    roots: tuple[Root, ...]
    """Where each run begins."""
    opened: frozenset[str] = frozenset()
    shares: Shares | None = None
    """Of a batch that shares files with others."""


def shares_of(
    proposed: Report, planned: Report | None, roots: Sequence[Root], shared: Sequence[str]
) -> Shares:
    """What a batch says of shared files.

    Args:
        proposed: what rules say.
        planned: the same with what is planned for its runs, ``None`` where nobody asks for them.
        roots: where the run of each diagnosis begins.
        shared: the files.
    """
    runs = proposed.runs
    agreed = proposed.agreements
    later = () if planned is None else planned.agreements[len(agreed) :]
    return Shares(
        users={
            path: users
            for path in shared
            if (users := tuple(n for n, run in enumerate(runs) if path in run.sources))
        },
        taken=proposed.taken.intersection(shared),
        unanimous=(_unanimous(agreed, shared), _unanimous(later, shared)),
        roots=tuple(roots),
        is_inseparable=any(
            claim.path in shared and claim.kind != "part" for run in runs for claim in run.claims
        )
        or any(agreement.is_open(path) for agreement in agreed for path in shared),
    )


def _unanimous(agreements: Sequence[Agreement], shared: Sequence[str]) -> Unanimous:
    return {
        path: frozenset().union(*(agreement.unanimous(path) for agreement in agreements))
        for path in shared
    }


class Group(Struct, frozen=True, dict=True):
    """Batches that share files, by their numbers: what was said of each, and what it was told of the others.

    Findings are the same whatever a batch is told: that decides about their fixes alone.
    """

    shared: tuple[str, ...]
    said: Mapping[int, Part]
    heard: Mapping[int, Elsewhere]
    firsts: Mapping[int, Part]
    """What each said before it was told anything: of what is found, nothing is left out."""
    rank: Callable[[Root], Rank]

    @property
    def is_inseparable(self) -> bool:
        """Whether its batches have to be linted as one."""
        names = [(judgement_of(r).name, n) for n, p in self.said.items() for r in p.report.runs]
        of_several = len(dict(names)) < len(set(names))
        return of_several or any(shares.is_inseparable for shares in self._shares.values())

    def to_hear(self) -> dict[int, Elsewhere]:
        """What batches are to be told that were told otherwise."""
        wanted = self._wanted(_PROPOSED)
        needed = {n: self._needed(n, wanted, None) for n in self._shares}
        if not any(self._is_news(n, what) for n, what in needed.items()):
            planned = self._wanted(_PLANNED)
            if any(planned.values()):
                # Who asks for a change of a file by a plan depends on which of several runs tells of it.
                needed = {n: self._needed(n, wanted, None, tells_all=True) for n in self._shares}
                if not any(self._is_news(n, what) for n, what in needed.items()):
                    needed = {
                        n: self._needed(n, wanted, planned, tells_all=True) for n in self._shares
                    }
        return {n: what for n, what in needed.items() if self._is_news(n, what)}

    @cached_property
    def _shares(self) -> Mapping[int, Shares]:
        return {n: part.shares for n, part in self.said.items() if part.shares is not None}

    @cached_property
    def _taken(self) -> frozenset[str]:
        return frozenset().union(*(shares.taken for shares in self._shares.values()))

    @cached_property
    def _users(self) -> Mapping[str, list[tuple[Rank, int, int]]]:
        """The runs of each file in their order: place, batch and number."""
        found: dict[str, list[tuple[Rank, int, int]]] = {path: [] for path in self.shared}
        for batch, shares in self._shares.items():
            for path, users in shares.users.items():
                roots = self.said[batch].roots
                own = ((self.rank(roots[n]), batch, n) for n in users if self._counts(roots[n]))
                found[path] += own
        return {path: sorted(users) for path, users in found.items()}

    def _counts(self, root: Root) -> bool:
        """Whether a run is one by itself, and not a shared file that others take in."""
        return root is None or root[1] not in self._taken or root[0] != "part"

    def _wanted(self, level: int) -> Mapping[str, frozenset[str]]:
        """The changes of each file that all of its runs want."""
        found = {}
        for path, users in self._users.items():
            batches = {batch for _, batch, _ in users}
            each = [
                self._shares[batch].unanimous[level].get(path, frozenset()) for batch in batches
            ]
            found[path] = frozenset[str]() if len(each) < 2 else each[0].intersection(*each[1:])
        return found

    @cached_property
    def _tellers(self) -> Mapping[str, int]:
        """What is found in shared files, and the batch of the run that tells it."""
        found: dict[str, tuple[tuple[int, Rank], int]] = {}
        for batch in self._shares:
            for each, root in self._about_shared(self.firsts[batch]):
                key, turn = said_once(each.finding), (self._turn(each, root), batch)
                found[key] = min(found.get(key, turn), turn)
        return {key: batch for key, (_, batch) in found.items()}

    def _turn(self, told: Told, root: Root) -> tuple[int, Rank]:
        """By which one of several that say the same comes first: of the severest the first run's, as within a batch."""
        return -told.finding.severity, self.rank(root)

    def _about_shared(self, part: Part) -> Iterator[tuple[Told, Root]]:
        assert part.shares is not None
        for each, root in zip(part.report.diagnoses, part.shares.roots, strict=True):
            if each.finding.location.path in self.shared and self._counts(root):
                yield each, root

    def _needed(
        self,
        batch: int,
        proposed: Mapping[str, frozenset[str]],
        planned: Mapping[str, frozenset[str]] | None,
        *,
        tells_all: bool = False,
    ) -> Elsewhere:
        """What a batch is to be told; ``planned`` is ``None`` while that is open."""
        shares, heard = self._shares[batch], self.heard[batch]
        files = tuple(
            path
            for path, users in self._users.items()
            if path in shares.users and any(other != batch for _, other, _ in users)
        )
        told = [
            each
            for each, _ in self._about_shared(self.firsts[batch])
            if self._tellers[said_once(each.finding)] != batch
        ]
        if not tells_all and not any(self._decides(each, batch) for each in told):
            told = []

        def words(wanted: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
            return tuple(sorted(word for path in files for word in wanted.get(path, ())))

        return Elsewhere(
            files=files,
            wanted=(words(proposed), heard.wanted[1] if planned is None else words(planned)),
            told=tuple(sorted({said_once(each.finding) for each in told})) or heard.told,
        )

    def _decides(self, told: Told, batch: int) -> bool:
        """Whether the fixes of other findings of a run may depend on one that is told elsewhere: one that leads, one that
        may come to lead, one that says that the run ends at once."""
        finding = told.finding
        if finding.severity is Severity.ERROR and finding.resource is None:
            return True
        if not finding.is_of_need:
            return False
        name = None if told.run is None else judgement_of(told.run).name
        about = (
            each
            for each in self.firsts[batch].report.diagnoses
            if each.run is not None and judgement_of(each.run).name == name
        )
        return told.rule.is_headline or not any(each.rule.is_headline for each in about)

    def _is_news(self, batch: int, what: Elsewhere) -> bool:
        users = self._shares[batch].users
        heard = self.heard[batch]
        known = replace(heard, files=tuple(path for path in heard.files if path in users))
        return what != known

    # -- what is told of it ----------------------------------------------------------------

    def told(self) -> dict[int, Part]:
        """What is told of each batch: of several runs that say the same of a shared file the first does of those
        that say it most severely, all by name."""
        about: list[tuple[tuple[object, ...], tuple[int, Rank], Told]] = []
        out = {}
        for batch, part in self.said.items():
            shares = part.shares
            if shares is None:  # its process died
                out[batch] = part
                continue
            own = []
            for each, root in zip(part.report.diagnoses, shares.roots, strict=True):
                if not self._counts(root):
                    continue
                each = self._by_name(each)
                if each.finding.location.path in self.shared:
                    about.append((order_of(each), self._turn(each, root), each))
                else:
                    own.append(each)
            counted = [n for n, root in enumerate(part.roots) if self._counts(root)]
            report = replace(
                part.report,
                diagnoses=tuple(own),
                runs=tuple(part.report.runs[n] for n in counted),
            )
            out[batch] = replace(part, report=report, roots=tuple(part.roots[n] for n in counted))
        about.sort(key=lambda entry: entry[1])
        distinct: dict[str, tuple[tuple[object, ...], Told]] = {}
        for order, _, each in about:
            distinct.setdefault(said_once(each.finding), (order, each))
        first = min(out)
        shared = [each for _, each in sorted(distinct.values(), key=lambda entry: entry[0])]
        report = out[first].report
        report = replace(report, diagnoses=(*report.diagnoses, *shared))
        return {**out, first: replace(out[first], report=report)}

    def _by_name(self, told: Told) -> Told:
        fix, run = told.fix, told.run
        if fix is None or run is None:
            return told
        own = judgement_of(run).name

        def other(path: str) -> str:
            names = (
                judgement_of(self.said[batch].report.runs[n]).name
                for _, batch, n in self._users.get(path, ())
            )
            return next((name for name in names if name != own), "")

        title = named(fix.title, other)
        reason = None if fix.reason is None else named(fix.reason, other)
        if (title, reason) == (fix.title, fix.reason):
            return told
        return Told(told.finding, run, Given(replace(fix, title=title, reason=reason)))
