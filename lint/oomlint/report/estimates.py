"""``oomlint estimate`` for people: the phases as a chart and by component, what fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from oomlint.hardware import usable_bytes
from oomlint.judgement import Forecast, Judgement
from oomlint.judgement.words import (
    PHASE_WORDS,
    conclusion,
    limits,
    meaning,
    other_reading,
    without_prediction,
)
from oomlint.memory import DeviceEstimate, HostEstimate
from oomlint.report.paint import OUTCOME_STYLES, Paint, visible
from oomlint.wording.amounts import gib

_PLAIN = Paint()
_BAR_WIDTH = 30
# Eighth blocks, so that a bar is right to an eighth of a character (U+258F to U+2588).
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LABEL = 18
# Said of a phase that the run does not have.
NEVER = "never"
# What a tenth of a GiB shows.
_WORTH_A_WORD = 2**30 // 20


def render(judged: Sequence[Judgement], paint: Paint = _PLAIN) -> str:
    return "\n".join("".join(line + "\n" for line in _run(each, paint)) for each in judged)


def _run(judgement: Judgement, paint: Paint) -> Iterator[str]:
    forecast = judgement.spoken
    framework = f" ({forecast.framework})" if forecast.framework else ""
    yield paint(f"{visible(forecast.name)}{framework}", "bold")
    others = [path for path in forecast.files if path != forecast.name]
    if others:
        yield f"  with {visible(', '.join(others))}"
    hardware = forecast.hardware
    if hardware is not None:
        yield f"  on {hardware.name} {limits(forecast, hardware)}"
    if forecast.because:
        yield f"  {meaning(forecast)}, as all numbers here"
        yield f"  {other_reading(judgement)}"
    if forecast.bounded.estimate.gpu.peak_bytes is None:
        yield f"  {without_prediction(forecast)}"
        return
    yield from _needs(forecast, paint)
    yield ""
    style = OUTCOME_STYLES[forecast.outcome]
    yield paint(f"verdict: {conclusion(forecast)}", style)
    yield f"fits on: {fits_on(forecast)}"
    if forecast.measured:
        yield f"measured: {forecast.measured}"
    if forecast.assumptions:
        yield "assumed:"
        for assumption in forecast.assumptions:
            yield f"  {assumption.field} = {assumption.value}: {assumption.why}"


def _needs(forecast: Forecast, paint: Paint) -> Iterator[str]:
    """What the run takes of a GPU, of a node's RAM and of the disk."""
    hardware = forecast.hardware
    gpu, host = forecast.bounded.estimate.gpu, forecast.bounded.estimate.host
    limit = usable_bytes(hardware.gpu) if hardware else None
    seen = forecast.first_seen
    yield ""
    yield from _device("per GPU", gpu, limit, seen, paint)
    reserved = reserved_words(gpu)
    if reserved is not None:
        yield f"  {reserved}"
    if host.peak_bytes is not None:
        yield ""
        yield from _device("per host", host, forecast.host_limit, seen, paint)
    if forecast.estimate.disk_checkpoint_bytes is not None:
        yield ""
        yield f"on disk: {gib(forecast.estimate.disk_checkpoint_bytes)} for each checkpoint"


def reserved_words(gpu: DeviceEstimate) -> str | None:
    """What torch reserves and of what that consists, and where batches differ in length how far it may lie from its
    prediction: of others the bounds of the peak tell it."""
    if gpu.reserved_bytes is None or gpu.allocated_bytes is None:
        return None
    reach = ""
    if gpu.reserved is not None and gpu.lengths_vary:
        between = f"between {gib(gpu.reserved.low)} and {gib(gpu.reserved.high)}"
        reach = f" ({between}, for batches differ in length)"
    parts = f"{gib(gpu.allocated_bytes)} of the peak, without the context"
    if gpu.kept_bytes >= _WORTH_A_WORD:
        parts += f", and {gib(gpu.kept_bytes)} of freed blocks that it keeps"
        if gpu.cached_bytes >= _WORTH_A_WORD:
            parts += f", of which a full card gets {gib(gpu.cached_bytes)} back"
    return f"torch reserves {gib(gpu.reserved_bytes)}{reach}: {parts}"


def _device(
    where: str,
    device: DeviceEstimate | HostEstimate,
    limit: int | None,
    seen: Mapping[str, str | None],
    paint: Paint,
) -> Iterator[str]:
    told = device.told
    bounds = f" (between {gib(told.low)} and {gib(told.high)})" if told is not None else ""
    yield f"{where}: {paint(gib(device.peak_bytes or 0), 'bold')} at the peak{bounds}"
    yield from _chart(device, limit, seen, paint)
    yield ""
    yield from _components(device, paint)


def _chart(
    device: DeviceEstimate | HostEstimate,
    limit: int | None,
    seen: Mapping[str, str | None],
    paint: Paint,
) -> Iterator[str]:
    """A bar per phase, when it first gets so high, and where the limit stands among them."""
    known = [size for size in device.phases.values() if size is not None]
    top = max([*known, limit or 0, 1])
    for phase, size in device.phases.items():
        label = f"  {PHASE_WORDS.get(phase, phase):<{_LABEL}}{gib(size) if size else '-':>10}  "
        style = "bad" if limit is not None and (size or 0) > limit else "good"
        bar = _bar((size or 0) / top)
        blank = " " * (_BAR_WIDTH - len(bar))
        painted = paint(bar, style if limit is not None else "hunk")
        peak = " ← peak:" if phase == device.peak_phase else ""
        yield f"{label}{painted}{blank}{peak} {seen[phase] or NEVER}"
    if limit is not None:
        column = min(_BAR_WIDTH - 1, int(limit / top * _BAR_WIDTH))
        blank = " " * (_LABEL + 14 + column)
        yield f"{blank}{paint('▲', 'bold')} limit {gib(limit)}"


def _bar(share: float) -> str:
    eighths = max(1 if share > 0 else 0, round(share * _BAR_WIDTH * 8))
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def _components(device: DeviceEstimate | HostEstimate, paint: Paint) -> Iterator[str]:
    """A line per component, a column per phase; the columns add up."""
    heads = {phase: PHASE_WORDS.get(phase, phase) for phase in device.phases}

    def line(label: str, cells: Mapping[str, str]) -> str:
        text = f"  {label:<{_LABEL}}"
        for phase, head in heads.items():
            cell = f"{cells[phase]:>{max(len(head), 7) + 2}}"
            text += paint(cell, "bold") if phase == device.peak_phase else cell
        return text

    yield line("GiB", heads)
    for name in device.components:
        sizes = {phase: device.by_phase[phase][name] or 0 for phase in heads}
        if any(sizes.values()):
            yield line(name.replace("_", " "), {p: in_gib(size) for p, size in sizes.items()})
    yield line("total", {phase: in_gib(size or 0) for phase, size in device.phases.items()})


def in_gib(size: int) -> str:
    """Bytes as GiB to a tenth, for a column of numbers; nothing is a dash."""
    if not size:
        return "-"
    return f"{size / 2**30:,.1f}" if size >= _WORTH_A_WORD else "<0.1"


def fits_on(forecast: Forecast) -> str:
    """The common cards by size that hold a run. Where its host is too small, no card is one alone."""
    sizes: dict[int, list[str]] = {}
    for card in forecast.cards:
        sizes.setdefault(card.nameplate_gb or 0, []).append(card.name)
    if not sizes:
        return "no common card"
    words = "; ".join(", ".join(names) for names in list(sizes.values())[:3])
    words += "; and larger" if len(sizes) > 3 else ""
    host = forecast.estimate.host.peak_bytes
    if forecast.may_die_of("host") and host is not None:
        words += f" (with more than {gib(host)} of RAM a node)"
    return words
