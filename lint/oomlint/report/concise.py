"""The ``concise`` format: one line a finding, for greps and editors, then one a run in trouble."""

from __future__ import annotations

from oomlint.judgement import Judgement
from oomlint.judgement.words import in_trouble
from oomlint.linting.engine import Results, Told
from oomlint.report.blocks import troubles
from oomlint.report.paint import Paint, visible
from oomlint.report.places import LineIndex

_PLAIN = Paint()


def render(report: Results, paint: Paint = _PLAIN) -> str:
    places = LineIndex(report)
    lines = [head(d, places, paint) for d in report.diagnoses]
    lines += [_run(trouble.judgement, paint) for trouble in troubles(report)]
    return "".join(line + "\n" for line in lines)


def _run(judgement: Judgement, paint: Paint) -> str:
    """``a.yaml: does not fit 8xA100-80GB: needs 88.7 of 79.1 GiB per GPU …``, always one line."""
    name = paint(visible(" ".join(judgement.name.split())), "path")
    return f"{name}: {visible(in_trouble(judgement))}"


def head(diagnosis: Told, places: LineIndex, paint: Paint = _PLAIN) -> str:
    """``path:line:column: severity OOM301 zero-stage-too-low message``, always one line."""
    label = diagnosis.severity.label
    rule = diagnosis.rule
    location = diagnosis.finding.location
    message = visible(" ".join(diagnosis.finding.message.split())) + places.also(location)
    where = paint(places.head(location), "path")
    return f"{where}: {paint(label, label)} {paint(rule.code, 'bold')} {rule.name} {message}"
