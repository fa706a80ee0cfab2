"""A diagnosis as text for people, as JSON, and as an annotation of GitHub Actions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from oomlint.diagnose import Examination
from oomlint.diagnose.comparison import PeakComparison
from oomlint.diagnose.frames import Frame
from oomlint.diagnose.remedies import Explanation
from oomlint.diagnose.scan import Sign
from oomlint.diagnose.shapes import (
    ComparisonShape,
    DiagnoseShape,
    ExplanationShape,
    FrameShape,
    LogShape,
    SignShape,
    VerdictShape,
)
from oomlint.diagnose.words import advice, figures, headline
from oomlint.judgement import judgement_of
from oomlint.judgement.words import sentence
from oomlint.linting.engine import Diagnosis, Report
from oomlint.linting.rule import Severity
from oomlint.report.json import error_object, finding_object
from oomlint.report.paint import Paint
from oomlint.report.places import Fingerprints, LineIndex, url
from oomlint.report.shapes import FindingShape
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib

_PLAIN = Paint()
# Of the timeline and of explanations, people read so many.
_MOST_SIGNS = 12
_MOST_RULES = 8
_MOST_RUNS = 3
_RESULTS = {
    "agrees": "agrees",
    "above": "above the prediction: something else than this config says was in force",
    "below": "below the prediction",
    "open": "",
}


def render(examination: Examination, paint: Paint = _PLAIN) -> str:
    """The diagnosis for people."""
    return "".join(line + "\n" for line in _lines(examination, paint))


def _lines(examination: Examination, paint: Paint) -> Iterator[str]:
    verdict = examination.verdict
    style = "error" if examination.names_a_failure else "bold"
    yield paint(headline(verdict), style)
    if verdict.cause is not None:
        yield from _known_from(verdict.cause, examination, paint)
    for note in verdict.notes:
        yield f"  {paint('note:', 'bold')} {note}"
    if verdict.survived:
        count = len(verdict.survived)
        times = "once" if count == 1 else f"{count} times"
        yield (
            f"  {paint('note:', 'bold')} memory ran out {times} and the run went on, first at "
            f"{_place(verdict.survived[0], paint)}"
        )
    if len(verdict.order) > 1:
        yield from _section("In order", _order(verdict.order, verdict.cause, paint), paint)
    if examination.explanations:
        yield ""
        yield from _explanations(examination, paint)
    compared = (f"  {_compared(c)}" for c in examination.comparisons)
    yield from _section("Measured", compared, paint)
    yield from _section("What to do", (f"  {text}" for text in advice(verdict)), paint)


def _known_from(cause: Sign, examination: Examination, paint: Paint) -> Iterator[str]:
    """The message that the verdict rests on, and what makes it surer."""
    verdict = examination.verdict
    text = figures(cause)
    # What the allocator says of its figures comes in one sentence.
    said = cause.text.partition(" Tried to allocate")[0] if text else cause.text
    yield f"  {_place(cause, paint)}: {said}"
    if text:
        yield f"  {text}"
    if against := _predicted(examination):
        yield f"  {against}"
    if cause.frame is not None:
        yield f"  {_decided(cause.frame)}"
    if cause.because:
        yield f"  the phase is known from: {cause.because}"
    for sign in verdict.confirmed_by:
        yield f"  confirmed by {_place(sign, paint)}: {sign.text}"
    yield f"  confidence: {verdict.confidence}"


def _section(title: str, lines: Iterable[str], paint: Paint) -> Iterator[str]:
    """Lines under a title; nothing where there are none."""
    told = list(lines)
    if told:
        yield ""
        yield paint(title, "bold")
        yield from told


def _predicted(examination: Examination) -> str:
    """What the findings say of the config's runs, beside what the message says."""
    cause, report = examination.verdict.cause, examination.report
    if report is None or cause is None or cause.signature.resource != "gpu":
        return ""
    return "; ".join(_sentence(run) for run in report.runs[:_MOST_RUNS])


def _sentence(run: Run) -> str:
    """The prediction for a run as it is written, and which keys of it do nothing there. What it died of came after what
    would have ended it."""
    ignored = ", ".join(each.key.path for each in run.meant_otherwise)
    told = sentence(replace(judgement_of(run).written, endings=()))
    return f"{told} (as written, where {ignored} does nothing)" if ignored else told


def _decided(frame: Frame) -> str:
    code = f": {frame.code}" if frame.code else ""
    return f"the frame decides: {frame.row.words} ({frame.place}{code})"


def _place(sign: Sign, paint: Paint) -> str:
    return paint(f"{sign.log}:{sign.line}", "path")


def _order(signs: Sequence[Sign], cause: Sign | None, paint: Paint) -> Iterator[str]:
    for sign in signs[:_MOST_SIGNS]:
        who = f"{sign.origin.words}: " if sign.origin.words else ""
        is_cause = cause is not None and (sign.log, sign.line) == (cause.log, cause.line)
        mark = paint("  <- the cause", "error") if is_cause else ""
        yield f"  {_place(sign, paint)}: {who}{sign.signature.title}{mark}"
    if len(signs) > _MOST_SIGNS:
        yield f"  … and {len(signs) - _MOST_SIGNS} more"


def _explanations(examination: Examination, paint: Paint) -> Iterator[str]:
    report = examination.report
    if report is None:
        yield paint("What usually explains it", "bold")
        for explanation in examination.explanations[:_MOST_RULES]:
            yield _bare(explanation, examination, paint)
        yield "  give the run's config with --config to see which of these it is"
        return
    in_config = any(explanation.diagnosis for explanation in examination.explanations)
    yield paint(f"What explains it{' in the config' if in_config else ''}", "bold")
    places = LineIndex(report)
    for explanation in examination.explanations[:_MOST_RULES]:
        if explanation.diagnosis is None:
            yield _bare(explanation, examination, paint)
        else:
            yield from _finding(explanation.diagnosis, places, paint)
    rest = len(examination.explanations) - _MOST_RULES
    if rest > 0:
        yield f"  … and {rest} more; `oomlint check` lists them all"


def _bare(explanation: Explanation, examination: Examination, paint: Paint) -> str:
    """A rule without a finding; if the frame is what it is about, that it is so."""
    rule, cause = explanation.rule, examination.verdict.cause
    frame = cause.frame if cause is not None else None
    is_it = frame is not None and frame.row.is_the_rule and rule.name == frame.row.rules[0]
    mark = " (by the traceback)" if is_it else ""
    return f"  {paint(rule.code, 'bold')} {rule.name}{mark}: {rule.summary}"


def _finding(diagnosis: Diagnosis, places: LineIndex, paint: Paint) -> Iterator[str]:
    finding, label = diagnosis.finding, diagnosis.severity.label
    where = paint(places.head(finding.location), "path")
    name = f"{paint(label, label)} {paint(finding.rule.code, 'bold')} {finding.rule.name}"
    yield f"  {where}: {name} {finding.message}"
    if diagnosis.fix is not None and diagnosis.severity >= Severity.WARNING:
        yield f"    {paint('fix:', 'fix')} {diagnosis.fix.title}"


def _compared(comparison: PeakComparison) -> str:
    floor = "at least " if comparison.is_floor else ""
    text = (
        f"{comparison.what}: {floor}{gib(comparison.measured)} "
        f"({comparison.source}, {comparison.log}:{comparison.line})"
    )
    if comparison.predicted is None:
        return text
    bounds = f"{gib(comparison.low)} to {gib(comparison.high)}"
    result = _RESULTS[comparison.result]
    return f"{text}; predicted for {comparison.run}: {gib(comparison.predicted)} ({bounds})" + (
        f": {result}" if result else ""
    )


# -- for machines --------------------------------------------------------------------------


def diagnose_object(examination: Examination) -> DiagnoseShape:
    """The diagnosis as the schema has it."""
    from oomlint import __version__

    verdict = examination.verdict
    return {
        "version": 1,
        "tool": {"name": "oomlint", "version": __version__},
        "logs": [LogShape(path=log.name, signs=dict(log.counts)) for log in examination.logs],
        "verdict": _verdict_object(examination),
        "order": [_sign_object(sign) for sign in verdict.order],
        "survived": [_sign_object(sign) for sign in verdict.survived],
        "explanations": _explanation_objects(examination),
        "comparisons": [_comparison_object(c) for c in examination.comparisons],
        "errors": [error_object(error) for error in examination.errors],
    }


def _verdict_object(examination: Examination) -> VerdictShape:
    verdict = examination.verdict
    cause = verdict.cause
    step = cause.step if cause is not None else None
    return {
        "outcome": verdict.outcome,
        "message": headline(verdict),
        "confidence": verdict.confidence,
        "resource": verdict.resource,
        "scope": verdict.scope,
        "phase": verdict.phase,
        "because": (cause.because or None) if cause is not None else None,
        "frame": _frame_object(cause.frame) if cause is not None else None,
        "step": step.done if step is not None else None,
        "total_steps": step.total if step is not None else None,
        "is_late": verdict.is_late,
        "cause": _sign_object(cause) if cause is not None else None,
        "confirmed_by": [_sign_object(sign) for sign in verdict.confirmed_by],
        "notes": list(verdict.notes),
        "advice": list(advice(verdict)),
    }


def _frame_object(frame: Frame | None) -> FrameShape | None:
    if frame is None:
        return None
    return {
        "name": frame.row.name,
        "what": frame.row.words,
        "file": frame.file,
        "function": frame.function,
        "code": frame.code or None,
    }


def _sign_object(sign: Sign) -> SignShape:
    sizes = sign.memory.by_name() if sign.memory is not None else sign.figures
    return {
        "name": sign.signature.name,
        "role": sign.signature.role,
        "title": sign.signature.title,
        "path": sign.log,
        "line": sign.line,
        "text": sign.text,
        "time": sign.time.isoformat() if sign.time is not None else None,
        "rank": sign.origin.rank,
        "local_rank": sign.origin.local_rank,
        "node": sign.origin.node,
        "pid": sign.origin.pid,
        "gpu": sign.origin.gpu,
        "bytes": dict(sizes),
    }


def _explanation_objects(examination: Examination) -> list[ExplanationShape]:
    report = examination.report
    return [
        {
            "code": explanation.rule.code,
            "name": explanation.rule.name,
            "summary": explanation.rule.summary,
            "url": url(explanation.rule),
            "finding": _finding_object(explanation, report),
        }
        for explanation in examination.explanations
    ]


def _finding_object(explanation: Explanation, report: Report | None) -> FindingShape | None:
    if explanation.diagnosis is None or report is None:
        return None
    return finding_object(explanation.diagnosis, None, LineIndex(report), Fingerprints(report))


def _comparison_object(comparison: PeakComparison) -> ComparisonShape:
    return {
        "what": comparison.what,
        "source": comparison.source,
        "path": comparison.log,
        "line": comparison.line,
        "kind": comparison.kind,
        "measured_bytes": comparison.measured,
        "is_floor": comparison.is_floor,
        "run": comparison.run,
        "predicted_bytes": comparison.predicted,
        "low_bytes": comparison.low,
        "high_bytes": comparison.high,
        "result": comparison.result,
    }


def annotation(examination: Examination) -> str:
    """One workflow command of GitHub Actions."""
    from oomlint.report.github import escaped

    verdict = examination.verdict
    command = "error" if examination.names_a_failure else "notice"
    names = ", ".join(e.rule.name for e in examination.explanations[:3])
    text = headline(verdict) + (f"; see {names}" if names else "")
    return f"::{command} title=oomlint diagnose::{escaped(text)}\n"
