"""Runs tried at what a field may be otherwise: what they need then, and whether that decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from oomlint.hardware import usual_limit
from oomlint.judgement.launch import SHARDED, hangs_on_launch
from oomlint.judgement.plausible import plausible_of
from oomlint.judgement.risk_model import risk_in
from oomlint.judgement.severity import EVEN, LOST, SURE, TIGHT
from oomlint.memory import Estimate
from oomlint.runs.run import Run

_Limited: TypeAlias = Literal["gpu", "host"]


class Trials(Struct, frozen=True):
    """A field at what it plausibly is: the changes, and the estimate at each."""

    changes: tuple[Mapping[Any, Any], ...]
    estimates: tuple[Estimate, ...]

    @classmethod
    def of(cls, run: Run, leaf: Any) -> Trials:
        changes = ({}, *plausible_of(run, leaf))
        if hangs_on_launch(run, leaf):
            # How a model is loaded follows from who launches it.
            return cls(({}, SHARDED), (run.estimate, run.assuming(SHARDED).estimate))
        return cls(changes, tuple(estimate_under(run, change) for change in changes))

    @property
    def swing(self) -> int | None:
        return swing_of(self.estimates)

    @property
    def otherwise(self) -> Mapping[str, tuple[int, int]]:
        """The least and the most that is needed where the field is not what it is taken for."""
        own, *others = self.estimates
        return elsewise(others, peaks_of(own))

    def extreme(self, pick: Any) -> Mapping[Any, Any]:
        """The change with the least, or the most, on the GPU."""
        peaks = [each.gpu.peak_bytes for each in self.estimates]
        known = [n for n, peak in enumerate(peaks) if peak is not None]
        return self.changes[pick(known, key=peaks.__getitem__)] if known else {}


def swing_of(estimates: Iterable[Estimate]) -> int | None:
    """How far the GPU's peak moves over some estimates."""
    known = [peak for each in estimates if (peak := each.gpu.peak_bytes) is not None]
    return max(known) - min(known) if known else None


def peaks_of(estimate: Estimate) -> Mapping[str, int | None]:
    return {"gpu": estimate.gpu.peak_bytes, "host": estimate.host.peak_bytes}


def elsewise(
    estimates: Sequence[Estimate], own: Mapping[str, int | None]
) -> Mapping[str, tuple[int, int]]:
    """The least and the most that a GPU and a host need by those of some estimates, in bytes, by which they need
    another amount than their ``own``."""
    found = {}
    for resource, usual in own.items():
        peaks = (peaks_of(each)[resource] for each in estimates)
        known = [peak for peak in peaks if peak is not None and peak != usual]
        if known:
            found[resource] = (min(known), max(known))
    return found


def estimate_under(run: Run, change: Mapping[Any, Any]) -> Estimate:
    return run.estimated(run.plan.with_values(change) if change else run.plan)


def _risks(run: Run, estimates: Iterable[Estimate]) -> Iterator[tuple[_Limited, list[float]]]:
    """The resources that have a limit and the risks by each estimate, the run's own first; where nobody
    says which GPU, by the largest that most people can have."""
    limits = run.limits
    gpu = usual_limit() if limits.gpu_bytes is None else limits.gpu_bytes
    each: tuple[tuple[_Limited, int | None], ...] = (("gpu", gpu), ("host", limits.host_bytes))
    for resource, limit in each:
        if limit is not None:
            risks = [risk_in(estimate, resource, limit) for estimate in estimates]
            yield resource, [risk for risk in risks if risk is not None]


def decided_in(run: Run, estimates: Sequence[Estimate]) -> frozenset[str]:
    """The resources of which a run rather dies by one of these estimates and not by another."""
    return frozenset(
        resource
        for resource, risks in _risks(run, estimates)
        if len({risk >= EVEN for risk in risks}) > 1
    )


def claimed_in(run: Run, estimates: Sequence[Estimate]) -> frozenset[str]:
    """The resources of which a run surely dies by the first of these estimates, and by another might well live."""
    return frozenset(
        resource
        for resource, risks in _risks(run, estimates)
        if risks and risks[0] >= SURE and min(risks) < LOST
    )


def decided_from(run: Run, risk: float) -> frozenset[str]:
    """The resources that a run dies of with at least this risk. A name is no proof of which model it is, so
    that nothing is more certain than that."""
    found = _risks(run, (run.estimate,))
    return frozenset(resource for resource, risks in found if risks and risks[0] >= risk)


def eased_in(run: Run, estimates: Sequence[Estimate]) -> frozenset[str]:
    """The resources of which there is something to say as the run is taken, and nothing by another of these
    estimates."""
    return frozenset(
        resource
        for resource, risks in _risks(run, estimates)
        if risks and risks[0] >= TIGHT and min(risks) < TIGHT
    )


def estimates_together(run: Run, trials: Iterable[Trials]) -> tuple[Estimate, ...]:
    """The estimates with several fields at once at what weighs least, and at what weighs most."""
    trials = tuple(trials)
    if len(trials) < 2:
        return ()
    heaviest: dict[Any, Any] = {}
    for each in trials:
        heaviest |= each.extreme(max)
    own = estimate_under(run, {})
    return (own, _lightest(run, trials, own), estimate_under(run, heaviest))


def _lightest(run: Run, trials: Sequence[Trials], own: Estimate) -> Estimate:
    """The estimate with each field at what weighs least beside the others: a single rank weighs less where nothing is
    sharded, and more where the shards of several are; that activations are recomputed tells where states no longer hide
    them. Of a run that is not in trouble as it is taken, nothing less weighs."""
    if all(risks[0] < TIGHT for _, risks in _risks(run, (own,)) if risks):
        return own
    changes: Mapping[Any, Any] = {}
    found = own
    for each in trials:
        for change in each.changes[1:]:
            together = {**changes, **change}
            tried = estimate_under(run, together)
            least, peak = found.gpu.peak_bytes, tried.gpu.peak_bytes
            if least is None or (peak is not None and peak < least):
                changes, found = together, tried
    return found
