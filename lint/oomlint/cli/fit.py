"""``oomlint fit``: the ways to make runs fit, ranked by what they cost; ``--apply`` writes one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from oomlint.cli import completion, progress
from oomlint.cli.options import (
    color_option,
    output_file_option,
    run_options,
    settings_options,
)
from oomlint.cli.output import emit, painter
from oomlint.documents.write import write_all
from oomlint.errors import CannotEdit, FileError, UsageError
from oomlint.judgement import judgement_of, sharded_by_its_launch
from oomlint.judgement.planner.aims import Aim
from oomlint.report.paint import ColorChoice
from oomlint.session.request import CheckRequest

if TYPE_CHECKING:
    from oomlint.judgement.planner import Way
    from oomlint.linting.engine import Report
    from oomlint.report.fits import Fitting, Launched
    from oomlint.runs.run import Run
    from oomlint.session.jobs import Job


@click.command()
@click.argument(
    "paths", nargs=-1, metavar="PATHS...", shell_complete=completion.files, required=True
)
@click.option("--apply", "number", type=click.IntRange(1), metavar="N", help="Write way N.")
@click.option(
    "--maximize",
    type=click.Choice(get_args(Aim)),
    help="Instead: the largest micro batch, the longest samples or the most tokens a second "
    "that still fit.",
)
@click.option(
    "--hardware-options",
    is_flag=True,
    help="Instead: the smallest cards and machines on which the run fits as it is.",
)
@click.option(
    "--output-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="How the ways are printed.",
)
@output_file_option
@run_options
@settings_options
@color_option
def fit(
    paths: tuple[str, ...],
    number: int | None,
    maximize: Aim | None,
    hardware_options: bool,
    output_format: str,
    output_file: Path | None,
    color: ColorChoice,
    **given_options: Any,
) -> int:
    """Rank the changes that make runs fit, the cheapest first.

    The exit status is 0 where every run fits or a way is known, 1 where none is or a run ends before its first step.
    """
    if hardware_options and (maximize or number):
        raise UsageError("--hardware-options changes nothing: it goes without --maximize, --apply")
    from oomlint.cli.estimate import complain
    from oomlint.session.jobs import make_jobs

    errors: list[FileError] = []
    runs: list[tuple[Job, Run]] = []
    with progress.shown("looking for ways") as tick:
        for job in make_jobs(CheckRequest(**given_options), paths):
            report = _linked(job)
            errors += report.errors
            runs += [(job, run) for run in report.runs]
        fittings = [
            (job, _fitting(run, maximize, hardware_options, job.options.plugins))
            for job, run in progress.counted(runs, tick)
        ]
    if not fittings and not errors:
        raise UsageError(f"no training run found in {', '.join(paths)}")
    found = [fitting for _, fitting in fittings]
    _print(found, output_format, output_file, color)
    complain(tuple(errors))
    if number is not None:
        _apply(fittings, number)
    if errors:
        return 3
    return 0 if all(fitting.is_settled for fitting in found) else 1


def _linked(job: Job) -> Report:
    """The runs of a job, which know what others use of their files."""
    from oomlint.fix.bystanders import naming_in, used_elsewhere
    from oomlint.linting.engine import lint

    report = lint(job.workspace, job.names, job.options, explicit=job.explicit, rules=())
    others = used_elsewhere(report, job.names, job.options, naming_in(job.workspace))
    if not others:
        return report
    return lint(
        job.workspace,
        job.names,
        job.options,
        explicit=job.explicit,
        elsewhere=others,
        rules=(),
    )


def _fitting(run: Run, aim: Aim | None, only_hardware: bool, plugins: Sequence[str]) -> Fitting:
    from oomlint.fix.planned import no_more_refused
    from oomlint.judgement.planner import Effort, hardware_options, largest, ways_to_fit
    from oomlint.report.fits import Fitting

    if only_hardware or run.limits.gpu_bytes is None:
        return Fitting(run, None, [], hardware_options(run), only_hardware=True)
    accepts = no_more_refused(run, plugins)
    if aim is not None:
        way = largest(run, aim, accepts=accepts)
        return Fitting(run, aim, [] if way is None else [way], [])
    effort = Effort()
    ways = ways_to_fit(run, accepts=accepts, effort=effort)
    needs_more = not ways and judgement_of(run).is_lost
    options = hardware_options(run) if needs_more else []
    launched = _launched(run, ways, plugins)
    return Fitting(run, None, ways, options, ended_early=effort.is_spent, launched=launched)


def _launched(run: Run, ways: Sequence[Way], plugins: Sequence[str]) -> Launched | None:
    """What a launch that shards the run comes to, where no change keeps what is trained and makes it fit without."""
    from oomlint.fix.planned import no_more_refused
    from oomlint.judgement.planner import ways_to_fit
    from oomlint.report.fits import Launched

    if any(way.is_safe for way in ways) or not judgement_of(run).is_lost:
        return None
    sharded = sharded_by_its_launch(run)
    if sharded is None:
        return None
    return Launched(
        sharded, ways_to_fit(sharded, unsafe=False, accepts=no_more_refused(sharded, plugins))
    )


def _print(
    found: Sequence[Fitting], output_format: str, file: Path | None, color: ColorChoice
) -> None:
    from oomlint.report import fits

    if output_format == "json":
        emit(fits.render_json(found), file, form="data")
    else:
        paint = painter(color, file)
        emit(fits.render(found, paint), file, paint=paint)


def _apply(fittings: Sequence[tuple[Job, Fitting]], number: int) -> None:
    """Write way ``number`` of every run that has so many.

    Raises:
        UsageError: no run has it, or a file cannot say it.
    """
    texts: dict[str, bytes] = {}
    originals: dict[str, bytes | None] = {}
    for job, changed in _changed(fittings, number):
        for path, text in changed.items():
            if texts.setdefault(path, text) != text:
                raise UsageError(f"{path} serves several runs; fit one of them at a time")
            originals[path] = job.workspace.read_or_none(path)
    if not texts:
        raise UsageError(f"no run has a way {number}")
    workspace = fittings[0][0].workspace
    roots = {root for job, _ in fittings for root in job.workspace.roots}
    try:
        write_all(texts, originals, workspace.cwd, roots)
    except CannotEdit as error:
        raise UsageError(f"nothing was written: {error}") from None
    count = len(texts)
    emit(f"wrote way {number} to {', '.join(sorted(texts)) if count < 4 else f'{count} files'}\n")


def _changed(
    fittings: Sequence[tuple[Job, Fitting]], number: int
) -> Iterator[tuple[Job, dict[str, bytes]]]:
    """The new bytes of the files of each run that has a way of this number."""
    from oomlint.fix.agreement import Agreement
    from oomlint.fix.apply import apply_change
    from oomlint.fix.edits import Planned
    from oomlint.fix.planned import fix_of

    chosen = [(job, fitting) for job, fitting in fittings if len(fitting.ways) >= number]
    proposed = [Planned(f.run, fix_of(f.ways[number - 1])) for _, f in chosen]
    agreement = Agreement(proposed, [fitting.run for _, fitting in fittings])
    for (job, fitting), each in zip(chosen, proposed, strict=True):
        name, fix = fitting.run.name, agreement.fix_of(each)
        if fix is None or not fix.edits:
            reason = f": {fix.reason}" if fix is not None and fix.reason else ""
            raise UsageError(f"{name}: the files cannot take it{reason}")
        try:
            yield (
                job,
                apply_change(
                    job.workspace,
                    job.names,
                    job.options,
                    Planned(fitting.run, fix),
                    explicit=job.explicit,
                ),
            )
        except CannotEdit as error:
            raise UsageError(f"{name}: not applied: {error}") from None
