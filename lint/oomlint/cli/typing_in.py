"""What somebody sees who gives ``-`` and no pipe: a command that waits for what they type."""

from __future__ import annotations

import os
import sys

import click

STANDARD_INPUT = "-"

# What ends a text that is typed: Ctrl-D, on Windows Ctrl-Z and return.
_END = "Ctrl-Z and return" if os.name == "nt" else "Ctrl-D"


def say_what_is_awaited(what: str) -> bool:
    """Say on standard error that ``what`` is read from standard input, where that is a terminal, and tell
    whether it is.

    Of a pipe nothing is said: who writes into it, and when, is its writer's matter.
    """
    is_terminal = sys.stdin is not None and sys.stdin.isatty()
    if is_terminal:
        how = f"paste it here, and end it with {_END} on a line of its own"
        click.echo(f"oomlint: reads {what} from standard input: {how}", err=True)
    return is_terminal
