"""Commands that few need and that need more than the rest: what they say where that is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from oomlint.errors import UsageError


@contextmanager
def needing(extra: str, command: str) -> Iterator[None]:
    """Around the imports of a command whose packages are those of an extra.

    Raises:
        UsageError: one of them is missing, with how to get them.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("oomlint"):
            raise
        raise UsageError(
            f"{command} needs the package {error.name}: install oomlint with its extra, as with "
            f"`pip install '.[{extra}]'` in a checkout"
        ) from None
