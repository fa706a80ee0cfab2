"""A run in trouble as people read it: what it is, the verdict, its causes, the one way out."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from oomlint.dialects.ending import Ending
from oomlint.judgement import Judgement, judgement_of, words
from oomlint.judgement.peak import reckoned_with
from oomlint.judgement.severity import verdict_at
from oomlint.judgement.unread import ENDS
from oomlint.linting.endings import comes_first
from oomlint.linting.engine import Results, Told
from oomlint.linting.headlines import suffices, worst_first
from oomlint.linting.rule import Finding, Severity
from oomlint.report.excerpts import excerpt, finding_lines, fix_lines
from oomlint.report.floods import is_flood, kind, the_same
from oomlint.report.paint import OUTCOME_STYLES, Paint, visible
from oomlint.report.places import LineIndex
from oomlint.report.wrapping import glued, wrapped
from oomlint.wording.amounts import gib

if TYPE_CHECKING:
    from oomlint.fix.edits import Fix

# Of what a verdict rests on, so much is told.
_MOST_WEAK = 2


class Trouble(Struct, frozen=True, eq=False, dict=True):
    """A run that rather dies than not, with what is said of it: ``headlines`` first, then its ``causes``, the
    worst first. ``way`` is the fix that makes it fit, a safe one before one that is not. Of one that ends before its first
    step, that comes first; of one that would fit besides, there are no headlines."""

    judgement: Judgement
    headlines: tuple[Told, ...]
    explaining: tuple[Told, ...]
    """What says of which parts the need is, in the report's order."""
    enders: tuple[Told, ...] = ()
    """What says that it ends, in the order in which it gets there."""

    @cached_property
    def causes(self) -> tuple[Told, ...]:
        return tuple(worst_first(self.explaining))

    @property
    def headline(self) -> Told:
        """That of the need most at risk, which is the one whose parts are known."""
        resource = self._resource
        of_it = (each for each in self.headlines if each.finding.resource == resource)
        return next(of_it, self.headlines[0])

    @property
    def leader(self) -> Told:
        """What is told first: the worst cause that a rule names, else, or where that is but a remark on a run in trouble, that
        the run is."""
        if not self.headlines:
            return self.causes[0] if self.causes else self.enders[0]
        is_as_bad = self.causes and self.causes[0].severity >= self.headline.severity
        return self.causes[0] if is_as_bad else self.headline

    @property
    def way(self) -> Told | None:
        """The finding whose fix is the way out: that of the need most at risk, and it suffices; of an engine that
        starves what feeds it."""
        return next((d for d in (*self._feeding, *self._mending) if suffices(d)), None)

    @property
    def _feeding(self) -> list[Told]:
        return [d for d in self.enders if d.finding.starves and d.applicable is not None]

    @property
    def help(self) -> Told | None:
        """Where there is no way out, the first finding whose fix lowers the need most at risk."""
        return next(iter(self._mending), None) if self.way is None else None

    @property
    def hindrance(self) -> str | None:
        """Why the first fix of the need most at risk that cannot be written cannot, if there is one."""
        found = (*self.headlines, *self.causes)
        fixes = (d.fix for d in found if d.finding.resource == self._resource)
        return next((fix.reason for fix in fixes if fix is not None and fix.reason), None)

    @property
    def shown(self) -> Told | None:
        """Where no fix is one to write unasked, the first that lowers the need most at risk, which is only shown."""
        if self._mending:
            return None
        found = (*self.headlines, *self.causes)
        of_it = (d for d in found if d.finding.resource == self._resource)
        return next((d for d in of_it if d.fix is not None), None)

    @property
    def _mending(self) -> list[Told]:
        found = [
            (d.applicable.applicability, d)
            for d in (*self.headlines, *self.causes)
            if d.finding.resource == self._resource and d.applicable is not None
        ]
        return [d for _, d in sorted(found, key=lambda each: -each[0])]

    @property
    def _resource(self) -> str | None:
        return self.judgement.peaks[0].resource if self.judgement.peaks else None


def troubles(report: Results) -> list[Trouble]:
    """The runs in trouble, in the report's order."""
    found = []
    said: dict[str, list[Told]] = {}
    for diagnosis in report.diagnoses:
        if diagnosis.run is not None:
            said.setdefault(diagnosis.run.name, []).append(diagnosis)
    for run in report.runs:
        about, judgement = said.get(run.name, ()), judgement_of(run)
        headlines = tuple(d for d in about if d.rule.is_headline)
        enders = _enders(judgement, about)
        worst = max((each.severity for each in headlines), default=None)
        if worst is not None and (worst > Severity.INFO or judgement.is_lost or enders):
            # Of a run that is sure to die, what a remark says its need comes of was not read for sure.
            least = Severity.WARNING if worst is Severity.ERROR else Severity.INFO
            causes = (
                d
                for d in about
                if d not in headlines and d not in enders
                and d.severity >= least and is_cause(d.finding, judgement)
            )  # fmt: skip
            found.append(Trouble(judgement, headlines, tuple(causes), enders))
        elif enders:
            found.append(Trouble(judgement, (), (), enders))
    return found


def _enders(judgement: Judgement, about: Sequence[Told]) -> tuple[Told, ...]:
    """The findings on a run that tell of what ends it, each once."""
    found = (
        next((d for d in about if d.finding.ends is not None and _tells(d, each)), None)
        for each in judgement.endings
    )
    return tuple(dict.fromkeys(each for each in found if each is not None))


def _tells(diagnosis: Told, ending: Ending) -> bool:
    return diagnosis.rule.code == ending.code and diagnosis.finding.location == ending.at


def ways_in(report: Results) -> Mapping[str, Fix]:
    """Run → the one way out of its trouble: the plan that its headline carries, or the fix of a rule that
    is enough."""
    found = ((trouble.judgement.name, trouble.way) for trouble in troubles(report))
    return {
        name: way.fix
        for name, way in found
        if way is not None and way.fix is not None and way.fix.edits
    }


def is_cause(finding: Finding, judgement: Judgement) -> bool:
    """Whether a finding says what a need at risk comes of. Of a run that is not sure to die such findings are remarks
    (:func:`oomlint.judgement.severity.of_cause`)."""
    least = Severity.INFO if judgement.is_in_trouble else Severity.WARNING
    return finding.resource in ("gpu", "host") and finding.severity >= least


def alike_runs(found: Sequence[Trouble]) -> Iterator[tuple[Trouble, Sequence[Trouble]]]:
    """The runs in trouble in their order, each with those that are told with it: many that end of the same cause, and of
    which the same is to be said once that is mended."""
    groups: dict[Hashable, list[Trouble]] = {}
    for each in found:
        groups.setdefault(_kind(each), []).append(each)
    for each in found:
        group = groups[_kind(each)]
        if not is_flood([other.enders[0] for other in group if other.enders]):
            yield each, ()
        elif each is group[0]:
            yield each, group[1:]


def _kind(trouble: Trouble) -> Hashable:
    judged = trouble.judgement
    hardware = None if judged.hardware is None else judged.hardware.name
    return tuple(map(kind, trouble.enders)) or id(trouble), hardware, words.of_memory(judged)


def block(
    trouble: Trouble,
    places: LineIndex,
    paint: Paint,
    width: int,
    *,
    others: Sequence[Trouble] = (),
    verbose: bool = False,
) -> Iterator[str]:
    """The lines of a block; ``others`` are runs of which it holds too, ``verbose`` names all files of theirs."""
    judgement = trouble.judgement
    hardware = judgement.hardware
    where = f"   {hardware.name}" if hardware is not None else ""
    more = f" and {len(others)} more runs" if others else ""
    yield f"{paint(visible(judgement.name) + more, 'bold')}{paint(where, 'dim')}"
    yield from _verdict(trouble, paint, width, is_one=not others)
    leader = trouble.leader
    yield ""
    if trouble.enders:
        for number, each in enumerate(trouble.enders):
            yield from finding_lines(each, places, paint, width, indent="  ")
            if others:
                same = [other.enders[number] for other in others]
                yield from wrapped(the_same(same, each, every=verbose), width, "    ", "      ")
            yield from fix_lines(each, paint, width, indent="    ")
        yield from _once_mended(trouble, places, width, is_one=not others)
        return
    yield from _leading(leader, trouble, places, paint, width)
    for diagnosis in trouble.causes:
        if diagnosis is not leader:
            yield from _in_a_line("also", diagnosis, trouble, places, width)
    yield from _way(trouble, paint, width)


def _verdict(trouble: Trouble, paint: Paint, width: int, *, is_one: bool) -> Iterator[str]:
    judgement = trouble.judgement
    if not is_one:
        codes = ", ".join(dict.fromkeys(each.rule.code for each in trouble.enders))
        mended = words.of_memory(judgement)
        they = "," if mended is words.UNKNOWN else " they"
        text = f"{words.ENDS.mark} {words.ENDS.many} ({codes}); once that is mended{they} {mended.many}"
        yield from wrapped(
            text, width, "  ", "    ", paint=partial(paint, style=OUTCOME_STYLES["ends"])
        )
        return
    spoken = judgement.spoken
    is_open = spoken.verdict == "unknown"
    for number, each in enumerate(judgement.peaks):
        style = OUTCOME_STYLES["ends" if spoken.endings else verdict_at(each.risk or 0.0)]
        head = "and" if number else f"{words.mark(spoken)} {_head(trouble)}"
        needs = words.open_need(each) if spoken.endings and is_open else words.need(each)
        text, first = f"{head}: {needs}", "    " if number else "  "
        yield from wrapped(text, width, first, "    ", paint=partial(paint, style=style))
    if judgement.meant is not None:
        yield from wrapped(words.both_readings(judgement), width, "    ", "    ")
    for open_to in dict.fromkeys(filter(None, map(words.up_to, judgement.peaks))):
        yield from wrapped(open_to, width, "    ", "    ")
    card = "" if judgement.hardware is None else words.resting_on_card(judgement.hardware)
    if card:
        yield from wrapped(f"rests on: {card}", width, "    ", "      ")
    peak = judgement.peaks[0] if judgement.peaks else None
    weak = () if spoken.evidence is None else spoken.evidence.rests_on
    told: dict[str, str] = {}
    for basis in (each for each in weak if each.field not in ENDS):
        # The widest swing stands first, and one file that is taken to count is told once.
        told.setdefault(words.basis_words(basis), words.elsewise(basis, peak))
    for text, instead in islice(told.items(), _MOST_WEAK):
        yield from wrapped(f"rests on: {visible(text)}{instead}", width, "    ", "      ")


def _head(trouble: Trouble) -> str:
    """``does not fit``; of a run that ends, by which rules' findings, which follow, and what comes once these are mended."""
    judged = trouble.judgement
    if not trouble.enders:
        return words.once_mended(judged)
    codes = ", ".join(dict.fromkeys(each.rule.code for each in trouble.enders))
    ends = f"{words.ENDS.one} ({codes})"
    return f"{ends}; {words.then(judged)}{words.of_memory(judged).one}"


def _once_mended(trouble: Trouble, places: LineIndex, width: int, *, is_one: bool) -> Iterator[str]:
    """What the run comes to once what ends it is mended, a line each; of several not what each needs."""
    causes = trouble.causes if is_one else ()
    if causes or trouble.judgement.is_lost:
        yield ""
    for each in causes:
        # Loading comes first where it is later that the run ends.
        lead = "also" if comes_first(each.finding, trouble.judgement.endings[0]) else "then"
        yield from _in_a_line(lead, each, trouble, places, width)
    if trouble.judgement.is_lost:
        yield from wrapped("then: `oomlint fit` looks for what makes it fit", width, "  ", "    ")


def _in_a_line(
    lead: str, diagnosis: Told, trouble: Trouble, places: LineIndex, width: int
) -> Iterator[str]:
    at = diagnosis.finding.location
    is_named = at.path == trouble.judgement.name
    where = f"line {places.start(at).line}" if is_named else places.head(at)
    place = glued(f"({diagnosis.rule.code}, {where})")
    yield from wrapped(
        visible(f"{lead}: {diagnosis.finding.message} ") + place, width, "  ", "    "
    )


def _leading(
    leader: Told, trouble: Trouble, places: LineIndex, paint: Paint, width: int
) -> Iterator[str]:
    if leader in trouble.headlines:
        yield from _largest_part(leader, trouble.judgement, places, paint, width)
    else:
        told = {reckoned_with(reading) for reading in trouble.judgement.spoken.because}
        yield from finding_lines(leader, places, paint, width, indent="  ", told=told)


def _largest_part(
    headline: Told, judgement: Judgement, places: LineIndex, paint: Paint, width: int
) -> Iterator[str]:
    """Where no rule names a cause: the largest parts of the need, where the files decide on the first."""
    label = headline.severity.label
    rule = f"{paint(label, label)} {paint(headline.rule.code, 'bold')} {headline.rule.name}:"
    parts = [f"{cause.words} {gib(cause.size)}" for cause in judgement.causes]
    yield from wrapped(f"{rule} {', '.join(parts) or 'many small parts'}", width, "  ", "    ")
    yield from excerpt(headline.finding.location, label, places, paint, width, indent="    ")
    lowered = next((cause for cause in judgement.causes if cause.remedy), None)
    if lowered is not None:
        part = "it" if lowered is judgement.causes[0] else lowered.words
        yield from wrapped(f"what lowers {part}: {lowered.remedy}", width, "    ", "    ")


def _way(trouble: Trouble, paint: Paint, width: int) -> Iterator[str]:
    if trouble.way is not None:
        yield from fix_lines(trouble.way, paint, width, indent="  ")
        return
    if trouble.help is not None:
        yield from fix_lines(trouble.help, paint, width, indent="  ", label="helps, not enough")
    if trouble.shown is not None:
        yield from fix_lines(trouble.shown, paint, width, indent="  ")
    elif trouble.judgement.is_lost:
        why = trouble.hindrance
        none = "that these files can say" if why is None else f"that may be written: {visible(why)}"
        yield from wrapped(
            f"way out: none found {none}; `oomlint fit` tells what else would do",
            width,
            "  ",
            "    ",
        )


def counts(judged: Sequence[Judgement]) -> str:
    """``5 runs: 1 does not fit, 1 probably does not fit, 3 fit``"""
    total = f"{len(judged)} run{'' if len(judged) == 1 else 's'}"
    parts = list(_counted(judged))
    if len(parts) == 1 and len(judged) == 1:
        return f"{total}: {parts[0].removeprefix('1 ')}"
    return f"{total}: {', '.join(parts)}" if parts else total


def _counted(judged: Sequence[Judgement]) -> Iterator[str]:
    """How many runs have each verdict, the worst first; those that have none by what they lack."""
    # A host that is too small kills whatever the GPU is, and what ends a run whatever it needs.
    placed = [each for each in judged if each.endings or _is_placed(each)]
    for wording in words.WORDINGS:
        number = sum(words.wording(each) is wording for each in placed)
        if number:
            yield f"{number} {wording.one if number == 1 else wording.many}"
    left = [each for each in judged if not (each.endings or _is_placed(each))]
    unplaced = [e for e in left if not e.spoken.estimate.unknown]
    if unplaced:
        yield f"{len(unplaced)} without known hardware"
    if len(unplaced) < len(left):
        yield f"{len(left) - len(unplaced)} without a prediction"


def _is_placed(judged: Judgement) -> bool:
    """Whether something is predicted and held against what there is."""
    is_held = judged.hardware is not None or judged.verdict != "unknown"
    return is_held and not judged.spoken.estimate.unknown
