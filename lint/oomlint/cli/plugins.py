"""``oomlint plugins``: what other packages and folders bring, and consent to the latter."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from oomlint.cli.output import emit
from oomlint.errors import UsageError
from oomlint.plugins import dialects_in_force, profiles_in_force, rules_in_force
from oomlint.plugins.consent import allow as keep_consent, consent_file, forget as drop_consent
from oomlint.plugins.folder import FolderProblem, Sources, read_folder
from oomlint.session.jobs import plugin_folders, profile_folder, settings_for
from oomlint.session.request import CheckRequest


@click.group(invoke_without_command=True)
@click.pass_context
def plugins(ctx: click.Context) -> int | None:
    """List the plug-ins in force here; allow or forget a folder of them."""
    return _list() if ctx.invoked_subcommand is None else None


def _list() -> int:
    settings = settings_for(CheckRequest(), (".",))
    folders, own = plugin_folders(settings), profile_folder(settings)
    rules, dialects = rules_in_force(folders), dialects_in_force(folders, own)
    brought = Counter[tuple[str, str]]()
    for rule in rules.items:
        brought[rule.origin, "rule"] += 1
    for dialect in dialects.items.dialects:
        brought[dialect.origin, "dialect"] += 1
    for origin in profiles_in_force(own).items:
        brought[origin, "profile"] += 1
    for (origin, what), number in sorted(brought.items()):
        if origin:
            emit(f"{origin}: {number} {what}{'' if number == 1 else 's'}\n")
    errors = {(e.path, e.message) for e in (*rules.errors, *dialects.errors)}
    for path, message in sorted(errors):
        emit(f"{path}: error: {message}\n", err=True)
    if not errors and not any(origin for origin, _ in brought):
        emit("no plug-ins\n")
    return 3 if errors else 0


@plugins.command()
@click.argument("folder", type=click.Path(path_type=Path))
def allow(folder: Path) -> None:
    """Let the rules in FOLDER run on this machine, as they are now.

    Read them first: they are code, and run whenever settings that name the folder are in force.
    """
    sources = _read(folder)
    keep_consent(str(folder.absolute()), sources.digest)
    emit(f"allowed {folder} as it is now ({sources.digest[:16]}):\n")
    for name in sorted(sources.files):
        emit(f"  {name}\n")
    emit(f"kept in {consent_file()}; any change in the folder needs a new consent\n")


@plugins.command()
@click.argument("folder", type=click.Path(path_type=Path))
def forget(folder: Path) -> None:
    """Take back the consent to FOLDER."""
    if not drop_consent(str(folder.absolute())):
        raise UsageError(f"{folder} was not allowed")
    emit(f"{folder} does not run any more\n")


def _read(folder: Path) -> Sources:
    try:
        return read_folder(folder.absolute())
    except FolderProblem as problem:
        raise UsageError(f"{folder} cannot be a plug-in: {problem}") from None
