"""The ``text`` format, for people: a block for each run in trouble, then what is no matter of memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oomlint.judgement import Judgement, judgement_of
from oomlint.judgement.words import left_open, sentence
from oomlint.linting.engine import Results
from oomlint.linting.rule import Applicability
from oomlint.report.applied import applied_lines, files_changed
from oomlint.report.blocks import alike_runs, block, counts, troubles
from oomlint.report.excerpts import finding_lines, fix_lines
from oomlint.report.floods import alike, the_same
from oomlint.report.paint import OUTCOME_STYLES, Paint, visible
from oomlint.report.places import LineIndex
from oomlint.report.wrapping import terminal_width, wrapped
from oomlint.runs.run import Run

_PLAIN = Paint()
_HOW_TO_NAME = (
    "The GPU is not known, so nothing is held against its memory: name it with "
    "--hardware 8xA100-80GB, or keep it in oomlint.toml (oomlint init)."
)

_WHAT_IS_LOOKED_FOR = (
    "Looked for: configs of Axolotl, LLaMA-Factory, TRL, torchtune and other frameworks, DeepSpeed and Accelerate "
    "files (YAML, JSON, TOML), and what starts a training in shell scripts, Python, notebooks, Makefiles and "
    "Dockerfiles, with the script or config that it names beside it. Name the file or folder that yours starts from "
    "(oomlint PATH), or ask without one: oomlint estimate llama-3.1-8b --method lora."
)


def render(
    report: Results,
    paint: Paint = _PLAIN,
    *,
    quiet: bool = False,
    verbose: bool = False,
    show_fixes: bool = False,
) -> str:
    """Runs in trouble, then other findings; then, unless ``quiet``, the summary. ``verbose`` lists
    the prediction of every run (else only of those of which something that was not read decides),
    ``show_fixes`` what was fixed."""
    width = terminal_width()
    parts = [
        "".join(line + "\n" for line in lines) + "\n"
        for lines in _blocks(report, paint, width, verbose=verbose)
    ]
    if verbose or not quiet:
        parts += [line + "\n" for line in _runs(report, paint, width, only_open=not verbose)]
    if show_fixes:
        parts += [line + "\n" for line in applied_lines(report.applied, paint, width)]
    if quiet:
        return "".join(parts)
    if any(judgement_of(run).hardware is None for run in report.runs):
        parts += [line + "\n" for line in wrapped(_HOW_TO_NAME, width, "", "")]
    parts += [line + "\n" for line in wrapped(summary(report, paint), width, "", "")]
    if not report.runs and not report.diagnoses:
        parts += [line + "\n" for line in wrapped(_WHAT_IS_LOOKED_FOR, width, "", "")]
    return "".join(parts)


def _blocks(report: Results, paint: Paint, width: int, *, verbose: bool) -> Iterator[Iterator[str]]:
    """A block for each run in trouble for its memory, then the other findings; what many files have alike once."""
    places = LineIndex(report)
    found = [trouble for trouble in troubles(report) if trouble.headlines]
    told: set[int] = set()
    for trouble, others in alike_runs(found):
        for each in (trouble, *others):
            told.update(id(d) for d in (*each.headlines, *each.causes, *each.enders))
        yield block(trouble, places, paint, width, others=others, verbose=verbose)
    rest = [diagnosis for diagnosis in report.diagnoses if id(diagnosis) not in told]
    for diagnosis, same in alike(rest):
        lines = [*finding_lines(diagnosis, places, paint, width)]
        if same:
            lines += wrapped(the_same(same, diagnosis, every=verbose), width, "  ", "    ")
        yield iter([*lines, *fix_lines(diagnosis, paint, width, indent="  ")])


def _runs(report: Results, paint: Paint, width: int, *, only_open: bool) -> Iterator[str]:
    """The prediction of every run; or only of those that have none, or of which something that was not read
    decides: of several parts of no run each has none for the same reason, and the count says how many."""
    told = _told(report)
    ended = {trouble.judgement.name for trouble in troubles(report) if trouble.enders}
    if only_open and len(told) > 1 and all(_is_idle(judgement_of(run)) for run in told):
        return
    for run in told if only_open else report.runs:
        forecast = judgement_of(run).spoken
        is_open = forecast.estimate.unknown or (forecast.hardware and left_open(forecast))
        # What ends a run is told by a finding, if any rule tells of it.
        is_told = run.name in ended if forecast.endings else not is_open
        if only_open and is_told:
            continue
        for line in wrapped(visible(sentence(forecast)), width, "", "  "):
            yield paint(line, OUTCOME_STYLES[forecast.outcome])


def _told(report: Results) -> Sequence[Run | Judgement]:
    """The runs; a part that no run uses is none beside them (a DeepSpeed JSON, say)."""
    return [run for run in report.runs if not _is_idle(judgement_of(run))] or report.runs


def _is_idle(judged: Judgement) -> bool:
    return judged.written.is_fragment and bool(judged.spoken.estimate.unknown)


def summary(report: Results, paint: Paint = _PLAIN) -> str:
    """``5 runs: 1 does not fit, 4 fit; 2 errors, 1 warning; 2 fixable with --fix``"""
    found = dict.fromkeys(("error", "warning", "info"), 0)
    for diagnosis in report.diagnoses:
        found[diagnosis.severity.label] += 1
    if not report.runs and not report.diagnoses:
        return f"no training run found in {_count(report.files_read, 'file')}{_more(report)}"
    kinds = [
        paint(_count(found[label], noun), label)
        for label, noun in (("error", "error"), ("warning", "warning"), ("info", "note"))
        if found[label]
    ]
    judged = [judgement_of(run) for run in _told(report)]
    text = f"{counts(judged)}; " if judged else ""
    return f"{text}{', '.join(kinds) or paint('no findings', 'good')}{_more(report)}"


def _more(report: Results) -> str:
    """What was mended, what can be, which files could not be used, and where oomlint itself failed."""
    parts = []
    if report.fixed:
        where = f" in {_count(files_changed(report.applied), 'file')}" if report.applied else ""
        more = f", and {_count(report.gone, 'finding')} with that" if report.gone else ""
        parts.append(f"{report.fixed} fixed{where}{more}")
    safe, unsafe = report.fixable(Applicability.SAFE), report.fixable(Applicability.UNSAFE)
    if safe:
        parts.append(f"{safe} fixable with --fix")
    if unsafe:
        parts.append(f"{unsafe} {'more' if safe else 'fixable'} with --unsafe-fixes")
    errors = report.all_errors
    bugs = sum(error.kind == "internal" for error in errors)
    if len(errors) > bugs:
        parts.append(f"{_count(len(errors) - bugs, 'file')} could not be used")
    if bugs:
        parts.append(_count(bugs, "internal error"))
    return "".join(f"; {part}" for part in parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def error_line(path: str, line: int | None, column: int | None, message: str, paint: Paint) -> str:
    """``path:line:column: cannot be read: …`` for the error stream."""
    where = ":".join(str(part) for part in (path, line, column) if part is not None)
    said = visible(" ".join(message.split()))
    return f"{paint(visible(where), 'path')}: {paint('error', 'error')}: {said}"
