"""The ``markdown`` format: a table of the runs' memory, and the findings.

For pull requests and the summary page of a job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oomlint.hardware import usable_bytes
from oomlint.judgement import Forecast, Judgement, judgement_of
from oomlint.judgement.words import meaning, verdict_with_reason
from oomlint.linting.engine import Results, Told
from oomlint.linting.headlines import leaders
from oomlint.linting.rule import Finding
from oomlint.report.paint import visible
from oomlint.report.places import LineIndex, url
from oomlint.report.text import summary
from oomlint.wording.amounts import gib, of_gib

SIGNS = {"error": "❌", "warning": "⚠️", "info": "\N{INFORMATION SOURCE}\N{VARIATION SELECTOR-16}"}  # fmt: skip

_BESIDE = {"tight": "⚠️ ", "does_not_fit": "❌ ", "ends": "❌ "}

# Of a run with misspelt keys: the other reading is what its author means.
AS_WRITTEN = "as written"

# GitHub drops a job summary of more than 1 MiB, and readers leave long before.
_MOST = 100
_MOST_BARS, _BAR = 20, 40


def render(report: Results) -> str:
    return "".join(line + "\n" for line in _lines(report))


def _lines(report: Results) -> Iterator[str]:
    yield "### Memory of the training runs"
    yield ""
    if report.runs:
        yield from table([judgement_of(run) for run in report.runs[:_MOST]])
        if len(report.runs) > _MOST:
            yield ""
            yield f"and {len(report.runs) - _MOST} more runs"
        yield ""
        yield from chart([judgement_of(run) for run in report.runs[:_MOST]])
    places, following = LineIndex(report), leaders(report.diagnoses)
    leading = [d for d in report.diagnoses if d not in following]
    leading.sort(key=lambda d: -d.severity)
    for diagnosis in leading[:_MOST]:
        yield line(diagnosis, places)
    if len(leading) > _MOST:
        yield f"- and {len(leading) - _MOST} more findings"
    if leading:
        yield ""
    yield summary(report)


def table(judged: list[Judgement]) -> Iterator[str]:
    """A row per run: predicted peaks beside what the hardware has. Of a run with misspelt keys one as
    it is meant, and one as it is written."""
    yield "| run | hardware | per GPU | per host | verdict |"
    yield "| --- | --- | ---: | ---: | --- |"
    for each in judged:
        yield _row(each.spoken, meaning(each.spoken))
        if each.meant is not None:
            yield _row(each.written, AS_WRITTEN)


def chart(judged: Sequence[Judgement]) -> Iterator[str]:
    """The need per GPU of each run as a bar, and a mark where its card ends: text, which every forge shows
    as it is."""
    known = [(each, need) for each in judged if (need := _gpu(each)) is not None][:_MOST_BARS]
    if not known:
        return
    most = max(max(need, _limit(each) or 0) for each, need in known)
    width = max(len(each.name) for each, _ in known)
    yield "```text"
    for each, need in known:
        limit = _limit(each)
        filled = max(1, round(_BAR * need / most))
        bar = "█" * filled + "·" * (_BAR - filled)
        if limit is not None:
            end = min(_BAR - 1, round(_BAR * limit / most))
            bar = f"{bar[:end]}|{bar[end + 1 :]}"
        amount = gib(need) if limit is None else of_gib(need, limit)
        yield f"{visible(each.name):<{width}}  {bar}  {amount}".replace("`", "'")
    yield "```"
    yield ""


def _gpu(judgement: Judgement) -> int | None:
    return judgement.spoken.estimate.gpu.peak_bytes


def _limit(judgement: Judgement) -> int | None:
    hardware = judgement.hardware
    return None if hardware is None else usable_bytes(hardware.gpu)


def _row(forecast: Forecast, reading: str) -> str:
    gpu, host = forecast.bounded.estimate.gpu, forecast.bounded.estimate.host
    hardware = forecast.hardware.name if forecast.hardware else "unknown"
    limit = f" of {gib(forecast.host_limit)}" if forecast.host_limit else ""
    peak = "not known"
    if gpu.peak_bytes is not None:
        told = f" ({gib(gpu.told.low)} to {gib(gpu.told.high)})" if gpu.told is not None else ""
        peak = gib(gpu.peak_bytes) + told
    ram = "not known" if host.peak_bytes is None else gib(host.peak_bytes) + limit
    name = escaped(forecast.name) + (f" ({escaped(reading)})" if reading else "")
    return f"| {name} | {hardware} | {peak} | {ram} | {verdict(forecast)} |"


def verdict(forecast: Forecast) -> str:
    """The verdict as a cell of a table, with what leaves it open."""
    return _BESIDE.get(forecast.outcome, "") + escaped(verdict_with_reason(forecast))


def line(diagnosis: Told, places: LineIndex) -> str:
    """A finding as an item of a list."""
    finding = diagnosis.finding
    rule = f"[{finding.rule.code} {finding.rule.name}]({url(finding.rule)})"
    sign = SIGNS[diagnosis.severity.label]
    where = places.head(finding.location).replace("`", "'")
    fix = f" **Fix:** {escaped(diagnosis.fix.title)}." if diagnosis.fix is not None else ""
    return f"- {sign} `{where}` {rule}: {sentences(finding)}{fix}"


def sentences(finding: Finding) -> str:
    """The title of a finding and what more there is to say, each with a capital and one full stop."""
    said = (escaped(text) for text in (finding.message, *finding.details))
    return " ".join(sentence(text) for text in said)


def sentence(text: str) -> str:
    """With a capital in front, unless a name in lower case begins it, and one full stop behind."""
    first = text.split(" ", 1)[0]
    if first.isalpha():
        text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def escaped(text: str) -> str:
    """Text of a user's file that may not become markup or break a table's row."""
    text = " ".join(text.split())
    for sign in "\\`*_[]<>|#":
        text = text.replace(sign, f"\\{sign}")
    return text
