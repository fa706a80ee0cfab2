"""Standard output that takes nothing: a full disk, a reader that has gone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

Oomlint = Callable[..., "subprocess.CompletedProcess[str]"]

needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
INTO_FULL = ["bash", "-c", '"$0" "$@" >/dev/full']

SAYS = ("--help", "--version", "rules", "rules --help", "config", "config --help", "check --help",
        "completion bash", "models", "explain OOM101", "diagnose --help")  # fmt: skip


@needs_full
@pytest.mark.parametrize("words", SAYS)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_is_said_into_a_full_disk(words: str, unbuffered: str, oomlint: Oomlint) -> None:
    result = oomlint(*words.split(), wrap=INTO_FULL, environ={"PYTHONUNBUFFERED": unbuffered})
    assert result.returncode == 3
    assert result.stderr == (
        "oomlint: error: standard output: cannot be written: No space left on device\n"
    )


@needs_full
@pytest.mark.parametrize("arguments", [["check", "train.yaml"], ["--help"], ["rules"]])
def test_a_module_run_into_a_full_disk(arguments: list[str], project: Path) -> None:
    """``python -m`` ends as Python does, which writes what is left; twice, for the cache's sake."""
    environ = {**os.environ, "PYTHONUNBUFFERED": "", "OOMLINT_CACHE_DIR": str(project / "cache")}
    for _ in range(2):
        with open("/dev/full", "wb") as full:
            result = subprocess.run(
                [sys.executable, "-m", "oomlint", *arguments], cwd=project, env=environ,
                stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            )  # fmt: skip
        assert result.returncode == 3
        assert result.stderr.count("\n") == 1
        assert result.stderr.endswith("cannot be written: No space left on device\n")


@needs_full
@pytest.mark.parametrize("asked", ["bash_source", "bash_complete"])
def test_completions_into_a_full_disk(asked: str, oomlint: Oomlint) -> None:
    environ = {"_OOMLINT_COMPLETE": asked, "COMP_WORDS": "oomlint ch", "COMP_CWORD": "1"}
    result = oomlint(wrap=INTO_FULL, environ=environ)
    assert result.returncode == 3
    assert "internal error" not in result.stderr
    assert "No space left on device" in result.stderr


@needs_full
def test_a_usage_error_writes_nothing_to_a_full_disk(oomlint: Oomlint) -> None:
    result = oomlint("check", "--nonsense", wrap=INTO_FULL)
    assert result.returncode == 2
    assert "standard output" not in result.stderr


@pytest.mark.parametrize("words", SAYS)
def test_a_reader_that_has_gone(words: str, oomlint: Oomlint) -> None:
    """As ``oomlint rules | head`` has it: no findings, and no words about it."""
    gone = ["bash", "-c", '"$0" "$@" | true; exit "${PIPESTATUS[0]}"']
    late = "import select\npoll = select.poll()\npoll.register(1, 0)\npoll.poll()\n"
    result = oomlint(*words.split(), wrap=gone, before=late)
    assert (result.returncode, result.stderr) == (0, "")
