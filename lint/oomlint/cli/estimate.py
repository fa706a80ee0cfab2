"""``oomlint estimate``: the memory prediction of the runs that files, or plans, describe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct
from msgspec.structs import replace

from oomlint.cli import completion, progress
from oomlint.cli.models import ModelArguments, names_model, wanted
from oomlint.cli.options import (
    color_option,
    model_options,
    output_file_option,
    run_options,
    settings_options,
)
from oomlint.cli.output import emit, painter
from oomlint.cli.typing_in import STANDARD_INPUT, say_what_is_awaited
from oomlint.errors import FileError, ParseError, ReadError, UsageError, in_words
from oomlint.files.reading import read_given
from oomlint.report.paint import ColorChoice, Paint
from oomlint.session.request import CheckRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oomlint.dialects.skeleton import Method, Shard
    from oomlint.fix.edits import Fix
    from oomlint.hardware import Hardware
    from oomlint.judgement import Judgement
    from oomlint.session.jobs import Job


@click.command()
@click.argument(
    "paths", nargs=-1, metavar="PATHS...|MODEL", shell_complete=completion.files_or_model
)
@click.option(
    "--plan", "plan_file", metavar="FILE", help="Estimate a canonical plan (JSON); `-` is stdin."
)
@click.option("--jsonl", is_flag=True, help="One plan per line in, one run per line out.")
@click.option(
    "--output-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="How the prediction is printed.",
)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the prediction there as a web page, too.",
)
@output_file_option
@model_options
@run_options
@settings_options
@color_option
def estimate(
    paths: tuple[str, ...],
    plan_file: str | None,
    jsonl: bool,
    output_format: str,
    html: Path | None,
    output_file: Path | None,
    color: ColorChoice,
    method: Method | None,
    length: int | None,
    batch: int | None,
    rank: int | None,
    shard: Shard | None,
    **given_options: Any,
) -> int:
    """Predict the memory of training runs, per GPU and per host, phase by phase.

    PATHS are the files or folders that describe the runs. For what no config describes yet, MODEL is an id of
    the catalogue (`oomlint models`) or a folder with a config.json.
    """
    given = CheckRequest(**given_options)
    asked = ModelArguments(method=method, length=length, batch=batch, rank=rank, shard=shard)
    if jsonl and plan_file is None:
        raise UsageError("--jsonl needs --plan FILE")
    if jsonl and html is not None:
        raise UsageError("--html and --jsonl exclude one another")
    output = _Output(output_format, html, output_file, color)
    if plan_file is not None:
        if paths:
            raise UsageError("--plan takes the place of PATHS")
        if asked != ModelArguments():
            raise UsageError(
                "a plan says itself how it trains: --plan goes without --method and the like"
            )
        return _plans(given, plan_file, jsonl, output)
    if not paths:
        raise UsageError("name the files or folders that describe the run, or a plan with --plan")
    if names_model(paths, asked):
        return _model(given, asked, paths[0], output)
    return _runs(given, paths, output)


class _Output(Struct, frozen=True):
    """How and where the forecasts go."""

    format: str
    html: Path | None
    file: Path | None
    color: ColorChoice


def _model(given: CheckRequest, asked: ModelArguments, name: str, output: _Output) -> int:
    from oomlint.drafts import lightest, places
    from oomlint.judgement.planner import levers
    from oomlint.report import drafts

    with progress.shown("predicting"):
        found = lightest(wanted(given, asked, name))
        answer = drafts.DraftReport.of(found, places(found), levers(found.draft.run))
    if output.html is not None:
        from oomlint.report import html

        emit(html.render([answer.judgement]), output.html)
    paint = painter(output.color, output.file)
    if output.format == "json":
        from oomlint.report.runs import as_json

        text = as_json(drafts.model_estimate_object(answer))
    else:
        text = drafts.render(answer, paint)
    emit(text, output.file, paint=paint)
    return 0


def _runs(given: CheckRequest, paths: tuple[str, ...], output: _Output) -> int:
    from oomlint.judgement import judgement_of
    from oomlint.linting.engine import lint
    from oomlint.session.jobs import make_jobs, merge

    with progress.shown("predicting") as tick:
        reports = [
            (job, lint(job.workspace, job.names, job.options, explicit=job.explicit, rules=()))
            for job in make_jobs(given, paths)
        ]
        report = merge(each for _, each in reports)
        judged = [judgement_of(run) for run in progress.counted(report.runs, tick)]
        ways: dict[str, Fix] = {}
        if output.format == "json":
            for job, each in reports:
                if any(judgement_of(run).wants_way for run in each.runs):
                    ways |= _ways(job)
    _print(judged, output, ways)
    complain(report.errors)
    if not report.runs and not report.errors:
        raise UsageError(f"no training run found in {', '.join(paths)}")
    return 3 if report.errors else 0


def _ways(job: Job) -> Mapping[str, Fix]:
    """Run → the one way out of its trouble, as a check has it."""
    from oomlint.fix.planned import with_plans
    from oomlint.linting.engine import lint
    from oomlint.linting.rule import Applicability
    from oomlint.report.blocks import ways_in

    found = lint(job.workspace, job.names, job.options, explicit=job.explicit)
    diagnoses = with_plans(found, job.options, Applicability.SAFE)
    return ways_in(replace(found, diagnoses=tuple(diagnoses)))


def _print(judged: list[Judgement], output: _Output, ways: Mapping[str, Fix]) -> None:
    if output.html is not None and judged:
        from oomlint.report import html

        emit(html.render(judged), output.html)
    paint = painter(output.color, output.file)
    if output.format == "json":
        from oomlint.report.runs import as_json, run_object

        runs = [run_object(each, ways.get(each.name)) for each in judged]
        text = as_json({"version": 1, "runs": runs})
    else:
        from oomlint.report.estimates import render

        text = render(judged, paint)
    emit(text, output.file, paint=paint, form="data" if output.format == "json" else "words")


def complain(errors: tuple[FileError, ...]) -> None:
    """Say on standard error which files could not be used."""
    from oomlint.report.text import error_line

    for error in errors:
        emit(
            error_line(error.path, error.line, error.column, error.message, Paint()) + "\n",
            err=True,
        )


def _plans(given: CheckRequest, plan_file: str, jsonl: bool, output: _Output) -> int:
    text = _read(plan_file)
    forecast = _Forecaster(given)
    if not jsonl:
        try:
            found = forecast(text)
        except UsageError as error:
            complain(_wrong(plan_file, text, str(error)))
            return 3
        _print([found], output, {})
        return 0
    from oomlint.report.runs import as_json, run_object

    lines, failed = [], False
    with progress.shown("predicting") as tick:
        for line in progress.counted(_lines(text), tick):
            try:
                lines.append(as_json(run_object(forecast(line)), indent=None))
            except UsageError as error:
                failed = True
                lines.append(as_json({"error": str(error)}, indent=None))
            except Exception as error:  # one plan's failure must not cost the others their answer
                failed = True
                message = f"internal error: {in_words(error)}"
                lines.append(as_json({"error": message}, indent=None))
    emit("".join(lines), output.file, form="data")
    return 3 if failed else 0


def _wrong(file: str, text: str, reason: str) -> tuple[FileError, ...]:
    """Everything in a plan that its schema refuses, else the reason why it was refused."""
    from oomlint_schemas.validation import problems

    found = problems("plan", text.encode())
    return tuple(
        ParseError(file, str(each), line=each.line, column=each.column) for each in found
    ) or (ParseError(file, reason),)


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


class _Forecaster:
    """Reads a plan, applies the options, predicts."""

    def __init__(self, given: CheckRequest) -> None:
        from oomlint.config.settings import framework_named
        from oomlint.session.jobs import machine_of, plugin_folders, profile_folder, settings_for

        settings = settings_for(given, ())
        self._machine: Hardware | None
        self._machine, values = machine_of(given, settings.settings)
        self._values = {**values, **(given.values or {})}
        self._framework = framework_named(
            given.framework, plugin_folders(settings), profile_folder(settings)
        )

    def __call__(self, text: str) -> Judgement:
        import json

        from oomlint.config.plans import read_plan
        from oomlint.judgement import judgement_of_plan

        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            reason = "is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise UsageError(f"the plan is not valid JSON: {reason}") from None
        plan = read_plan(value, self._values)
        if self._framework is not None:
            plan = plan.with_values({"framework": self._framework})
        return judgement_of_plan(plan, self._machine)


# A plan is a few kilobytes, of which a file may hold many.
_MOST_PLAN_BYTES = 256 * 2**20


def _read(file: str) -> str:
    if file == STANDARD_INPUT:
        say_what_is_awaited("a plan")
    try:
        return read_given(file, _MOST_PLAN_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"{file} does not exist") from None
    except OSError as error:
        raise ReadError(file, f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ReadError(file, "is not UTF-8 text") from None
