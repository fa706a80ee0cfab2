"""Two runs side by side: as a table for people, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from textwrap import wrap
from typing import Any

from oomlint.hardware import usable_bytes
from oomlint.judgement import Forecast
from oomlint.judgement.comparison import (
    Comparison,
    Difference,
    GroupCost,
    PeakDifference,
    Resource,
    Value,
)
from oomlint.judgement.unpredicted import why_unpredicted
from oomlint.judgement.words import PHASE_WORDS, conclusion, peaks
from oomlint.report.paint import OUTCOME_STYLES, Paint, visible
from oomlint.report.runs import run_object
from oomlint.report.shapes import (
    ChangeShape,
    CompareShape,
    DifferenceShape,
    StepShape,
    ValueShape,
)
from oomlint.wording.amounts import gib

_PLAIN = Paint()
_LABEL = 30
_NUMBER = 15
# Values longer than this (a list of target modules, say) are cut; JSON has them whole.
_VALUE = 28
_WIDTH = 100
# What is below a mebibyte is rounding, not a reason.
_LEAST = 2**20
_REASONS = 3
_COLUMNS: tuple[Resource, ...] = ("gpu", "host")
_WHERE: Mapping[Resource, str] = {"gpu": "per GPU", "host": "per host"}


def render(comparison: Comparison, paint: Paint = _PLAIN) -> str:
    return "".join(line + "\n" for line in _lines(comparison, paint))


def _lines(comparison: Comparison, paint: Paint) -> Iterator[str]:
    a, b = comparison.a, comparison.b
    for letter, judged in (("A", comparison.first), ("B", comparison.second)):
        forecast = judged.written
        framework = f" ({forecast.framework})" if forecast.framework else ""
        yield f"{paint(f'{letter}: {visible(forecast.name)}', 'bold')}{framework}"
        others = [path for path in forecast.files if path != forecast.name]
        if others:
            yield f"   with {visible(', '.join(others))}"
        style = OUTCOME_STYLES[forecast.outcome]
        text = conclusion(forecast)
        if judged.meant is not None:
            meant = judged.meant
            text = f"as written, and compared here: {text}"
            yield f"   as meant: {peaks(meant)}: {conclusion(meant)}"
        yield f"   {paint(text, style)}"
    yield ""
    yield from _peaks(a, b, paint)
    yield ""
    if comparison.steps:
        yield from _steps(comparison, paint)
        yield ""
    quiet = comparison.without_effect
    if quiet:
        names = ", ".join(difference.field for difference in quiet)
        yield from wrap(f"different, without effect on the prediction: {names}", _WIDTH)
        yield ""
    yield from (paint(line, "bold") for line in _why(comparison))


def _peaks(a: Forecast, b: Forecast, paint: Paint) -> Iterator[str]:
    """The peaks, what is alive at each, and the checkpoint."""
    yield paint(_row("", "A", "B", "B - A"), "bold")
    for resource in _COLUMNS:
        ours, theirs = a.estimate.of(resource), b.estimate.of(resource)
        yield _sizes(_WHERE[resource], ours.peak_bytes, theirs.peak_bytes)
        words = (PHASE_WORDS.get(d.peak_phase or "", d.peak_phase or "-") for d in (ours, theirs))
        yield _row("  at the peak of", *words)
        for name in ours.components:
            sizes = ours.components[name], theirs.components.get(name)
            if any(sizes):
                yield _sizes(f"  {name.replace('_', ' ')}", *sizes)
    disk = a.estimate.disk_checkpoint_bytes, b.estimate.disk_checkpoint_bytes
    yield _sizes("each checkpoint on disk", *disk)


def _sizes(label: str, a: int | None, b: int | None) -> str:
    return _row(label, _size(a), _size(b), _signed(None if None in (a, b) else (b or 0) - (a or 0)))


def _row(label: str, *cells: str) -> str:
    return f"{label:<{_LABEL}}{''.join(f'{cell:>{_NUMBER}}' for cell in cells)}".rstrip()


def _size(size: int | None) -> str:
    if size is None:
        return "unknown"
    return gib(size) if size else "-"


def _signed(size: int | None) -> str:
    if size is None:
        return "unknown"
    if abs(size) < _LEAST:
        return "="
    return f"{'+' if size > 0 else '-'}{gib(abs(size))}"


def _steps(comparison: Comparison, paint: Paint) -> Iterator[str]:
    """A head line for each group with what it costs, then its settings side by side."""
    title = "from A to B, one group of settings after the other"
    yield f"{paint(title, 'bold')} (what each changes, and the peak it leaves):"
    yield _row("", "per GPU", "leaves", "per host", "leaves")
    start = comparison.a.estimate
    yield _row("A", "", _size(start.gpu.peak_bytes), "", _size(start.host.peak_bytes))
    for step in comparison.steps:
        cost = [
            text
            for change in (step.gpu, step.host)
            for text in (_signed(change.step), _size(change.peak))
        ]
        yield paint(_row(step.group.title, *cost), _style(step.gpu))
        if step.disk is not None and abs(step.disk) >= _LEAST:
            yield f"  each checkpoint on disk {_signed(step.disk)}"
        yield from _settings(step.differences, paint)


def _settings(differences: tuple[Difference, ...], paint: Paint) -> Iterator[str]:
    """Field, A's value, B's value, and behind them where the two come from."""
    rows = [(d.field, _shown(d.a.value), _shown(d.b.value), _origins(d)) for d in differences]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    for field, ours, theirs, origins in rows:
        values = f"{field:<{widths[0]}}  {ours:<{widths[1]}}  {theirs:<{widths[2]}}"
        yield f"  {values}  {paint(origins, 'dim')}"


def _origins(difference: Difference) -> str:
    ours, theirs = _origin(difference.a), _origin(difference.b)
    # Two files of one name in two folders are two places.
    same = ours == theirs and difference.a.path == difference.b.path
    return ours if same else f"{ours} | {theirs}"


def _style(change: PeakDifference) -> str:
    if change.step is None or abs(change.step) < _LEAST:
        return "bold"
    return "bad" if change.step > 0 else "good"


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and value >= 10**6:
        return f"{value:,}"
    if isinstance(value, (tuple, list)):
        value = ", ".join(map(str, value))
    elif isinstance(value, Mapping):
        value = ", ".join(f"{key} {item}" for key, item in value.items())
    text = " ".join(str(value).split())
    return text if len(text) <= _VALUE else text[: _VALUE - 1] + "…"


def _origin(side: Value) -> str:
    """``train.yaml:9 micro_batch_size``, or whose value it is.

    The file without its folder, the key without the keys around it: the head of the report
    names the files, and the line tells the rest.
    """
    file = (side.path or "").rpartition("/")[2]
    line = f":{side.line}" if side.line else ""
    key = (side.key or "").rpartition(".")[2]
    place = f"{file}{line} {key}".strip()
    match side.kind:
        case "explicit":
            return place
        case "derived" if side.path:
            return f"from {place}"
        case "derived" | "default":
            return f"default of {key}" if key else side.kind
        case "catalog":
            return "catalogue"
        case "option":
            return "given to oomlint"
        case "unreadable":
            return f"{place}: only running the code tells"
        case "assumed":
            return "assumed"
    return "not said"


def _why(comparison: Comparison) -> Iterator[str]:
    """The difference in a sentence a resource: how much, through what, and what it decides."""
    told = False
    for resource in _COLUMNS:
        total = comparison.total(resource)
        if total is None:
            for side in (comparison.a, comparison.b):
                if side.estimate.unknown:
                    why = why_unpredicted(side)
                    yield f"no comparison in GiB: {side.name} cannot be predicted: {why}"
            return
        reasons = _reasons(comparison.steps, resource)
        if abs(total) < _LEAST and not reasons:
            continue
        told = True
        more = "as much as" if abs(total) < _LEAST else _compared(total)
        yield f"{_WHERE[resource]} B needs {more} A: {_listed(reasons)}"
        rest = comparison.interaction(resource)
        if rest is not None and abs(rest) >= max(_LEAST, abs(total) / 100):
            yield (
                f"  (these act on one another: each by itself, on A as it is, they would come to"
                f" {_signed(total - rest)} together)"
            )
    if not told:
        yield "nothing that differs changes a predicted peak"
    yield from _limits(comparison)


def _compared(total: int) -> str:
    return f"{gib(abs(total))} {'more' if total > 0 else 'less'} than"


def _reasons(steps: Iterable[GroupCost], resource: Resource) -> list[tuple[str, int]]:
    """The groups by what they cost, the largest first."""
    found = [(step.group.title, step.of(resource).step or 0) for step in steps]
    large = [pair for pair in found if abs(pair[1]) >= _LEAST]
    return sorted(large, key=lambda pair: -abs(pair[1]))


def _listed(reasons: list[tuple[str, int]]) -> str:
    words = [f"{title} {_signed(size)}" for title, size in reasons[:_REASONS]]
    rest = sum(size for _, size in reasons[_REASONS:])
    if reasons[_REASONS:]:
        words.append(f"all else {_signed(rest)}")
    return ", ".join(words)


def _limits(comparison: Comparison) -> Iterator[str]:
    """Where each stands against its limit, if one fits and the other does not."""
    runs = (comparison.a, comparison.b)
    if len({f.verdict == "does_not_fit" for f in runs}) < 2:
        return
    for letter, forecast in zip("AB", runs, strict=True):
        if forecast.hardware is None:
            continue
        gpu = usable_bytes(forecast.hardware.gpu)
        needs = [f"per GPU {_against(forecast.estimate.gpu.peak_bytes, gpu)}"]
        if forecast.host_limit is not None:
            needs.append(
                f"per host {_against(forecast.estimate.host.peak_bytes, forecast.host_limit)}"
            )
        yield f"{letter}: {', '.join(needs)}"


def _against(peak: int | None, limit: int) -> str:
    if peak is None:
        return "unknown"
    room = limit - peak
    return f"{gib(room)} free" if room >= 0 else f"{gib(-room)} too much"


# -- JSON --------------------------------------------------------------------------------


def comparison_object(comparison: Comparison) -> CompareShape:
    return {
        "version": 1,
        "a": run_object(comparison.first),
        "b": run_object(comparison.second),
        "gpu": {
            "change_bytes": comparison.total("gpu"),
            "interaction_bytes": comparison.interaction("gpu"),
        },
        "host": {
            "change_bytes": comparison.total("host"),
            "interaction_bytes": comparison.interaction("host"),
        },
        "steps": [_step(step) for step in comparison.steps],
        "without_effect": [_difference(d) for d in comparison.without_effect],
    }


def _step(step: GroupCost) -> StepShape:
    return {
        "group": step.group.name,
        "title": step.group.title,
        "gpu": _change(step.gpu),
        "host": _change(step.host),
        "checkpoint_change_bytes": step.disk,
        "settings": [_difference(d) for d in step.differences],
    }


def _change(change: PeakDifference) -> ChangeShape:
    return {
        "change_bytes": change.step,
        "change_bytes_alone": change.alone,
        "peak_bytes": change.peak,
        "peak_phase": change.phase,
    }


def _difference(difference: Difference) -> DifferenceShape:
    return {"field": difference.field, "a": _value(difference.a), "b": _value(difference.b)}


def _value(side: Value) -> ValueShape:
    return {
        "value": dict(side.value) if isinstance(side.value, Mapping) else side.value,
        "origin": side.kind,
        "path": side.path,
        "line": side.line,
        "key": side.key,
        "source": side.source or None,
    }
