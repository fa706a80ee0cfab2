"""``oomlint why``: where a value of a run comes from, and what the prediction rests on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from oomlint.cli import completion
from oomlint.cli.options import color_option, output_file_option, run_options, settings_options
from oomlint.cli.output import emit, painter
from oomlint.errors import UsageError
from oomlint.report.paint import ColorChoice
from oomlint.session.request import CheckRequest

if TYPE_CHECKING:
    from oomlint.runs.run import Run


@click.command()
@click.argument("path", shell_complete=completion.files)
@click.argument("field", required=False)
@output_file_option
@run_options
@settings_options
@color_option
def why(
    path: str,
    field: str | None,
    output_file: Path | None,
    color: ColorChoice,
    **given_options: Any,
) -> int:
    """Where FIELD of the runs in PATH comes from: the line, the derivation and its source, how well
    it is known, and what it moves. FIELD is one of the plan (checkpointing.mode) or a key as the
    file spells it. Without it: what the prediction rests on, the widest swing first."""
    from oomlint.cli.estimate import complain
    from oomlint.linting.engine import lint
    from oomlint.report.why import render
    from oomlint.session.jobs import make_jobs, merge

    given = CheckRequest(**given_options)
    report = merge(
        lint(job.workspace, job.names, job.options, explicit=job.explicit, rules=())
        for job in make_jobs(given, (path,))
    )
    if not report.runs and not report.errors:
        raise UsageError(f"no training run found in {path}")
    paint = painter(color, output_file)
    texts = [
        render(run, None if field is None else _field(run, field), paint) for run in report.runs
    ]
    emit("\n".join(texts), output_file, paint=paint)
    complain(report.errors)
    return 3 if report.errors else 0


def _field(run: Run, name: str) -> Any:
    """The field that a name means: of the plan, or what a key of the run's files sets.

    Raises:
        UsageError: neither, with the nearest one.
    """
    from oomlint.plan.fields import field_named

    for block, _ in reversed(run.parts.blocks):
        row = block.table.names.get(name)
        if row is not None:
            return row.field
    if name in run.settings:
        return name
    return field_named(name)
