"""What ``oomlint check`` does, however it was called."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from oomlint.cli import progress
from oomlint.cli.actions import summary_page, usual_format, write_summary
from oomlint.cli.baseline import BaselineAction, note, parse_baseline, update
from oomlint.cli.output import Form, emit, emit_bytes, painter
from oomlint.cli.typing_in import say_what_is_awaited
from oomlint.documents.staged import clear, clear_folders, is_staged
from oomlint.documents.write import is_below, write_all
from oomlint.errors import CannotEdit, FileError, ReadError, UsageError
from oomlint.files.disk import MAX_NOTEBOOK_BYTES
from oomlint.files.reading import read_given
from oomlint.linting.engine import Report, Results, lint
from oomlint.linting.rule import Applicability, Severity
from oomlint.plugins import has_packages
from oomlint.report import render
from oomlint.report.paint import ColorChoice, Paint, visible
from oomlint.runs.run import Run
from oomlint.session.cache import keep
from oomlint.session.jobs import FEW, Job, make_jobs, merge, settings_for
from oomlint.session.request import CheckRequest


class Mode(Struct, frozen=True, kw_only=True):
    """What ``check`` does besides linting, and how it ends."""

    fix: bool = False
    unsafe: bool = False
    diff: bool = False
    exit_zero: bool = False
    exit_non_zero_on_fix: bool = False
    fail_level: Severity = Severity.WARNING
    output_format: str = "text"
    output_file: Path | None = None
    stdin_name: str | None = None
    statistics: bool = False
    profile: bool = False
    color: ColorChoice = "auto"
    quiet: bool = False
    verbose: bool = False
    show_fixes: bool = False
    baseline: BaselineAction | None = None
    processes: int | None = None
    """At most so many lint many files; ``None``: as many as there are processors."""
    keeps: bool = False
    """Whether the answer may be kept, and said again, for as long as nothing that it rests on changes."""


class Fixed(Struct):
    """Texts after fixing, by display path, beside what they were (``None``: no file yet)."""

    texts: dict[str, bytes] = field(default_factory=dict)
    originals: dict[str, bytes | None] = field(default_factory=dict)


def answer(
    paths: Sequence[str] = (),
    *,
    fix: bool = False,
    unsafe_fixes: bool = False,
    diff: bool = False,
    exit_zero: bool = False,
    exit_non_zero_on_fix: bool = False,
    fail_level: str | None = None,
    output_format: str | None = None,
    output_file: Path | None = None,
    stdin_filename: str | None = None,
    show_files: bool = False,
    statistics: bool = False,
    profile: bool = False,
    cache: bool = True,
    processes: int | None = None,
    color: ColorChoice = "auto",
    quiet: bool = False,
    verbose: bool = False,
    show_fixes: bool = False,
    baseline: str | None = None,
    **given_options: Any,
) -> int:
    """Check, say what was found, and return the exit status. The options are those of the command;
    what is left of them is what :class:`CheckRequest` has.

    Raises:
        UsageError: options or settings are wrong, or a path does not exist.
        FileError: a folder cannot be listed, or a report not written.
    """
    action, file = parse_baseline(baseline)
    if action is not None and (fix or diff or "-" in paths):
        raise UsageError(f"--baseline {action} goes with neither --fix, --diff nor the path `-`")
    given = CheckRequest(
        **_selected(given_options), baseline=file, without_baseline=action is not None
    )
    overlay, paths = _standard_input(paths or (".",), stdin_filename)
    settings = settings_for(given, paths).settings
    mode = Mode(
        fix=fix and not diff,
        unsafe=unsafe_fixes,
        diff=diff,
        exit_zero=exit_zero,
        exit_non_zero_on_fix=exit_non_zero_on_fix,
        fail_level=Severity[(fail_level or settings.fail_level).upper()],
        output_format=output_format or settings.output_format or usual_format(),
        output_file=output_file,
        stdin_name=stdin_filename if overlay else None,
        statistics=statistics,
        profile=profile,
        color=color,
        quiet=quiet,
        verbose=verbose,
        show_fixes=show_fixes,
        baseline=action,
        processes=processes,
    )
    jobs = make_jobs(given, paths, overlay)
    if mode.fix:
        jobs = [_cleared(job) for job in jobs]
    if show_files:
        return _show_files(jobs)
    mode = replace(mode, keeps=cache and _may_be_kept(jobs, mode, given))
    status = _run(jobs, mode, given)
    if mode.keeps and status in (0, 1):
        keep(status)
    return status


def _cleared(job: Job) -> Job:
    """The job without texts that a killed ``--fix`` left behind: this one does its work anew."""
    staged = {name for name in job.names if is_staged(name)}
    gone = {name for name in staged if clear(job.workspace.file(name))}
    if not gone:
        return job
    names = tuple(name for name in job.names if name not in gone)
    return replace(job, names=names, explicit=job.explicit - gone)


def _may_be_kept(jobs: Sequence[Job], mode: Mode, given: CheckRequest) -> bool:
    """Whether the answer depends on nothing but the files that were looked at, and does
    nothing but to be printed."""
    acts = mode.fix or mode.diff or mode.profile or mode.output_file or mode.baseline
    asks = mode.stdin_name is not None or "auto" in (
        given.hardware,
        *(job.found.settings.hardware for job in jobs),
    )
    foreign = has_packages() or any(job.options.plugins or job.options.baseline for job in jobs)
    return not (acts or asks or foreign or "GITHUB_STEP_SUMMARY" in os.environ)


def _selected(options: Mapping[str, Any]) -> dict[str, Any]:
    """``--select`` that was not given differs from an empty one in the settings."""
    return {**options, "select": options.get("select") or None}


def _standard_input(
    paths: Sequence[str], name: str | None
) -> tuple[dict[str, bytes], tuple[str, ...]]:
    if "-" not in paths:
        if name is not None:
            raise UsageError("--stdin-filename needs the path `-`")
        return {}, tuple(paths)
    if len(paths) > 1:
        raise UsageError("`-` is the only path where it is given")
    if name is None:
        raise UsageError("`-` needs --stdin-filename, whose ending says what the text is")
    try:
        say_what_is_awaited(name)
        return {name: read_given("-", MAX_NOTEBOOK_BYTES)}, (name,)
    except OSError as error:
        raise ReadError(name, f"cannot be read: {error.strerror or error}") from None


def _show_files(jobs: Sequence[Job]) -> int:
    report = merge(
        lint(job.workspace, job.names, job.options, explicit=job.explicit, rules=()) for job in jobs
    )
    emit("".join(f"{visible(path)}\t{name}\n" for path, name in sorted(report.recognised.items())))
    _complain(report, Paint())
    return 3 if report.errors else 0


def _run(jobs: Sequence[Job], mode: Mode, given: CheckRequest) -> int:
    timings: dict[str, float] | None = {} if mode.profile else None
    fixed = Fixed()
    with progress.shown("checking", quiet=mode.quiet) as tick:
        reports = [_report(job, mode, fixed, timings, tick) for job in jobs]
    if mode.baseline is not None:
        reports = update(mode.baseline, given, jobs, reports)
    report = merge(reports)
    if mode.fix:
        failure = _write(jobs, mode, fixed, report)
        if failure is not None:
            # What is on disk is what was there before, so that is what gets reported.
            fixed, mode = Fixed(), replace(mode, fix=False)
            report = merge(_report(job, mode, fixed, None) for job in jobs)
            report = replace(report, errors=(*report.errors, failure))
    if mode.diff:
        _print_diff(report, mode, fixed)
    else:
        _print_report(report, mode)
    if mode.output_format != "json" or mode.diff:
        _complain(report, painter(mode.color, err=True))
    if mode.output_format == "text" and not mode.quiet and not mode.diff:
        emit(note(report, jobs), err=True)
    if timings is not None:
        _print_timings(timings)
    return _status(report, mode, bool(fixed.texts))


def _report(
    job: Job,
    mode: Mode,
    fixed: Fixed,
    timings: dict[str, float] | None,
    tick: progress.Tick | None = None,
) -> Results:
    """Lint one job, and fix it in memory where that is asked for."""
    workspace = job.workspace.at_a_glance().with_overlay(fixed.texts)
    if not (mode.fix or mode.diff):
        return _linted(replace(job, workspace=workspace), mode, timings, tick)
    from oomlint.fix.apply import fix_all
    from oomlint.fix.bystanders import naming_in

    if timings is not None:  # what rules cost is told of the files as they are
        lint(workspace, job.names, job.options, explicit=job.explicit, timings=timings)
    result = fix_all(
        workspace,
        job.names,
        job.options,
        explicit=job.explicit,
        unsafe=mode.unsafe,
        naming=naming_in(workspace),
        reports_after=not mode.diff,
    )
    for path, text in result.texts.items():
        fixed.originals.setdefault(path, result.originals[path])
        fixed.texts[path] = text
    if not mode.diff or result.before is None:
        return result.report
    # A diff has the findings, and so the status, of the files as they are.
    return replace(result.before, applied=result.report.applied)


def _linted(
    job: Job, mode: Mode, timings: dict[str, float] | None, tick: progress.Tick | None
) -> Results:
    def proposed(job: Job, tick: progress.Tick | None = None) -> Report:
        return lint(
            job.workspace,
            job.names,
            job.options,
            explicit=job.explicit,
            progress=tick,
            timings=timings,
            others_train=job.others_train,
        )

    def planned(report: Report, job: Job) -> Report:
        """The report with the fixes that ``--fix`` would begin with, for whoever asks for them."""
        if not report.may_be_fixed:
            return report
        from oomlint.fix.planned import planned_report

        level = Applicability.UNSAFE if mode.unsafe else Applicability.SAFE
        return planned_report(report, job.options, level)

    # The rules of plug-ins are known to the process that loaded them, the times of rules too.
    is_plain = timings is None and not job.options.plugins and not has_packages()
    if len(job.names) > FEW and is_plain and mode.baseline is None:
        from oomlint.session.many import lint_many

        asked = f"{_shows_fixes(mode)} {mode.unsafe}" if mode.keeps else None
        report = lint_many(
            job,
            proposed,
            mode.processes,
            tick or progress.ignore,
            asked,
            bounds=_shows_bounds(mode),
            plan=planned if _shows_fixes(mode) else None,
        )
        if report is not None:
            return report
    found = proposed(job, tick)
    return planned(found, job) if _shows_fixes(mode) else found


# Of the output formats those that show no fix, for which nobody has to look for a plan: which finding leads is
# told by what rules propose.
_WITHOUT_FIXES = frozenset(("concise", "github", "gitlab", "junit"))


def _shows_fixes(mode: Mode) -> bool:
    return mode.output_format not in _WITHOUT_FIXES or mode.statistics or summary_page() is not None


# Those that show how far predictions may lie off, for which each release of a library is estimated.
_WITH_BOUNDS = frozenset(("json", "markdown"))


def _shows_bounds(mode: Mode) -> bool:
    return mode.output_format in _WITH_BOUNDS or summary_page() is not None


def _write(jobs: Sequence[Job], mode: Mode, fixed: Fixed, report: Results) -> FileError | None:
    """Put the fixed texts where they belong: into the files, or for ``-`` on standard output.

    Returns why nothing was written, if that is so.
    """
    workspace, texts = jobs[0].workspace, fixed.texts
    if mode.stdin_name is not None:
        name = workspace.name(mode.stdin_name)
        whole = texts.pop(name, None) or workspace.read(name)
        emit_bytes(whole)
    roots = {root for job in jobs for root in job.workspace.roots}
    real = [root.resolve() for root in roots]
    runs = (run for run in report.runs if isinstance(run, Run))
    names = {*report.recognised, *(name for run in runs for name in run.sources)}
    folders = {workspace.file(name).parent for name in names}
    clear_folders(folder for folder in folders if is_below(folder, real))
    try:
        write_all(texts, fixed.originals, workspace.cwd, roots)
    except CannotEdit as error:
        return ReadError(", ".join(texts), f"nothing was written: {error}")
    except FileError as error:
        return ReadError(error.path, f"nothing was written: {error}")
    return None


def _print_diff(report: Results, mode: Mode, fixed: Fixed) -> None:
    from oomlint.report import diff
    from oomlint.report.applied import applied_lines
    from oomlint.report.wrapping import terminal_width

    paint = painter(mode.color, mode.output_file)
    text = diff.render(fixed.texts, fixed.originals, paint)
    emit(text, mode.output_file, paint=paint, form="bytes")
    if mode.show_fixes:
        paint = painter(mode.color, err=True)
        for line in applied_lines(report.applied, paint, terminal_width(), head="would fix"):
            emit(line + "\n", err=True, paint=paint)
    if not mode.quiet:
        count = len(fixed.texts)
        what = f"{count} file{'' if count == 1 else 's'}" if count else "nothing"
        emit(f"would change {what}\n", err=True)


# Of the output formats those that are no JSON.
_FORMS: Mapping[str, Form] = {
    "text": "words",
    "concise": "words",
    "markdown": "words",
    "junit": "words",
    "github": "commands",
}


def _print_report(report: Results, mode: Mode) -> None:
    # Standard output belongs to the fixed text when that was standard input.
    err = mode.stdin_name is not None and mode.fix
    paint = painter(mode.color, mode.output_file, err=err)
    if mode.statistics:
        from oomlint.report.statistics import render as statistics

        text = statistics(report, mode.output_format, paint)
    else:
        text = render(
            report,
            mode.output_format,
            paint,
            quiet=mode.quiet,
            verbose=mode.verbose,
            show_fixes=mode.show_fixes,
        )
        write_summary(report)
    form = _FORMS.get(mode.output_format, "data")
    emit(text, mode.output_file, err=err, paint=paint, form=form)


def _complain(report: Results, paint: Paint) -> None:
    from oomlint.report.text import error_line

    for error in report.all_errors:
        line = error_line(error.path, error.line, error.column, error.message, paint)
        emit(line + "\n", err=True, paint=paint)


def _print_timings(timings: Mapping[str, float]) -> None:
    for name, seconds in sorted(timings.items(), key=lambda item: -item[1]):
        emit(f"{seconds * 1000:9.1f} ms  {name}\n", err=True)


def _status(report: Results, mode: Mode, has_fixed: bool) -> int:
    status = report.exit_status(mode.fail_level)
    if status == 1 and mode.exit_zero:
        status = 0
    if status == 0 and mode.fix and has_fixed and mode.exit_non_zero_on_fix:
        status = 1
    return status
