"""``oomlint compare``: two configs in effective settings, and what each difference costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from oomlint.cli import completion
from oomlint.cli.options import (
    color_option,
    output_file_option,
    run_options,
    settings_options,
)
from oomlint.cli.output import emit, painter
from oomlint.errors import UsageError
from oomlint.report.paint import ColorChoice
from oomlint.session.request import CheckRequest

if TYPE_CHECKING:
    from oomlint.linting.engine import Report
    from oomlint.runs.run import Run


@click.command()
@click.argument("a", shell_complete=completion.files)
@click.argument("b", shell_complete=completion.files)
@click.option(
    "--run",
    "wanted",
    metavar="NAME",
    multiple=True,
    help="Which run, where a side describes several; given twice: A's, then B's.",
)
@click.option(
    "--output-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="How the comparison is printed.",
)
@output_file_option
@run_options
@settings_options
@color_option
def compare(
    a: str,
    b: str,
    wanted: tuple[str, ...],
    output_format: str,
    output_file: Path | None,
    color: ColorChoice,
    **given_options: Any,
) -> int:
    """Compare two configs (files or folders) side by side, with the GiB that each difference
    costs: why it fits in A and not in B."""
    from oomlint.cli.estimate import complain
    from oomlint.judgement.comparison import compare as compared

    given = CheckRequest(**given_options)
    reports = [_report(given, path) for path in (a, b)]
    first, second = _chosen(reports, (a, b), wanted)
    comparison = compared(first, second)
    paint = painter(color, output_file)
    if output_format == "json":
        from oomlint.report.compare import comparison_object
        from oomlint.report.runs import as_json

        text = as_json(comparison_object(comparison))
    else:
        from oomlint.report.compare import render

        text = render(comparison, paint)
    emit(text, output_file, paint=paint, form="data" if output_format == "json" else "words")
    errors = tuple(dict.fromkeys(error for report in reports for error in report.errors))
    complain(errors)
    return 3 if errors else 0


def _report(given: CheckRequest, path: str) -> Report:
    """What a path describes, under the settings that lie beside it.

    Raises:
        FileError: nothing but files that cannot be read.
        UsageError: no run is there.
    """
    from oomlint.linting.engine import lint
    from oomlint.session.jobs import make_jobs, merge

    report = merge(
        lint(job.workspace, job.names, job.options, explicit=job.explicit, rules=())
        for job in make_jobs(given, (path,))
    )
    if not report.runs:
        if report.errors:
            raise report.errors[0]
        raise UsageError(f"no training run found in {path}")
    return report


def _chosen(
    reports: Sequence[Report], paths: tuple[str, str], wanted: tuple[str, ...]
) -> tuple[Run, Run]:
    """A run of each side: the one that is asked for, else the first, said plainly."""
    if len(wanted) > 2:
        raise UsageError("--run is given at most twice: A's run, then B's")
    names: list[str | None] = [None, None]
    if len(wanted) == 2:
        names = list(wanted)
    elif wanted:
        # One name is that of whichever side has it.
        holds = [any(run.name == wanted[0] for run in report.runs) for report in reports]
        if not any(holds):
            every = dict.fromkeys(run.name for report in reports for run in report.runs)
            raise UsageError(f"no run is called {wanted[0]!r}; there are {', '.join(every)}")
        names = [wanted[0] if held else None for held in holds]
    a, b = (
        _pick(report, letter, path, name)
        for report, letter, path, name in zip(reports, "AB", paths, names, strict=True)
    )
    return a, b


def _pick(report: Report, letter: str, path: str, name: str | None) -> Run:
    # A lone part, such as a DeepSpeed JSON that nothing names, stands behind whole runs.
    runs = sorted(report.runs, key=lambda run: run.is_fragment)
    if name is not None:
        found = next((run for run in runs if run.name == name), None)
        if found is None:
            known = ", ".join(run.name for run in runs)
            raise UsageError(f"{letter}: no run in {path} is called {name!r}; there are {known}")
        return found
    if len(runs) > 1:
        others = ", ".join(run.name for run in runs[1:])
        emit(
            f"oomlint: {letter}: {path} describes {len(runs)} runs; compared is the first,"
            f" {runs[0].name} (--run picks another: {others})\n",
            err=True,
        )
    return runs[0]
