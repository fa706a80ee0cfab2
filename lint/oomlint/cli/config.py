"""``oomlint config`` and ``oomlint init``: the settings in force, and a file to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from oomlint.cli import completion
from oomlint.cli.output import emit
from oomlint.documents.write import write_atomically
from oomlint.errors import UsageError
from oomlint.session.jobs import settings_for
from oomlint.session.request import CheckRequest


@click.command()
@click.argument("path", default=".", metavar="[PATH]", shell_complete=completion.files)
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Settings file to use instead of the nearest one.",
)
@click.option("--isolated", is_flag=True, help="Read no settings file.")
def config(path: str, output_format: str, config_file: Path | None, isolated: bool) -> None:
    """Show the settings in force for PATH, and where each one comes from."""
    if not Path(path).exists():
        raise UsageError(f"{path} does not exist")
    found = settings_for(CheckRequest(config=config_file, isolated=isolated), (path,))
    values = to_builtins(found.settings)
    rows = [(key, value, found.origin(key)) for key, value in values.items()]
    if output_format == "json":
        from oomlint.report.runs import as_json

        emit(
            as_json(
                {
                    "file": str(found.file) if found.file else None,
                    "settings": {
                        key: {"value": value, "origin": origin} for key, value, origin in rows
                    },
                }
            ),
            form="data",
        )
        return
    emit(f"settings file: {found.file or 'none'}\n")
    width = max(len(key) for key, _, _ in rows)
    for key, value, origin in rows:
        emit(f"{key:<{width}}  {_shown(value)}  ({origin})\n")


def _shown(value: Any) -> str:
    import json

    return "-" if value is None else json.dumps(value, ensure_ascii=False)


@click.command()
@click.argument("folder", default=".", type=click.Path(path_type=Path), metavar="[FOLDER]")
@click.option(
    "--hardware",
    metavar="SPEC",
    shell_complete=completion.hardware,
    help="The machine that runs are held against: 8xA100-80GB, 24GB, colab, or auto.",
)
def init(folder: Path, hardware: str | None) -> None:
    """Write a commented oomlint.toml into FOLDER (default: here)."""
    from oomlint.config.settings import template

    file = folder / "oomlint.toml"
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder")
    if file.exists():
        raise UsageError(f"{file} exists already")
    stated = {} if hardware is None else {"hardware": _named(hardware)}
    write_atomically(file, template(stated).encode(), expected=None)
    emit(f"wrote {file}\n")


def _named(hardware: str) -> str:
    """A machine by the name that reports use.

    Raises:
        UsageError: there is none of that name.
    """
    from oomlint.hardware import parse_hardware

    return "auto" if hardware == "auto" else parse_hardware(hardware).name
