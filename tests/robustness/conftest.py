"""The whole command, with the means to take things away from it in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from tests.command import oomlint as here

# A run that does not fit, with findings that have safe fixes in both files.
AXOLOTL = """\
base_model: meta-llama/Meta-Llama-3-8B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 4096
micro_batch_size: 8
gradient_checkpointing: false
optimizer: adamw_torch
bf16: true
deepspeed: ds.json
output_dir: out
pad_to_sequence_len: true
"""
DEEPSPEED = (
    '{\n  "zero_optimization": {\n    "stage": 2,\n    "reduce_bucket_size": 26000000000\n  }\n}\n'
)

Result = subprocess.CompletedProcess[str]
Oomlint = Callable[..., Result]


def command(*arguments: str, before: str = "") -> list[str]:
    """``oomlint ARGUMENTS`` as an argument list; ``before`` is Python that runs first."""
    program = f"import sys\n{before}\nfrom oomlint.cli import command\ncommand()"
    return [sys.executable, "-c", program, *arguments]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.yaml").write_text(AXOLOTL)
    (folder / "ds.json").write_text(DEEPSPEED)
    return folder


@pytest.fixture
def oomlint(project: Path) -> Oomlint:
    """Runs the command in the project: in this process, but for what only one of its own can have.
    ``before`` is Python that runs first, ``wrap`` a command line that it is started by, ``given`` its
    standard input, ``environ`` goes over the environment."""

    def run(
        *arguments: str,
        before: str = "",
        wrap: Sequence[str] = (),
        given: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Result:
        words = [*wrap, *command(*arguments, before=before)]
        if not (before or wrap or environ):
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(project)
                said = here(*arguments, stdin=None if given is None else given.encode())
            return Result(words, said.exit_code, said.stdout, said.stderr)
        return subprocess.run(
            words, input=given, env={**os.environ, **(environ or {})},
            cwd=project, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip

    return run


@pytest.fixture(scope="session")
def powerless() -> list[str]:
    """A command line under which permissions of files count, for root too."""
    if os.name != "posix":
        pytest.skip("needs POSIX permissions")
    if os.geteuid() != 0:
        return []
    wrap = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    if shutil.which("setpriv") is None or subprocess.run([*wrap, "true"], check=False).returncode:
        pytest.skip("root's power over permissions cannot be dropped here")
    return wrap


def assert_no_traceback(result: Result) -> None:
    text = result.stdout + result.stderr
    assert "Traceback" not in text, text
    assert "internal error" not in text, text


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every regular file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
