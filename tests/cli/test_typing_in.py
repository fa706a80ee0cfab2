"""Who gives `-` on a terminal is told what is read, and a pipe hears nothing of it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_LOG = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
_CALL = (
    "import sys, types\n"
    "if {typed}: sys.stdin.isatty = lambda: True\n"
    "from oomlint.cli import main\n"
    "sys.argv = ['oomlint', *{words}]\n"
    "sys.exit(main())\n"
)


def _asked(words: list[str], data: bytes, *, typed: bool) -> str:
    """Standard error of a command that is given a text, as if it were typed where ``typed``."""
    call = _CALL.format(typed=typed, words=words)
    environ = {**os.environ, "CI": "true"}
    done = subprocess.run(
        [sys.executable, "-c", call], input=data, capture_output=True, check=False, env=environ
    )
    assert b"Traceback" not in done.stderr, done.stderr
    return done.stderr.decode()


@pytest.mark.parametrize(
    ("words", "data", "what"),
    [
        (["diagnose", "-"], _LOG, "reads a log from standard input"),
        (["estimate", "--plan", "-"], b"{}", "reads a plan from standard input"),
        (
            ["check", "-", "--stdin-filename", "a.yaml"],
            b"a: 1\n",
            "reads a.yaml from standard input",
        ),
    ],
)
def test_a_terminal_is_told_what_is_awaited(words: list[str], data: bytes, what: str) -> None:
    assert what in _asked(words, data, typed=True)
    assert what not in _asked(words, data, typed=False)
