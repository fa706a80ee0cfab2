"""What a prediction would be with other releases of the libraries that nobody pins.

A run whose project names no version is computed with the newest release of everything. Where an
earlier one has another default with an effect on memory, the bounds of the prediction hold for
both, and an assumption says what differs and by how much.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from msgspec.structs import replace

from oomlint.memory import Assumption, Bounds, DeviceEstimate, Estimate, HostEstimate
from oomlint.plan.library_changes import LibraryChange
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib

# What is not worth a word: less than a hundredth of a peak, or than a tenth of a GiB.
_SHARE, _LEAST = 0.01, 2**30 // 10

Device = TypeVar("Device", DeviceEstimate, HostEstimate)


def over_releases(run: Run) -> tuple[Estimate, tuple[Assumption, ...]]:
    """The estimate of a run, its bounds widened to those of every alternative, and what differs. Of the very run that
    was measured nothing does: whatever it ran with is in the reading."""
    found = run.estimate
    if run.is_measured:
        return found, ()
    others = [(changes, other.estimate) for changes, other in run.alternatives]
    gpu, host = found.gpu, found.host
    for _, other in others:
        gpu, host = _covering(gpu, other.gpu), _covering(host, other.host)
    return replace(found, gpu=gpu, host=host), tuple(_differences(run, found, others))


def _covering(device: Device, other: Device) -> Device:
    low, high = device.low_bytes, device.high_bytes
    if low is None or high is None or other.low_bytes is None or other.high_bytes is None:
        return device
    low, high = min(low, other.low_bytes), max(high, other.high_bytes)
    device = replace(device, low_bytes=low, high_bytes=high)
    if not isinstance(device, DeviceEstimate) or not isinstance(other, DeviceEstimate):
        return device
    return replace(
        device,
        allocated=_of_both(device.allocated, other.allocated),
        reserved=_of_both(device.reserved, other.reserved),
        at_first_sight=_of_both(device.at_first_sight, other.at_first_sight),
    )


def _of_both(bounds: Bounds | None, others: Bounds | None) -> Bounds | None:
    return bounds if bounds is None or others is None else bounds.covering(others)


def _differences(
    run: Run, found: Estimate, others: list[tuple[tuple[LibraryChange, ...], Estimate]]
) -> Iterator[Assumption]:
    """A line for each release on whose other side a peak is another; older ones have the newer
    ones' differences too."""
    package, last = "", found
    for changes, other in others:
        release = changes[0].release
        last = last if changes[0].package == package else found
        package = changes[0].package
        moved = _moved(last, other)
        if not moved:
            continue
        if run.open[changes[0]]:
            last = other
            value, side = f"{release} or later", f"before {release} {_joined(changes, 'before')}"
        else:
            value, side = f"before {release}", f"from {release} on {_joined(changes, 'after')}"
        unpinned = run.parts.untold.get(package, _unpinned(run, package))
        why = f"{unpinned}; {side}: {', '.join(moved)}. Pin it to settle which"
        yield Assumption(f"versions.{package}", value, why)


def _unpinned(run: Run, package: str) -> str:
    _, file = run.parts.versions.get(package, ("", ""))
    return f"{file} allows several releases of {package}" if file else f"no file pins {package}"


def _joined(changes: tuple[LibraryChange, ...], side: str) -> str:
    return ", and ".join(filter(None, (getattr(change, side) for change in changes)))


def _moved(one: Estimate, other: Estimate) -> list[str]:
    """The peaks that differ, each with what it would be; what is saved counts where they do not."""
    pairs = [
        ("per GPU", one.gpu.peak_bytes, other.gpu.peak_bytes),
        ("per host", one.host.peak_bytes, other.host.peak_bytes),
    ]
    saving = [
        ("per GPU while saving", one.gpu.phases["save"], other.gpu.phases["save"]),
        ("per host while saving", one.host.phases["save"], other.host.phases["save"]),
    ]
    return [*_differing(pairs)] or [*_differing(saving)]


def _differing(pairs: list[tuple[str, int | None, int | None]]) -> Iterator[str]:
    for where, here, there in pairs:
        if here is None or there is None:
            continue
        if abs(here - there) > max(_LEAST, _SHARE * here):
            yield f"{gib(there)} {where} instead of {gib(here)}"
