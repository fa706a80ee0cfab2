"""Measured peaks beside the prediction for the config."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from oomlint.diagnose.measured import Kind
from oomlint.diagnose.scan import Log
from oomlint.diagnose.verdict import Verdict
from oomlint.hardware import Gpu, Hardware, custom_gpu, list_gpus, usable_high, usable_low
from oomlint.judgement import Forecast

Result = Literal["agrees", "above", "below", "open"]
"""Of a measured peak: within the bounds of the prediction, above or below them; ``open`` where
there is no prediction, or where a run might have gone higher: it died, or was not training yet."""

_WORDS: dict[Kind, str] = {
    "allocated": "torch's peak allocation",
    "active": "torch's peak of active blocks",
    "reserved": "torch's peak reservation",
    "device": "the card's use in nvidia-smi",
    "host": "host memory",
}


class PeakComparison(Struct, frozen=True, kw_only=True):
    """One measured figure and the predicted one, in bytes."""

    what: str
    source: str
    """The framework's word for it, or the message."""
    log: str
    line: int
    kind: Kind
    measured: int
    is_floor: bool
    """Whether it needed at least this much: it died before it got there, or the figure is of the time before training."""
    run: str | None = None
    predicted: int | None = None
    low: int | None = None
    high: int | None = None

    @property
    def result(self) -> Result:
        if self.low is None or self.high is None:
            return "open"
        if self.measured > self.high:
            return "above"
        if self.measured < self.low:
            return "open" if self.is_floor else "below"
        return "agrees"


def comparisons(
    logs: Sequence[Log], verdict: Verdict, forecasts: Sequence[Forecast]
) -> tuple[PeakComparison, ...]:
    """Every measured figure, with the prediction of each run where there is one."""
    measured = [*_of_failure(verdict), *_of_logs(logs, verdict)]
    if not forecasts:
        return tuple(measured)
    return tuple(_held_against(figure, f) for f in forecasts for figure in measured)


def _of_failure(verdict: Verdict) -> Iterator[PeakComparison]:
    """What the process held and asked for as it died."""
    cause = verdict.cause
    if cause is None or cause.memory is None or cause.memory.needed is None:
        return
    held = cause.memory.held
    yield PeakComparison(
        what="in use, and asked for, as it died",
        source="the message",
        log=cause.log,
        line=cause.line,
        kind="allocated" if held is None else "device",
        measured=held or cause.memory.needed,
        is_floor=True,
    )


def _of_logs(logs: Sequence[Log], verdict: Verdict) -> Iterator[PeakComparison]:
    has_died = verdict.outcome in ("memory", "killed")
    for log in logs:
        for peak in log.peaks:
            yield PeakComparison(
                what=_WORDS[peak.kind] + (" of the node" if peak.is_whole_node else ""),
                source=f"{peak.framework}: {peak.key}",
                log=log.name,
                line=peak.line,
                kind=peak.kind,
                measured=peak.size,
                is_floor=has_died or not peak.is_of_training,
            )


def _held_against(figure: PeakComparison, forecast: Forecast) -> PeakComparison:
    bounds = _bounds(figure, forecast)
    if bounds is None:
        return figure
    predicted, low, high = bounds
    return replace(figure, run=forecast.name, predicted=predicted, low=low, high=high)


def _bounds(figure: PeakComparison, forecast: Forecast) -> tuple[int, int, int] | None:
    """The predicted counterpart and its bounds.

    What torch allocated and what it reserved have bounds of their own; nvidia-smi shows
    the second and the context.
    """
    gpu, host = forecast.bounded.estimate.gpu, forecast.bounded.estimate.host
    if figure.kind == "host":
        if host.peak_bytes is None or host.low_bytes is None or host.high_bytes is None:
            return None
        is_node = "of the node" in figure.what
        per_node = forecast.plan.parallel.gpus_per_node or 1
        if not is_node and per_node > 1:  # one process of several
            return None
        return host.peak_bytes, host.low_bytes, host.high_bytes
    if gpu.peak_bytes is None or gpu.low_bytes is None or gpu.high_bytes is None:
        return None
    if gpu.allocated is None or gpu.reserved is None or gpu.reserved_bytes is None:
        return None
    if figure.kind in ("allocated", "active"):
        return gpu.peak_bytes - gpu.context_bytes, gpu.allocated.low, gpu.allocated.high
    if figure.kind == "reserved":
        return gpu.reserved_bytes, gpu.reserved.low, gpu.reserved.high
    low = min(gpu.peak_bytes, gpu.reserved.low)
    return gpu.peak_bytes, low, max(gpu.high_bytes, gpu.reserved_bytes + gpu.context_bytes)


def card_of(logs: Iterable[Log], verdict: Verdict) -> Gpu | None:
    """The card that the logs tell of, by its size: a message has what torch sees of it, a table of
    nvidia-smi what the driver does."""
    memory = verdict.cause.memory if verdict.cause is not None else None
    if memory is not None and memory.total is not None:
        return _nearest(memory.total)
    size = next((log.card_bytes for log in logs if log.card_bytes is not None), None)
    return _nearest(size) if size is not None else None


# Readings of a card differ by its driver; what differs by more is another card.
_SAME_CARD = 0.02


def _nearest(size: int) -> Gpu:
    """The GPU whose usable memory is a size; one of that size where several or none are."""
    near = [
        gpu
        for gpu in list_gpus()
        if usable_low(gpu) * (1 - _SAME_CARD) <= size <= usable_high(gpu) * (1 + _SAME_CARD)
    ]
    return near[0] if len(near) == 1 else custom_gpu(size)


def hardware_of(gpu: Gpu, nodes: int | None, per_node: int | None) -> Hardware:
    """The hardware of a run whose files name none, with the card from its log."""
    nodes, per_node = nodes or 1, per_node or 1
    counts = f"{nodes}x{per_node}x" if nodes > 1 else f"{per_node}x" if per_node > 1 else ""
    return Hardware(
        name=f"{counts}{gpu.name}",
        nodes=nodes,
        gpus_per_node=per_node,
        gpu=gpu,
        host_bytes_per_node=None,
        source="the log",
    )
