"""The one judgement of a run: of it everything that people read is a rendering."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from oomlint.judgement.forecast import Forecast, Risk, forecast_of, of_plan
from oomlint.judgement.peak import Peak, judge_gpu, judge_host, read_as
from oomlint.judgement.severity import TIGHT, Outcome, Verdict

if TYPE_CHECKING:
    from oomlint.dialects.ending import Ending
    from oomlint.hardware import Hardware
    from oomlint.judgement.causes import Cause
    from oomlint.plan import Plan
    from oomlint.runs.run import Run


class Judgement(Struct, frozen=True):
    """Whether a run fits, why not, and how sure that is.

    ``written`` is the run as its files stand. Where a key is misspelt, ``meant`` is the run that
    its author has in mind and gets once the key is renamed.
    """

    written: Forecast
    meant: Forecast | None = None
    peaks: tuple[Peak, ...] = ()
    """The needs that are at risk, the riskier first."""
    causes: tuple[Cause, ...] = ()
    """The parts of the need that is most at risk, the largest first."""

    def kept(self, *, bounds: bool) -> Judgement:
        """The same without the run; with the ``bounds`` of its predictions over the releases of libraries, or without for
        those who show none."""
        meant = None if self.meant is None else self.meant.kept(bounds=bounds)
        return replace(self, written=self.written.kept(bounds=bounds), meant=meant)

    @property
    def name(self) -> str:
        return self.written.name

    @property
    def files(self) -> tuple[str, ...]:
        return self.written.files

    @property
    def hardware(self) -> Hardware | None:
        return self.written.hardware

    @property
    def spoken(self) -> Forecast:
        """The reading that findings speak of: what the author means, where a key is misspelt."""
        return self.meant or self.written

    @property
    def verdict(self) -> Verdict:
        """Of the reading that findings speak of."""
        return self.spoken.verdict

    @property
    def endings(self) -> tuple[Ending, ...]:
        """What is sure to end the run as it stands before its first step, in the order in which it gets there."""
        return self.written.endings

    @property
    def is_starved(self) -> bool:
        """Whether it is the engine beside the training that ends the run, for lack of its share."""
        return self.written.is_starved

    @property
    def wants_way(self) -> bool:
        """Whether a run is in trouble for its memory, an engine's share of it included, and nothing else ends it."""
        return self.is_starved if self.endings else self.is_in_trouble

    @property
    def outcome(self) -> Outcome:
        """Of the reading that findings speak of; that the run ends comes first."""
        return self.spoken.outcome

    @property
    def risk(self) -> Risk | None:
        return self.spoken.risk

    @property
    def is_in_trouble(self) -> bool:
        """Whether it is too likely to die for nothing to be said."""
        return self.verdict in ("tight", "does_not_fit")

    @property
    def is_lost(self) -> bool:
        """Whether the run rather dies than not."""
        return self.risk is not None and self.risk.is_lost


def judgement_of(run: Run | Judgement) -> Judgement:
    """The judgement of a run, made once; one that is given is the answer."""
    if isinstance(run, Judgement):
        return run
    known: Judgement | None = run.remembered.get("judgement")
    if known is None:
        written = forecast_of(run)
        meant = None
        if run.intended is not run:
            # A key that is refused ends the run as it stands, whatever is meant by it.
            meant = forecast_of(run.intended, read_as(run), written.endings)
        peaks = tuple(sorted(_at_risk(run), key=_risk, reverse=True))
        known = run.remembered["judgement"] = Judgement(
            written=written,
            meant=meant,
            peaks=peaks,
            causes=_causes_of(run, peaks[0]) if peaks else (),
        )
    return known


def _causes_of(run: Run, peak: Peak) -> tuple[Cause, ...]:
    from oomlint.judgement.causes import causes_of  # most runs fit

    return causes_of(run, peak)


def _at_risk(run: Run) -> Iterator[Peak]:
    for peak in (judge_gpu(run), judge_host(run)):
        if peak is not None and _risk(peak) >= TIGHT:
            yield peak


def _risk(peak: Peak) -> float:
    return peak.risk or 0.0


def judgement_of_plan(plan: Plan, hardware: Hardware | None = None) -> Judgement:
    """The judgement of a plan; ``hardware``, if given, replaces the device that the plan names."""
    return Judgement(of_plan(plan, hardware))
