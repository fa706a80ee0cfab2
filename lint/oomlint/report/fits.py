"""``oomlint fit`` for people and programs: the ways to fit, what each needs and gives up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from oomlint.judgement import Forecast, Judgement, judgement_of
from oomlint.judgement.alternatives import ways_out
from oomlint.judgement.planner import Aim, HardwareOption, Move, Way
from oomlint.judgement.words import (
    ending,
    left_open,
    limits,
    meaning,
    once,
    verdict_of_it,
    without_prediction,
)
from oomlint.report.paint import Paint, visible
from oomlint.report.runs import as_json, run_object
from oomlint.report.shapes import FitShape, FittingShape, LaunchedShape, MoveShape, WayShape
from oomlint.runs.misspelt import Misspelt
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib, percent

if TYPE_CHECKING:
    from oomlint.fix.edits import Fix

_PLAIN = Paint()
_WIDTH = 100
_MOST_HARDWARE = 5
_MOST_MACHINES = 3
_MOST_LAUNCHED = 3
_AIMS = {
    "micro_batch": "the largest micro batch that fits",
    "seq_len": "the longest samples that fit",
    "throughput": "the most tokens a second that fit",
}


def _verdict(forecast: Forecast) -> str:
    without = " without --hardware" if forecast.hardware is None else ""
    return f"{verdict_of_it(forecast)}{left_open(forecast) or without}"


class Launched(Struct, frozen=True):
    """A run of which nothing here says how it is launched, as it would be if that shards the model, and what makes it
    fit then."""

    run: Run
    ways: Sequence[Way]

    @property
    def helps(self) -> bool:
        return bool(self.ways) or not judgement_of(self.run).is_lost


class Fitting(Struct, frozen=True):
    """What was found for one run: ways to change it, or hardware on which it fits as it is."""

    run: Run
    aim: Aim | None
    ways: Sequence[Way]
    hardware: Sequence[HardwareOption]
    only_hardware: bool = False
    ended_early: bool = False
    """The search ended before it had seen every combination of changes."""
    launched: Launched | None = None

    @property
    def is_settled(self) -> bool:
        """The run fits, or what makes it fit is known; one that ends before its first step does not, unless it is an engine
        that a way feeds."""
        judgement = judgement_of(self.run)
        if judgement.endings and not (judgement.is_starved and self.ways):
            return False
        return bool(self.ways) or self.only_hardware or not judgement.is_lost


def render(fittings: Sequence[Fitting], paint: Paint = _PLAIN) -> str:
    known = [f for f in fittings if f.run.estimate.gpu.peak_bytes is not None]
    blocks = [list(_fitting(fitting, paint)) for fitting in known]
    blocks.append([_unpredicted(f, paint) for f in fittings if f not in known])
    return "\n".join("".join(line + "\n" for line in block) for block in blocks if block)


def _unpredicted(fitting: Fitting, paint: Paint) -> str:
    head = paint(f"{visible(fitting.run.name)} ({fitting.run.framework})", "bold")
    return f"{head}: {without_prediction(judgement_of(fitting.run).spoken)}"


def _fitting(fitting: Fitting, paint: Paint) -> Iterator[str]:
    run = fitting.run
    forecast = judgement_of(run).spoken
    where = ""
    if forecast.hardware is not None:
        where = f" on {forecast.hardware.name} {limits(forecast, forecast.hardware)}"
    yield paint(f"{visible(run.name)} ({run.framework})", "bold") + where
    yield from _readings(judgement_of(run))
    yield ""
    if fitting.ways:
        yield from _table(fitting, paint)
    elif fitting.aim is not None:
        yield f"  nothing larger fits ({_AIMS[fitting.aim]})"
    elif judgement_of(run).is_lost and not fitting.only_hardware:
        none = "no change of the settings that its files can say makes it fit there"
        early = "; the search ended before it had seen them all" if fitting.ended_early else ""
        yield from _wrapped(f"{none}{early}", "  ", "  ")
        if fitting.launched is None:
            yield from _beyond(run)
    elif forecast.verdict in ("fits", "tight") and not fitting.hardware:
        yield f"  nothing has to change{' for that' if forecast.endings else ''}"
    if fitting.launched is not None:
        yield from _launch(fitting.launched)
    if fitting.hardware:
        most = len(fitting.hardware) if fitting.only_hardware else _MOST_HARDWARE
        yield from _hardware(fitting.hardware[:most])
        if len(fitting.hardware) > most:
            yield "    and on larger ones (`oomlint fit --hardware-options` lists them)"


def _readings(judgement: Judgement) -> Iterator[str]:
    """What the run needs as it is; of one with misspelt keys, as it is meant and as it is written."""
    spoken = judgement.spoken
    if spoken.endings:
        yield from _wrapped(ending(spoken), "  ", "    ")
    as_it_is = once(spoken) if spoken.endings else "as it is"
    yield f"  {f'as meant, {meaning(spoken)}' if spoken.because else as_it_is}: {_needs(spoken)}"
    if judgement.meant is not None:
        yield f"  as written: {_needs(judgement.written)}"


def _needs(forecast: Forecast) -> str:
    gpu, host = forecast.estimate.gpu, forecast.estimate.host
    return f"{gib(gpu.peak_bytes)} per GPU, {gib(host.peak_bytes)} per host: {_verdict(forecast)}"


def _beyond(run: Run) -> Iterator[str]:
    """What would make it fit that is not these files' to say."""
    others = ways_out(run)
    if others:
        yield from _wrapped(f"it would with {others}", "  ", "  ")


def _launch(launched: Launched) -> Iterator[str]:
    """What comes of a launch that shards the model."""
    needs = judgement_of(launched.run).spoken
    peak, is_enough = gib(needs.estimate.gpu.peak_bytes), not judgement_of(launched.run).is_lost
    yield from _wrapped(
        "nothing here launches it, and the numbers are of a whole copy on each GPU; a launch that shards it with ZeRO-3 "
        f"(accelerate launch --use_deepspeed --zero_stage 3, say) needs {peak} per GPU"
        + (", and fits" if is_enough else ", and fits with" if launched.ways else ""),
        "  ",
        "  ",
    )
    if is_enough:
        return
    for way in launched.ways[:_MOST_LAUNCHED]:
        first = f"    {gib(way.estimate.gpu.peak_bytes):>9}  "
        yield from _wrapped("; ".join(way.titles), first, " " * len(first))


def _table(fitting: Fitting, paint: Paint) -> Iterator[str]:
    if fitting.aim is not None:
        yield f"  {_AIMS[fitting.aim]}:"
    head = f"  {'':>3}  {'GPU':>9}  {'host':>9}  {'saving':>9}  {'time':>5}  change"
    yield paint(head, "dim")
    left = " " * (len(head) - len("change"))
    for number, way in enumerate(fitting.ways, 1):
        estimate = way.estimate
        saving = estimate.host.phases.get("save")
        cells = (
            f"  {number:>3}  {gib(estimate.gpu.peak_bytes):>9}  "
            f"{gib(estimate.host.peak_bytes):>9}  {gib(saving):>9}  {way.slowdown:>4.2f}x  "
        )
        yield from _wrapped("; ".join(way.titles), cells, left)
        for text in way.gives_up:
            yield from _wrapped(f"but {text}", left, left)
        if way.verdict != "fits":
            text = f"it leaves a risk of {percent(way.risk.any or 0.0)}: nothing better is known"
            yield left + paint(text, "tight")
    yield ""
    yield "  GPU and host: predicted peaks; saving: of the host that writes a checkpoint; time: of a"
    yield "  step over that of the run as it is, estimated. `--apply N` writes a way."


def _wrapped(text: str, first: str, others: str) -> Iterator[str]:
    lines = wrap(text, max(40, _WIDTH - len(others)))
    yield first + lines[0]
    for line in lines[1:]:
        yield others + line


def _hardware(options: Sequence[HardwareOption]) -> Iterator[str]:
    yield "  as it is, it would fit on"
    width = max(len(option.hardware.name) for option in options)
    for option in options:
        few = ", ".join(option.machines[:_MOST_MACHINES])
        more = " …" if len(option.machines) > _MOST_MACHINES else ""
        gpu, host = option.estimate.gpu.peak_bytes, option.estimate.host.peak_bytes
        numbers = f"{gib(gpu):>9} per GPU, {gib(host):>9} per host"
        yield f"    {option.hardware.name:<{width}}  {numbers}  {few}{more}".rstrip()


def render_json(fittings: Sequence[Fitting]) -> str:
    shape: FitShape = {"version": 1, "runs": [_object(fitting) for fitting in fittings]}
    return as_json(shape)


def _object(fitting: Fitting) -> FittingShape:
    return {
        **run_object(judgement_of(fitting.run), _way_out(fitting)),
        "aim": fitting.aim,
        "ways": [_way(way) for way in fitting.ways],
        "ended_early": fitting.ended_early,
        "launched_with_zero3": None if fitting.launched is None else _launched(fitting.launched),
        "fits_as_it_is_on": [
            {
                "hardware": option.hardware.name,
                "peak_bytes": option.estimate.gpu.peak_bytes,
                "instances": list(option.machines),
            }
            for option in fitting.hardware
        ],
    }


def _launched(launched: Launched) -> LaunchedShape:
    return {
        "gpu_peak_bytes": judgement_of(launched.run).spoken.estimate.gpu.peak_bytes,
        "fits": not judgement_of(launched.run).is_lost,
        "ways": [_way(way) for way in launched.ways],
    }


def _way_out(fitting: Fitting) -> Fix | None:
    """The first way, where it is one out of trouble."""
    from oomlint.fix.planned import fix_of

    judgement = judgement_of(fitting.run)
    is_one = fitting.aim is None and (judgement.is_in_trouble or judgement.is_starved)
    return fix_of(fitting.ways[0]) if is_one and fitting.ways else None


def _renaming(misspelt: Misspelt) -> MoveShape:
    return {
        "title": f"rename {misspelt.key.path} to {misspelt.new_key}",
        "rule": "unknown-key-ignored",
        "gives_up": None,
        "fields": {misspelt.field: misspelt.value},
    }


def _move(move: Move) -> MoveShape:
    return {
        "title": move.title,
        "rule": move.rule,
        "gives_up": move.gives_up or None,
        "fields": dict(move.changes),
    }


def _way(way: Way) -> WayShape:
    from oomlint.fix.planned import fix_of
    from oomlint.report.json import fix_object

    fix = fix_of(way)
    return {
        "changes": [
            *map(_renaming, way.renamed),
            *map(_move, way.moves),
        ],
        "gpu_peak_bytes": way.estimate.gpu.peak_bytes,
        "host_peak_bytes": way.estimate.host.peak_bytes,
        "save_host_bytes": way.estimate.host.phases.get("save"),
        "verdict": cast("Any", way.verdict),
        "slowdown": round(way.slowdown, 3),
        "applicability": "safe" if way.is_safe else "unsafe",
        "fix": None if fix is None else fix_object(fix),
    }
