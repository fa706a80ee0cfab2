"""``oomlint new``: a config for a model that fits the hardware at hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from oomlint.cli import completion, progress
from oomlint.cli.models import ModelArguments, wanted
from oomlint.cli.options import model_options
from oomlint.cli.output import emit
from oomlint.errors import CannotEdit, UsageError
from oomlint.session.request import CheckRequest

if TYPE_CHECKING:
    from oomlint.dialects.skeleton import Method, Shard
    from oomlint.drafts import Wanted


@click.command()
@click.argument("model", metavar="MODEL", shell_complete=completion.models)
@click.option(
    "--framework",
    type=click.Choice(["trl", "axolotl", "llama-factory", "torchtune", "ms-swift"]),
    required=True,
    help="Whose config is written.",
)
@click.option(
    "--hardware",
    metavar="SPEC",
    required=True,
    shell_complete=completion.hardware,
    help="What it has to fit: 2xRTX-4090, 8xA100-80GB, 2x8xH100-80GB, a cloud instance, or auto.",
)
@click.option("--host-memory", metavar="SIZE", help="RAM of one node, such as 512GiB.")
@model_options
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write it there, not to standard output.",
)
@click.option("--overwrite", is_flag=True, help="Replace FILE where it is there already.")
@click.option("--quiet", is_flag=True, help="Say nothing of what was chosen, and why.")
def new(
    model: str,
    framework: str,
    hardware: str,
    host_memory: str | None,
    method: Method | None,
    length: int | None,
    batch: int | None,
    rank: int | None,
    shard: Shard | None,
    output: Path | None,
    overwrite: bool,
    quiet: bool,
) -> int:
    """Write a config that trains MODEL on the hardware named, and fits it.

    MODEL is an id of the catalogue (`oomlint models`) or a folder with a config.json. What is left open is
    chosen, and standard error says what and why. The exit status is 1, and nothing is written, where
    nothing fits.
    """
    from oomlint.drafts import fitting
    from oomlint.report import drafts

    given = CheckRequest(framework=framework, hardware=hardware, host_memory=host_memory)
    asked = ModelArguments(method=method, length=length, batch=batch, rank=rank, shard=shard)
    if output is not None and output.exists() and not overwrite:
        raise UsageError(f"{output} is there already; --overwrite replaces it")
    wish = wanted(given, asked, model)
    with progress.shown("looking for what fits", quiet=quiet):
        found = fitting(wish)
    if found is None:
        _say_that_nothing_fits(wish, hardware)
        return 1
    file = str(output) if output is not None else found.draft.skeleton.file
    text = drafts.new_file(found, file)
    if output is None:
        emit(text)
    else:
        _write(text, output)
    if not quiet:
        emit(drafts.told(found, file, is_written=output is not None), err=True)
    return 0


def _write(text: str, output: Path) -> None:
    from oomlint.documents.write import write_atomically

    expected = output.read_bytes() if output.exists() else None
    try:
        write_atomically(output, text.encode(), expected=expected, roots=[Path("/")])
    except CannotEdit as error:
        raise UsageError(f"{output} was not written: {error}") from None


def _say_that_nothing_fits(wish: Wanted, hardware: str) -> None:
    from oomlint.drafts import lightest, places
    from oomlint.judgement.planner import levers
    from oomlint.report import drafts

    least = lightest(replace(wish, method=wish.method or "qlora"))
    answer = drafts.DraftReport.of(least, places(least), levers(least.draft.run))
    emit(drafts.nothing_fits(answer, hardware), err=True)
