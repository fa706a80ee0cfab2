"""The command line: one module a command, loaded when that command runs."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; no exception and no traceback leaves.

    0 nothing at or above the fail level, 1 findings, 2 usage or settings error, 3 a file
    could not be used or oomlint failed.
    """
    from oomlint.cli.app import run

    return run(arguments)
