"""``oomlint review``: annotate a pull request on GitHub, or a merge request on GitLab."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from oomlint.cli.actions import add_to_summary, summary_page
from oomlint.cli.extras import needing
from oomlint.cli.options import (
    run_options,
    selection_options,
    settings_options,
)
from oomlint.cli.output import emit
from oomlint.config.settings import FailLevel
from oomlint.errors import UsageError
from oomlint.linting.rule import Severity
from oomlint.review.forge import ReadOnly
from oomlint.session.request import CheckRequest

if TYPE_CHECKING:
    from oomlint.review.assess import Assessment
    from oomlint.review.forge import ChangeRequest, Forge, Update


@click.command()
@click.option(
    "--platform",
    type=click.Choice(["github", "gitlab"]),
    help="Where the request is (default: GitLab in its CI, else GitHub).",
)
@click.option("--repository", metavar="OWNER/NAME", help="Default: what CI says.")
@click.option(
    "--pull-request",
    "number",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="The pull or merge request (default: the one that CI runs for).",
)
@click.option(
    "--output-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the review there too, as Markdown.",
)
@click.option("--dry-run", is_flag=True, help="Print the requests as JSON; post nothing.")
@click.option("--unsafe-fixes", is_flag=True, help="Suggest fixes that may change results too.")
@click.option(
    "--max-comments",
    type=click.IntRange(min=0),
    default=20,
    metavar="N",
    help="Comments on lines, at most; more goes into the summary (default: 20).",
)
@click.option("--exit-zero", is_flag=True, help="Exit with 0 even if there are findings.")
@click.option(
    "--fail-level",
    type=click.Choice(get_args(FailLevel)),
    default="warning",
    help="The least severity that makes the exit status 1 (default: warning).",
)
@click.option("--verbose", is_flag=True, help="Say on standard error what is asked of the forge.")
@selection_options
@run_options
@settings_options
def review(
    platform: Any,
    repository: str | None,
    number: int | None,
    output_file: Path | None,
    dry_run: bool,
    unsafe_fixes: bool,
    max_comments: int,
    exit_zero: bool,
    fail_level: str,
    verbose: bool,
    **given_options: Any,
) -> int:
    """Review a pull request: the memory of the runs it concerns, before and after, and what to
    change, as suggestions on its lines.

    The token comes from GITHUB_TOKEN or GH_TOKEN (GITLAB_TOKEN). The files are read as data from
    the forge, or from the git objects of the checkout here; nothing of them runs.
    """
    with needing("review", "oomlint review"):
        from oomlint.review.deliver import Delivery, assessed, publish, update_for
        from oomlint.review.environment import ReviewArguments, forge_from

    given = CheckRequest(**{**given_options, "select": given_options["select"] or None})
    log = _say if verbose else _say_nothing
    forge = forge_from(ReviewArguments(platform, repository, number), os.environ, log)
    change = forge.change()
    _warn(change)
    wanted = Delivery(given, Path.cwd(), max_comments, unsafe_fixes)
    with assessed(forge, change, wanted) as assessment:
        _keep(forge, change, assessment, output_file)
        if dry_run:
            _print_requests(forge, update_for(forge, change, assessment, wanted))
        else:
            try:
                emit(publish(forge, change, assessment, wanted) + "\n")
            except ReadOnly as error:
                _print_instead(forge, change, assessment, error)
        status = assessment.report.exit_status(Severity[fail_level.upper()])
    return 0 if exit_zero and status == 1 else status


def _warn(change: ChangeRequest) -> None:
    """Say it if a stranger's code lies here where secrets are: other steps might run it."""
    from oomlint.review.trees import current_commit

    is_privileged = os.environ.get("GITHUB_EVENT_NAME") in ("pull_request_target", "workflow_run")
    if is_privileged and change.is_fork and current_commit(Path.cwd()) == change.head:
        _say(
            "warning: this workflow has checked out a fork's commit with a token that may write."
            " oomlint runs nothing of it and needs no checkout; make sure that no other step runs it."
        )


def _print_requests(forge: Forge, update: Update) -> None:
    from oomlint.report.runs import as_json

    requests = [
        {"method": request.method, "path": request.path, "body": request.body}
        for request in forge.requests(update)
    ]
    emit(as_json({"version": 1, "requests": requests}), form="data")


def _whole(forge: Forge, change: ChangeRequest, assessment: Assessment) -> str:
    """The review as one text, that of the comments included."""
    from oomlint.review.compose import compose

    return compose(assessment, change, forge.style, use_diff=False).summary + "\n"


def _keep(forge: Forge, change: ChangeRequest, assessment: Assessment, file: Path | None) -> None:
    """The review for those whom no comment reaches: on the summary page of the job, and as a file."""
    if file is None and summary_page() is None:
        return
    from oomlint.judgement import Judgement
    from oomlint.report.markdown import chart

    after = [run.after for run in assessment.runs if not run.is_fragment]
    judged: list[Judgement] = [each for each in after if each is not None]
    text = "\n".join((_whole(forge, change, assessment), *chart(judged), ""))
    add_to_summary(text)
    if file is not None:
        try:
            file.write_text(text, "utf-8", "backslashreplace")
        except OSError as error:
            raise UsageError(f"{file} cannot be written: {error.strerror or error}") from None


def _print_instead(
    forge: Forge, change: ChangeRequest, assessment: Assessment, error: ReadOnly
) -> None:
    """What the token may not post: as annotations in a job, else as text."""
    from oomlint.review import annotations
    from oomlint.review.compose import compose

    why = "this is a request from a fork, " if change.is_fork else ""
    _say(f"{why}nothing was posted: {error.message}")
    if summary_page() is None:
        emit(_whole(forge, change, assessment))
    else:
        emit(annotations.render(compose(assessment, change, forge.style)), form="commands")


def _say(text: str) -> None:
    emit(f"oomlint: {text}\n", err=True)


def _say_nothing(_text: str) -> None:
    return
