"""What stands beside the text all the time.

Predicted peaks at the keys that move them, and each run's verdict above it.
"""

from __future__ import annotations

from lsprotocol import types

from oomlint.documents.text import Location
from oomlint.hardware import usable_bytes
from oomlint.judgement import Forecast, Judgement, judgement_of
from oomlint.judgement.words import (
    PHASE_WORDS,
    mark,
    other_reading,
    sentence,
    verdict_first,
    verdict_words,
)
from oomlint.lsp.keys import knobs
from oomlint.lsp.project import Analysis
from oomlint.lsp.view import View
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib

ESTIMATE = "oomlint.estimate"


def inlay_hints(view: View, range: types.Range) -> list[types.InlayHint]:
    """The predicted peak against the card beside micro batch, sequence length and ZeRO stage."""
    positions = view.positions(view.analysis.name)
    span = positions.span(range)
    worst: dict[int, Judgement] = {}
    for run, entry in knobs(view.analysis):
        judged = judgement_of(run)
        end, peak = entry.value.span.end, judged.spoken.estimate.gpu.peak_bytes
        if peak is None or not span.start <= end <= span.end:
            continue
        known = worst.get(end)
        if known is None or peak > (known.spoken.estimate.gpu.peak_bytes or 0):
            worst[end] = judged
    return [
        types.InlayHint(
            positions.at(end),
            marked(judged.spoken),
            padding_left=True,
            tooltip=types.MarkupContent(types.MarkupKind.Markdown, breakdown(judged)),
        )
        for end, judged in worst.items()
    ]


def code_lenses(view: View) -> list[types.CodeLens]:
    """Each run's verdict, where the run begins in this document; the first line for runs that
    begin in others."""
    analysis = view.analysis
    lenses = []
    for run in analysis.runs:
        at = run.anchor if run.anchor.path == analysis.name else None
        start = view.range(at).start if isinstance(at, Location) else types.Position(0, 0)
        arguments = [{"uri": view.uri(analysis.name), "run": run.name}]
        lenses.append(
            types.CodeLens(
                types.Range(start, start),
                types.Command(verdict_line(run, analysis.name), ESTIMATE, arguments=arguments),
            )
        )
    return lenses


def verdict_line(run: Run, shown_in: str | None = None) -> str:
    """``oomlint ✗ does not fit 8xA100-80GB: predicted peak 88.7 GiB per GPU (backward), …``, by the reading
    that findings speak of; with the run's name unless it is that of the document that it is shown in."""
    forecast = judgement_of(run).spoken
    name = "" if run.name == shown_in else f"{run.name} "
    return f"oomlint {mark(forecast)} {name}{verdict_first(forecast)}"


def status(analysis: Analysis) -> dict[str, object]:
    """The verdicts on the document's runs, for a status bar."""
    return {
        "runs": [
            {
                "name": judged.name,
                "verdict": judged.verdict,
                "outcome": judged.outcome,
                "short": _short(judged.spoken),
                "text": "; ".join(filter(None, (sentence(judged.spoken), other_reading(judged)))),
            }
            for judged in map(judgement_of, analysis.runs)
        ]
    }


def _short(forecast: Forecast) -> str:
    peak = forecast.estimate.gpu.peak_bytes
    if peak is None:
        return "no prediction"
    reading = " as meant" if forecast.because else ""
    if forecast.hardware is None:
        return f"≈ {gib(peak)}{reading}"
    return f"≈ {gib(peak)} / {gib(usable_bytes(forecast.hardware.gpu))}{reading}"


def marked(forecast: Forecast) -> str:
    """``≈ 86.5 GiB / 79.1 GiB ✗``; of a run that ends before, that behind it."""
    if forecast.endings:
        return f"{_short(forecast)} {mark(forecast)} {verdict_words(forecast)}"
    is_judged = forecast.hardware is not None and forecast.estimate.gpu.peak_bytes is not None
    return f"{_short(forecast)} {mark(forecast)}" if is_judged else _short(forecast)


def breakdown(judgement: Judgement) -> str:
    """The peak by component and the phases, as Markdown."""
    forecast, other = judgement.spoken, other_reading(judgement)
    gpu = forecast.estimate.gpu
    lines = [
        sentence(forecast).replace(forecast.name, f"**{forecast.name}**", 1),
        *(("", other) if other else ()),
        "",
        "| at the peak | GiB |",
        "|---|---|",
    ]
    for name, size in sorted(gpu.components.items(), key=lambda item: -(item[1] or 0)):
        if size:
            lines.append(f"| {name.replace('_', ' ')} | {size / 2**30:.1f} |")
    lines += ["", "| phase | GiB |", "|---|---|"]
    for phase, size in gpu.phases.items():
        if size:
            lines.append(f"| {PHASE_WORDS.get(phase, phase)} | {size / 2**30:.1f} |")
    return "\n".join(lines)
