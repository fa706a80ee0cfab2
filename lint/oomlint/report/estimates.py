"""``oomlint estimate`` for people: the phases as a chart, the peak by component, what fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from oomlint.forecast import Forecast
from oomlint.hardware import common_cards, usable_bytes
from oomlint.report.paint import Paint
from oomlint.report.runs import PHASE_WORDS, conclusion, limits
from oomlint.rule import gib

_PLAIN = Paint()
_BAR_WIDTH = 44
# Eighth blocks, so that a bar is right to an eighth of a character (U+258F to U+2588).
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LABEL = 18


def render(forecasts: list[Forecast], paint: Paint = _PLAIN) -> str:
    return "\n".join("".join(line + "\n" for line in _run(f, paint)) for f in forecasts)


def _run(forecast: Forecast, paint: Paint) -> Iterator[str]:
    framework = f" ({forecast.framework})" if forecast.framework else ""
    yield paint(f"{forecast.name}{framework}", "bold")
    others = [path for path in forecast.files if path != forecast.name]
    if others:
        yield f"  with {', '.join(others)}"
    hardware = forecast.hardware
    if hardware is not None:
        yield f"  on {hardware.name} {limits(forecast, hardware)}"
    gpu, host = forecast.estimate.gpu, forecast.estimate.host
    if gpu.peak_bytes is None:
        yield f"  no prediction: {conclusion(forecast)}"
        return
    limit = usable_bytes(hardware.gpu) if hardware else None
    yield ""
    yield from _device("per GPU", gpu.peak_bytes, gpu.low_bytes, gpu.high_bytes, paint)
    yield from _chart(gpu.phases, gpu.peak_phase, limit, paint)
    yield from _components(gpu.components, gpu.peak_phase)
    if gpu.reserved_bytes is not None:
        yield f"  {'torch reserves':<{_LABEL}}{gib(gpu.reserved_bytes):>10}"
    if host.peak_bytes is not None:
        yield ""
        yield from _device("per host", host.peak_bytes, host.low_bytes, host.high_bytes, paint)
        yield from _chart(host.phases, host.peak_phase, forecast.host_limit, paint)
        yield from _components(host.components, host.peak_phase)
    if forecast.estimate.disk_checkpoint_bytes is not None:
        yield ""
        yield f"on disk: {gib(forecast.estimate.disk_checkpoint_bytes)} for each checkpoint"
    yield ""
    style = {"fits": "good", "tight": "tight", "does_not_fit": "bad"}.get(forecast.verdict, "bold")
    yield paint(f"verdict: {conclusion(forecast)}", style)
    yield f"fits on: {fits_on(gpu.peak_bytes)}"
    if forecast.assumptions:
        yield "assumed:"
        for assumption in forecast.assumptions:
            yield f"  {assumption.field} = {assumption.value}: {assumption.why}"


def _device(
    where: str, peak: int, low: int | None, high: int | None, paint: Paint
) -> Iterator[str]:
    bounds = f" (between {gib(low)} and {gib(high)})" if low is not None and high else ""
    yield f"{where}: {paint(gib(peak), 'bold')} at the peak{bounds}"


def _chart(
    phases: Mapping[str, int | None], peak_phase: str | None, limit: int | None, paint: Paint
) -> Iterator[str]:
    """A bar per phase, and where the limit stands among them."""
    known = [size for size in phases.values() if size is not None]
    top = max([*known, limit or 0, 1])
    for phase, size in phases.items():
        label = f"  {PHASE_WORDS.get(phase, phase):<{_LABEL}}{gib(size) if size else '-':>10}  "
        style = "bad" if limit is not None and (size or 0) > limit else "good"
        bar = paint(_bar((size or 0) / top), style if limit is not None else "hunk")
        yield f"{label}{bar}{' ← peak' if phase == peak_phase else ''}".rstrip()
    if limit is not None:
        column = min(_BAR_WIDTH - 1, int(limit / top * _BAR_WIDTH))
        blank = " " * (_LABEL + 14 + column)
        yield f"{blank}{paint('▲', 'bold')} limit {gib(limit)}"


def _bar(share: float) -> str:
    eighths = max(1 if share > 0 else 0, round(share * _BAR_WIDTH * 8))
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def _components(components: Mapping[str, int | None], phase: str | None) -> Iterator[str]:
    yield f"  of the peak ({PHASE_WORDS.get(phase or '', phase)}):"
    for name, size in components.items():
        if size:
            yield f"    {name.replace('_', ' '):<{_LABEL - 2}}{gib(size):>10}"


def fits_on(peak: int) -> str:
    """The common cards by size, each with what would stay free."""
    sizes: dict[int, list[str]] = {}
    for card in common_cards():
        if usable_bytes(card) * 0.95 >= peak:
            sizes.setdefault(card.nameplate_gb or 0, []).append(card.name)
    if not sizes:
        return "no common card"
    return "; ".join(", ".join(names) for names in list(sizes.values())[:3]) + (
        "; and larger" if len(sizes) > 3 else ""
    )
