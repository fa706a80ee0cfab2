"""``oomlint clean``: remove what checks have kept."""

from __future__ import annotations

import click

from oomlint.cli.output import emit
from oomlint.errors import UsageError
from oomlint.session.cache import clear, folder


@click.command()
def clean() -> None:
    """Remove the cache."""
    try:
        removed = clear()
    except OSError as error:
        raise UsageError(f"the cache cannot be removed: {error}") from None
    emit(f"removed {removed} kept answer{'' if removed == 1 else 's'} from {folder()}\n")
