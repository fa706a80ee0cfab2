"""Options that several commands share, and what they say together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from oomlint.cli import completion
from oomlint.linting.baseline import DEFAULT_NAME

F = TypeVar("F", bound=Callable[..., Any])


def words(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Comma separated words of a repeatable option."""
    return tuple(word.strip() for text in value for word in text.split(",") if word.strip())


def pairs(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, Any]:
    """``KEY=VALUE`` of ``--set``: a leaf of the canonical plan, read by its type."""
    if not value:
        return {}
    from oomlint.config.overrides import read_pair

    try:
        return dict(read_pair(text) for text in value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


_RUN = (
    click.option(
        "--hardware",
        metavar="SPEC",
        shell_complete=completion.hardware,
        help="8xA100-80GB, 2x8xH100-80GB, 24GB for any card of that size, a cloud instance, colab, kaggle, "
        "a profile of the settings, or auto.",
    ),
    click.option("--host-memory", metavar="SIZE", help="RAM of one node, such as 512GiB."),
    click.option("--gpus", metavar="[NODESx]N", help="GPUs per node, whatever the files say."),
    click.option(
        "--framework",
        metavar="NAME",
        shell_complete=completion.frameworks,
        help="Read every config as this framework's.",
    ),
    click.option(
        "--set",
        "values",
        metavar="KEY=VALUE",
        multiple=True,
        callback=pairs,
        help="A field of the canonical plan, such as seq.max_len=8192; wins over the files.",
    ),
)

_MODEL = (
    click.option(
        "--method",
        type=click.Choice(["full", "lora", "qlora"]),
        help="What is trained: all weights, or adapters over weights in 16 or 4 bits.",
    ),
    click.option("--length", type=click.IntRange(1), metavar="TOKENS", help="The longest sample."),
    click.option("--batch", type=click.IntRange(1), metavar="N", help="Samples a GPU at once."),
    click.option("--rank", type=click.IntRange(1), metavar="R", help="The rank of adapters."),
    click.option(
        "--shard",
        type=click.Choice(["none", "zero2", "zero3", "fsdp"]),
        help="How the GPUs share the model; the lightest way that fits unless it is said.",
    ),
)

_SETTINGS = (
    click.option(
        "--config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Settings file to use instead of the nearest one.",
    ),
    click.option("--isolated", is_flag=True, help="Read no settings file."),
    click.option(
        "--project-root",
        type=click.Path(path_type=Path),
        metavar="FOLDER",
        help="Where paths inside configs start.",
    ),
)


def _rules_option(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(
        name,
        multiple=True,
        callback=words,
        metavar="RULES",
        shell_complete=completion.rule_names,
        help=text,
    )


_SELECTION = (
    _rules_option("--select", "Run only these rules."),
    _rules_option("--extend-select", "Run these too."),
    _rules_option("--ignore", "Do not run these."),
)


def _with(options: tuple[Callable[[Any], Any], ...]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


run_options = _with(_RUN)
settings_options = _with(_SETTINGS)
model_options = _with(_MODEL)
selection_options = _with(_SELECTION)

color_option = click.option(
    "--color", type=click.Choice(["auto", "always", "never"]), default="auto", help="Colour output."
)
output_file_option = click.option(
    "--output-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the report there.",
)
baseline_option = click.option(
    "--baseline",
    metavar="FILE|write|prune",
    help=(
        "Do not report the findings listed in FILE. `write` lists all there are now, `prune` "
        f"drops what is no longer found; both in {DEFAULT_NAME}, the file of the settings, or "
        "as in `write=FILE`."
    ),
)
