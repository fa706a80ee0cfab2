"""The probability that a run dies of a need that was predicted.

A need is taken to be spread around its prediction by a logistic law in its logarithm, wider where the
prediction's own bounds are wider, and some runs die, or live, for reasons that no file tells::

    passes = 1 / (1 + exp(-(level + slope * ln(peak / limit) / width)))
    width = hypot(least_width, ln(high / low) / 2)
    risk = floor + (1 - floor - ceiling) * passes

The numbers were fitted (2026-11-23) to 113 public reports of GPU runs that died or ran, of the half that is
shown, and to 239 rows of published tables of what fits, where the two sets counted alike;
``python -m benchmarks.threads.fit`` prints how they do with later reports. Runs begin to die a little below the limit: allocators leave holes, others use the card too. Of
reports of runs that seemed to have room a fifth died, of such rows of tables none: hence ``floor``.

What else a run may be (shorter samples than allowed, another release, sharded by a launcher that is not
here) is no spread but a second reading, with a weight of its own (:mod:`oomlint.judgement.doubts`).
"""

from __future__ import annotations

from math import exp, hypot, log
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from oomlint.judgement.severity import EVEN

if TYPE_CHECKING:
    from oomlint.memory import DeviceEstimate, Estimate, HostEstimate


class Law(Struct, frozen=True):
    """The numbers of the law. ``floor`` is of the GPU alone: no report tells of a host that was killed
    far below its limit."""

    level: float
    slope: float
    least_width: float
    floor: float
    ceiling: float


LAW = Law(level=1.0, slope=5.5, least_width=0.2, floor=0.10, ceiling=0.03)

# Beyond it the answer is the same to more digits than anybody reads.
_SURE = 30.0


def probability(peak: float, low: float, high: float, limit: float, law: Law = LAW) -> float:
    """The probability that a need passes ``limit``, of a prediction with its bounds, all in bytes."""
    if peak <= 0:
        return 0.0
    if limit <= 0:
        return 1.0
    low, high = max(low, 0.05 * peak), max(high, peak)
    width = hypot(law.least_width, log(high / low) / 2)
    exponent = law.level + law.slope * log(peak / limit) / width
    return 1.0 / (1.0 + exp(-max(-_SURE, min(_SURE, exponent))))


def risk_in(
    estimate: Estimate,
    resource: Literal["gpu", "host"],
    limit: int,
    phase: str | None = None,
    law: Law = LAW,
) -> float | None:
    """The probability that a run dies of a resource, with a limit in bytes, if it is as estimated."""
    device = estimate.of(resource)
    need = device.peak_bytes if phase is None else device.phases[phase]
    where = phase or device.peak_phase
    if where is None:  # Nothing is predicted.
        return None
    engine = (device.parts or {}).get(where, {}).get("engine", 0.0)
    passes = risk_of_need(device, need, limit, law, taken=engine)
    return None if passes is None else _dies(passes, resource, law)


def _dies(passes: float, resource: Literal["gpu", "host"], law: Law) -> float:
    """The probability that a run dies, by the probability that its need passes the limit."""
    floor = law.floor if resource == "gpu" else 0.0
    return floor + (1.0 - floor - law.ceiling) * passes


def holds(
    estimate: Estimate, resource: Literal["gpu", "host"], limit: int, phase: str | None = None
) -> bool:
    """Whether a run that needs what is estimated rather lives than dies of a resource; of one without
    a prediction nobody can say so."""
    risk = risk_in(estimate, resource, limit, phase)
    return risk is not None and risk < EVEN


def has_room(estimate: Estimate, resource: Literal["gpu", "host"], need: float, limit: int) -> bool:
    """The same of so many bytes at one instant, which are as uncertain as the peak that is estimated."""
    device = estimate.of(resource)
    passes = risk_of_need(device, need, limit)
    return passes is not None and _dies(passes, resource, LAW) < EVEN


def risk_of_need(
    device: DeviceEstimate | HostEstimate,
    need: float | None,
    limit: float,
    law: Law = LAW,
    *,
    taken: float = 0.0,
) -> float | None:
    """The probability that ``need`` bytes, as uncertain as the peak of a device, pass a limit; of these
    an engine has ``taken`` some by measure, so that only the rest is uncertain, and has the rest."""
    peak, low, high = device.peak_bytes, device.low_bytes, device.high_bytes
    if need is None or peak is None or low is None or high is None:
        return None
    share = need / peak if peak else 1.0
    least, most = low * share - taken, high * share - taken
    return probability(need - taken, least, most, limit - taken, law)
