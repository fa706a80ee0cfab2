"""``oomlint check``: lint, and with ``--fix`` rewrite in place."""

from __future__ import annotations

from typing import Any, get_args

import click

from oomlint import __version__
from oomlint.cli import completion
from oomlint.cli.baseline import parse_baseline
from oomlint.cli.checking import answer
from oomlint.cli.options import (
    baseline_option,
    color_option,
    output_file_option,
    run_options,
    selection_options,
    settings_options,
)
from oomlint.config.settings import FailLevel, OutputFormat
from oomlint.errors import UsageError


def _processes(ctx: click.Context, param: click.Parameter, value: Any) -> int | None:
    """``--jobs N``; ``None`` for ``auto``."""
    if value in ("auto", None):
        return None
    return int(click.IntRange(min=1).convert(value, param, ctx))


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATHS]...", shell_complete=completion.files)
@click.option("--fix", is_flag=True, help="Apply safe fixes, rewriting files in place.")
@click.option("--unsafe-fixes", is_flag=True, help="Count unsafe fixes as applicable too.")
@click.option("--diff", is_flag=True, help="Print what --fix would change; write nothing.")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 even if there are findings.")
@click.option("--exit-non-zero-on-fix", is_flag=True, help="Exit with 1 if anything was fixed.")
@click.option(
    "--fail-level",
    type=click.Choice(get_args(FailLevel)),
    help="The least severity that makes the exit status 1 (default: warning).",
)
@selection_options
@click.option(
    "--output-format",
    type=click.Choice(get_args(OutputFormat)),
    help="How findings are printed (default: text).",
)
@output_file_option
@run_options
@settings_options
@baseline_option
@click.option("--stdin-filename", metavar="NAME", help="Name of what `-` reads from stdin.")
@click.option("--show-files", is_flag=True, help="List the files recognised, with framework.")
@click.option("--show-fixes", is_flag=True, help="List what --fix did, or --diff would do.")
@click.option("-v", "--verbose", is_flag=True, help="List the prediction of every run.")
@click.option("--statistics", is_flag=True, help="Count findings by rule instead of listing them.")
@click.option("--profile", is_flag=True, help="Say on stderr how long each rule took.")
@click.option(
    "--cache/--no-cache", default=True, help="Answer from the cache if nothing has changed."
)
@click.option(
    "-j",
    "--jobs",
    "processes",
    metavar="N",
    default="auto",
    callback=_processes,
    help="Processes for many files (default: auto, one a processor).",
)
@click.option("--watch", is_flag=True, help="Check again whenever something changes.")
@color_option
@click.option("-q", "--quiet", is_flag=True, help="Print findings and nothing else.")
@click.version_option(__version__, prog_name="oomlint", message="%(prog)s %(version)s")
def check(watch: bool, **options: Any) -> int:
    """Find what makes training runs go out of memory.

    PATHS are files or folders; no path means the current folder, `-` standard input.
    """
    return _watch(options) if watch else answer(**options)


def _watch(options: dict[str, Any]) -> int:
    """The same check over and over."""
    from oomlint.cli.watch import keep_checking

    if "-" in options["paths"] or parse_baseline(options["baseline"])[0] is not None:
        raise UsageError("--watch goes with neither the path `-` nor an update of the baseline")
    output = options["output_file"]
    return keep_checking(
        lambda: answer(**{**options, "cache": False}),
        ignored=() if output is None else (output,),
        rewrites=options["fix"] and not options["diff"],
    )
