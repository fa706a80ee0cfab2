"""The probability that a need which was predicted passes a limit.

The need is taken to be spread around its prediction by a logistic law in its logarithm, wider where
the prediction's own bounds are wider:

    risk = 1 / (1 + exp(-(LEVEL + SLOPE * ln(peak / limit) / width)))
    width = hypot(LEAST_WIDTH, ln(high / low) / 2)

so that it is a little under a half where the need is just the limit: a prediction counts all that a
run may hold at once. What else the run may be (shorter samples than allowed, another release, sharded by a
launcher that is not here) is no spread but a second reading, with a weight of its own
(:mod:`oomlint.judgement.doubts`).
"""

from __future__ import annotations

from math import exp, hypot, log
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from oomlint.memory import DeviceEstimate, Estimate, HostEstimate

LEVEL = -0.2
SLOPE = 3.0
LEAST_WIDTH = 0.15

# Beyond it the answer is the same to more digits than anybody reads.
_SURE = 30.0


def probability(peak: float, low: float, high: float, limit: float) -> float:
    """The probability that a need passes ``limit``, of a prediction with its bounds, all in bytes."""
    if peak <= 0:
        return 0.0
    if limit <= 0:
        return 1.0
    low, high = max(low, 0.05 * peak), max(high, peak)
    width = hypot(LEAST_WIDTH, log(high / low) / 2)
    exponent = LEVEL + SLOPE * log(peak / limit) / width
    return 1.0 / (1.0 + exp(-max(-_SURE, min(_SURE, exponent))))


def risk_in(
    estimate: Estimate, resource: Literal["gpu", "host"], limit: int, phase: str | None = None
) -> float | None:
    """The probability that a need passes a limit, in bytes, if it is as estimated."""
    device: DeviceEstimate | HostEstimate = estimate.gpu if resource == "gpu" else estimate.host
    return risk_of_need(device, device.peak_bytes if phase is None else device.phases[phase], limit)


def risk_of_need(
    device: DeviceEstimate | HostEstimate, need: float | None, limit: float
) -> float | None:
    """The probability that ``need`` bytes, as uncertain as the peak of a device, pass a limit."""
    peak, low, high = device.peak_bytes, device.low_bytes, device.high_bytes
    if need is None or peak is None or low is None or high is None:
        return None
    share = need / peak if peak else 1.0
    return probability(need, low * share, high * share, limit)
