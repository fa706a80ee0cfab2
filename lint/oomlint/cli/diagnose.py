"""``oomlint diagnose``: what killed a finished run, from its logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from oomlint.cli import completion
from oomlint.cli.options import color_option, output_file_option, run_options
from oomlint.cli.output import Form, emit, painter
from oomlint.cli.progress import shown
from oomlint.cli.typing_in import STANDARD_INPUT, say_what_is_awaited
from oomlint.errors import CannotEdit, FileError, UsageError
from oomlint.report.paint import ColorChoice
from oomlint.session.request import CheckRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.diagnose import Examination
    from oomlint.diagnose.scan import Log
    from oomlint.linting.engine import Report


@click.command()
@click.argument("logs", nargs=-1, metavar="LOG...", shell_complete=completion.files)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="PATH",
    shell_complete=completion.files,
    help="A config of the run (file or folder; may be given several times) to explain it with.",
)
@click.option(
    "--keep",
    is_flag=True,
    help="Keep the peak that the logs print in .oomlint-measured.jsonl: later predictions start from it.",
)
@click.option(
    "--output-format",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    help="How the diagnosis is printed.",
)
@output_file_option
@run_options
@click.option("--isolated", is_flag=True, help="Read no settings file.")
@click.option(
    "--project-root",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Where paths inside configs start.",
)
@color_option
def diagnose(
    logs: tuple[str, ...],
    configs: tuple[str, ...],
    keep: bool,
    output_format: str,
    output_file: Path | None,
    color: ColorChoice,
    **given_options: Any,
) -> int:
    """Say what killed a finished run: which phase, which resource, which rank first, and why.

    LOG is a training log, dmesg, or what Slurm or Kubernetes say of the job; several may be
    given, of any size, compressed or not, and `-` is standard input. The exit status is 1 if the
    run died of memory (or a full disk), else 0.
    """
    from oomlint.cli.estimate import complain
    from oomlint.diagnose import examine, read_logs
    from oomlint.diagnose.render import annotation, diagnose_object, render

    if not logs:
        raise UsageError("name a log, or `-` for standard input")
    if logs.count(STANDARD_INPUT) > 1:
        raise UsageError("`-` can be given once")
    if not configs and any(given_options[name] for name in ("hardware", "host_memory", "gpus")):
        raise UsageError("--hardware and its like are about a config: name it with --config")
    if keep and not configs:
        raise UsageError("--keep needs the run that the log is of: name its config with --config")
    is_piped = STANDARD_INPUT in logs
    # A bar would be drawn over what is typed.
    is_typed = is_piped and say_what_is_awaited("a log")
    with shown("reading standard input" if is_piped else "reading", quiet=is_typed) as tick:
        scanned, errors = read_logs(logs, tick)
    report = _lint(CheckRequest(**given_options), configs, scanned) if configs else None
    examination = examine(scanned, report, errors)
    paint = painter(color, output_file)
    if output_format == "json":
        from oomlint.report.runs import as_json

        text = as_json(diagnose_object(examination))
    elif output_format == "github":
        text = annotation(examination)
    else:
        text = render(examination, paint)
    forms: dict[str, Form] = {"json": "data", "github": "commands"}
    emit(text, output_file, paint=paint, form=forms.get(output_format, "words"))
    if output_format != "json":
        complain(examination.errors)
    if keep:
        _keep(examination, CheckRequest(**given_options), configs)
    if examination.errors:
        return 3
    return 1 if examination.names_a_failure else 0


def _keep(examination: Examination, given: CheckRequest, configs: Sequence[str]) -> None:
    """Keep what was measured, and say where.

    Raises:
        UsageError: there is nothing to keep, or no place.
    """
    from oomlint.diagnose.keep import kept_of, run_of
    from oomlint.runs.measurements import keep
    from oomlint.session.jobs import make_jobs, settings_for

    try:
        run = run_of(examination)
        kept = kept_of(examination, run)
        workspace = make_jobs(given, configs)[0].workspace
        place = keep(kept, run.files[0], workspace, settings_for(given, configs).folder)
    except (UsageError, CannotEdit, FileError) as error:
        raise UsageError(f"nothing was kept: {error}") from None
    click.echo(f"kept in {place}: runs like {kept.run} are predicted from it", err=True)


def _lint(given: CheckRequest, configs: Sequence[str], logs: Sequence[Log]) -> Report:
    """The lint of the configs; on the card that the logs tell of, if nothing else names one."""
    from msgspec.structs import replace

    from oomlint.diagnose.comparison import card_of, hardware_of
    from oomlint.diagnose.verdict import judge
    from oomlint.linting.engine import lint
    from oomlint.session.jobs import make_jobs, merge

    # What a log tells of is the run that was, in which a misspelt key did nothing.
    jobs = [
        replace(job, options=replace(job.options, as_written=True))
        for job in make_jobs(given, configs)
    ]
    report = merge(
        lint(job.workspace, job.names, job.options, explicit=job.explicit) for job in jobs
    )
    card = card_of(logs, judge(logs))
    if card is None or not report.runs or any(run.hardware is not None for run in report.runs):
        return report
    parallel = report.runs[0].plan.parallel
    hardware = hardware_of(card, parallel.nodes, parallel.gpus_per_node)
    return merge(
        lint(
            job.workspace,
            job.names,
            replace(job.options, hardware=hardware),
            explicit=job.explicit,
        )
        for job in jobs
    )
