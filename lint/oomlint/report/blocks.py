"""A run in trouble as people read it: what it is, the verdict, its causes, the one way out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from oomlint.amounts import gib, of_gib, percent
from oomlint.engine import Diagnosis, Report
from oomlint.fix.edits import Fix
from oomlint.judgement import Forecast, Judgement, Peak, judgement_of
from oomlint.judgement.peak import when
from oomlint.precedence import suffices, worst_first
from oomlint.report.excerpts import excerpt, finding_lines, fix_lines
from oomlint.report.paint import Paint, visible
from oomlint.report.places import Places
from oomlint.report.runs import meaning
from oomlint.report.wrapping import wrapped
from oomlint.rule import Applicability, Finding, Severity

_MARKS = {"fits": "✓", "tight": "!", "does_not_fit": "✗", "unknown": "?"}
_STYLES = {"fits": "good", "tight": "tight", "does_not_fit": "bad", "unknown": "dim"}
_HEADS = {"tight": "may not fit", "does_not_fit": "will not fit", "unknown": "unknown"}
_EACH = {"gpu": "per GPU", "host": "of host RAM a node"}


class Trouble(Struct, frozen=True, eq=False):
    """A run that is likely to die, with what is said of it: ``headlines`` first, then its causes, the
    worst first. ``way`` is the fix that makes it fit, a safe one before one that is not."""

    judgement: Judgement
    headlines: tuple[Diagnosis, ...]
    causes: tuple[Diagnosis, ...]

    @property
    def headline(self) -> Diagnosis:
        """That of the need most at risk, which is the one whose parts are known."""
        resource = self._resource
        of_it = (each for each in self.headlines if each.finding.resource == resource)
        return next(of_it, self.headlines[0])

    @property
    def way(self) -> Diagnosis | None:
        """The finding whose fix is the way out: that of the need most at risk, and it suffices."""
        return next((d for d in self._mending if suffices(d)), None)

    @property
    def help(self) -> Diagnosis | None:
        """Where there is no way out, the first finding whose fix lowers the need most at risk."""
        return next(iter(self._mending), None) if self.way is None else None

    @property
    def _mending(self) -> list[Diagnosis]:
        found = [
            (d.fix.applicability, d)
            for d in (*self.headlines, *self.causes)
            if d.finding.resource == self._resource
            and d.fix is not None
            and d.fix.applicability > Applicability.DISPLAY
        ]
        return [d for _, d in sorted(found, key=lambda each: -each[0])]

    @property
    def _resource(self) -> str | None:
        return self.judgement.peaks[0].resource if self.judgement.peaks else None


def troubles(report: Report) -> list[Trouble]:
    """The runs in trouble, in the report's order."""
    found = []
    for run in report.runs:
        about = [d for d in report.diagnoses if d.run is not None and d.run.name == run.name]
        headlines = tuple(d for d in about if d.rule.is_headline)
        if any(headline.severity >= Severity.WARNING for headline in headlines):
            causes = (d for d in about if d not in headlines and is_cause(d.finding))
            found.append(Trouble(judgement_of(run), headlines, tuple(worst_first(causes))))
    return found


def ways_in(report: Report) -> Mapping[str, Fix]:
    """Run → the one way out of its trouble: the plan that its headline carries, or the fix of a rule that
    is enough."""
    found = ((trouble.judgement.name, trouble.way) for trouble in troubles(report))
    return {
        name: way.fix
        for name, way in found
        if way is not None and way.fix is not None and way.fix.edits
    }


def is_cause(finding: Finding) -> bool:
    """Whether a finding says what a need at risk comes of."""
    return finding.resource in ("gpu", "host") and finding.severity >= Severity.WARNING


def block(trouble: Trouble, places: Places, paint: Paint, width: int) -> Iterator[str]:
    """The lines of a block."""
    judgement = trouble.judgement
    hardware = judgement.hardware
    where = f"   {hardware.name}" if hardware is not None else ""
    yield f"{paint(visible(judgement.name), 'bold')}{paint(where, 'dim')}"
    yield from _verdict(judgement, paint, width)
    leader = trouble.causes[0] if trouble.causes else trouble.headline
    yield ""
    yield from _leading(leader, trouble, places, paint, width)
    yield from _others(trouble, leader, places, paint, width)
    yield from _way(trouble, paint, width)


def _verdict(judgement: Judgement, paint: Paint, width: int) -> Iterator[str]:
    spoken = judgement.spoken
    style = _STYLES[spoken.verdict]
    for number, peak in enumerate(judgement.peaks):
        head = f"{_MARKS[spoken.verdict]} {_HEADS[spoken.verdict]}: " if number == 0 else "  and: "
        yield from wrapped(head + _need(peak), width, "  ", "    ", paint=lambda t: paint(t, style))
    if judgement.meant is not None:
        yield from wrapped(_as_written(judgement), width, "    ", "    ")
    weak = [] if spoken.evidence is None else spoken.evidence.rests_on[:2]
    for basis in weak:
        verb = "was not read" if basis.level.word == "unread" else f"is assumed to be {basis.value}"
        swing = f" (moves up to {gib(basis.swing_bytes)})" if basis.swing_bytes else ""
        yield from wrapped(f"rests on: {basis.key} {verb}{swing}", width, "    ", "      ")


def in_trouble(judgement: Judgement) -> str:
    """The verdict on a run in trouble, in one line: what it needs, and by which reading."""
    needs = " and ".join(_need(peak).removeprefix("needs ") for peak in judgement.peaks)
    where = "" if judgement.hardware is None else f" {judgement.hardware.name}"
    text = f"{_HEADS[judgement.verdict]}{where}: needs {needs}"
    return text if judgement.meant is None else f"{text}; {_as_written(judgement)}"


def _need(peak: Peak) -> str:
    assert peak.limit is not None
    assert peak.risk is not None
    need = of_gib(peak.predicted, peak.limit)
    return f"needs {need} {_EACH[peak.resource]} {when(peak.phase)} (risk {percent(peak.risk)})"


def _as_written(judgement: Judgement) -> str:
    """What the files say as they stand, of a run whose misspelt keys are taken for what they mean."""
    written = judgement.written
    return f"{meaning(judgement.spoken)}; as written {gib(written.estimate.gpu.peak_bytes)}: {_word(written)}"


def _word(forecast: Forecast) -> str:
    words = {"fits": "it fits", "tight": "it may not fit", "does_not_fit": "too much"}
    return words.get(forecast.verdict, "unknown whether it fits")


def _leading(
    leader: Diagnosis, trouble: Trouble, places: Places, paint: Paint, width: int
) -> Iterator[str]:
    if leader in trouble.headlines:
        yield from _largest_part(leader, trouble.judgement, places, paint, width)
    else:
        yield from finding_lines(leader, places, paint, width, indent="  ")


def _largest_part(
    headline: Diagnosis, judgement: Judgement, places: Places, paint: Paint, width: int
) -> Iterator[str]:
    """Where no rule names a cause: the largest parts of the need, where the files decide on the first."""
    label = headline.severity.label
    rule = f"{paint(label, label)} {paint(headline.rule.code, 'bold')} {headline.rule.name}:"
    parts = [f"{cause.words} {gib(cause.size)}" for cause in judgement.causes]
    yield from wrapped(f"{rule} {', '.join(parts) or 'many small parts'}", width, "  ", "    ")
    yield from excerpt(headline.finding.location, label, places, paint, indent="    ")
    if judgement.causes and judgement.causes[0].remedy:
        yield from wrapped(f"what lowers it: {judgement.causes[0].remedy}", width, "    ", "    ")


def _others(
    trouble: Trouble, leader: Diagnosis, places: Places, paint: Paint, width: int
) -> Iterator[str]:
    """What else the need is made of, a line each."""
    for diagnosis in trouble.causes:
        if diagnosis is leader:
            continue
        where = places.head(diagnosis.finding.location)
        text = f"also: {diagnosis.finding.message} ({diagnosis.rule.code}, {where})"
        yield from wrapped(visible(text), width, "  ", "    ")


def _way(trouble: Trouble, paint: Paint, width: int) -> Iterator[str]:
    if trouble.way is not None:
        yield from fix_lines(trouble.way, paint, width, indent="  ")
        return
    if trouble.help is not None:
        yield from fix_lines(trouble.help, paint, width, indent="  ", label="helps, not enough")
    if trouble.judgement.is_lost:
        none = (
            "way out: none found that these files can say; `oomlint fit` tells what else would do"
        )
        yield from wrapped(none, width, "  ", "    ")


def counts(judged: Sequence[Judgement]) -> str:
    """``5 runs: 1 does not fit, 1 may not fit, 3 fit``"""
    numbers = {
        word: sum(j.verdict == word for j in judged)
        for word in ("does_not_fit", "tight", "fits", "unknown")
    }
    total = f"{len(judged)} run{'' if len(judged) == 1 else 's'}"
    unpredicted = sum(bool(j.spoken.estimate.unknown) for j in judged)
    numbers["unknown"] -= unpredicted
    parts = list(_counted(numbers, any(j.hardware is None for j in judged)))
    if unpredicted:
        parts.append(f"{unpredicted} without a prediction")
    if len(judged) == 1:
        return f"{total}: {parts[0].split(' ', 1)[1]}" if parts else total
    return f"{total}: {', '.join(parts)}" if parts else total


def _counted(numbers: dict[str, int], hardware_is_open: bool) -> Iterable[str]:
    for word, one, many in (
        ("does_not_fit", "does not fit", "do not fit"),
        ("tight", "may not fit", "may not fit"),
        ("fits", "fits", "fit"),
    ):
        if numbers[word]:
            yield f"{numbers[word]} {one if numbers[word] == 1 else many}"
    if numbers["unknown"]:
        why = "without known hardware" if hardware_is_open else "unknown"
        yield f"{numbers['unknown']} {why}"
