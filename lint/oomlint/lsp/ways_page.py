"""The ways to make a run fit as a page of Markdown: what each changes, needs and gives up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oomlint.judgement import judgement_of
from oomlint.judgement.planner import Way
from oomlint.judgement.words import sentence
from oomlint.report.markdown import escaped
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib, percent


def ways_page(run: Run, ways: Sequence[tuple[Way, str]]) -> str:
    """The page; each way comes with the diff that it writes, or why it cannot be written."""
    return "\n".join(_lines(run, ways)).rstrip() + "\n"


def _lines(run: Run, ways: Sequence[tuple[Way, str]]) -> Iterator[str]:
    yield f"# Ways to fit {escaped(run.name)}"
    yield ""
    yield f"As it is: {escaped(sentence(judgement_of(run).spoken))}"
    yield ""
    yield "| way | change | GPU | host | time of a step |"
    yield "|---|---|---|---|---|"
    for number, (way, _) in enumerate(ways, 1):
        gpu, host = way.estimate.gpu.peak_bytes, way.estimate.host.peak_bytes
        title = escaped("; ".join(way.titles))
        yield f"| {number} | {title} | {gib(gpu)} | {gib(host)} | {way.slowdown:.2f} x |"
    for number, (way, difference) in enumerate(ways, 1):
        yield ""
        yield f"## Way {number}: {escaped('; '.join(way.titles))}"
        yield ""
        for text in way.gives_up:
            yield f"- but {escaped(text)}"
        if way.verdict != "fits":
            yield f"- it leaves a risk of {percent(way.risk.any or 0.0)}: nothing better is known"
        if way.gives_up or way.verdict != "fits":
            yield ""
        yield from (
            ("```diff", difference, "```") if "\n" in difference else (escaped(difference),)
        )
