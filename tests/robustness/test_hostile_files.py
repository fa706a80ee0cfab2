"""Files that nobody writes on purpose: an error that names them, and the rest is still linted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from oomlint.files.workspace import Workspace
from oomlint.linting.engine import Options, Report, lint

pytestmark = pytest.mark.slow

Oomlint = Callable[..., "subprocess.CompletedProcess[str]"]

DEEP = 10_000
AXOLOTL = "base_model: meta-llama/Meta-Llama-3-8B\nmicro_batch_size: 4\n"
PYTHON = "from transformers import TrainingArguments\nTrainingArguments(output_dir='x', seed={})\n"
HOSTILE = {
    "list.yaml": AXOLOTL + "x: " + "[" * DEEP + "]" * DEEP,
    "dashes.yaml": AXOLOTL + "x:\n  " + "- " * DEEP + "1\n",
    "list.json": '{"zero_optimization": ' + "[" * DEEP + "]" * DEEP + "}",
    "list.toml": "[model]\nname = 'llama3'\nx = " + "[" * DEEP + "]" * DEEP + "\n",
    "list.py": PYTHON.format("[" * DEEP + "]" * DEEP),
    "signs.py": PYTHON.format("-" * DEEP + "1"),
    "power.py": PYTHON.format("9**9**9**9"),
    "substitutions.sh": "torchrun train.py --x " + "$(" * DEEP + ")" * DEEP + "\n",
    "parentheses.sh": "torchrun train.py --x " + ")" * 20_000 + "\n",
    "commands.sh": "torchrun train.py --output_dir x\n" + "a: 1\n" * 6_000,
    "doubling.sh": "A=aaaaaaaaaa\n" + "A=$A$A\n" * 60 + "torchrun train.py --output_dir $A\n",
    "braces.sh": "torchrun train.py {1..1000000000}" + "{a,b}" * 40 + "\n",
    "bomb.yaml": AXOLOTL + "a0: &a0 [1]\n" + "".join(
        f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]\n" for n in range(30)
    ),
    "cycle.yaml": "&all\n" + AXOLOTL + "fsdp_config: *all\n<<: *all\n",
    "Makefile": "A = $(B)\nB = $(A)\ntrain:\n\ttorchrun train.py --output_dir $(A)\n",
    "deep.dockerfile": "FROM x\nRUN torchrun train.py --x " + "${A:-" * DEEP + "}" * DEEP + "\n",
}  # fmt: skip


def linted(name: str, text: str) -> Report:
    workspace = Workspace(Path("/oomlint-hostile"), {name: text.encode()})
    return lint(workspace, [name], Options(), explicit=frozenset([name]))


@pytest.mark.parametrize("name", HOSTILE)
def test_ends_without_an_internal_error(name: str) -> None:
    report = linted(name, HOSTILE[name])
    assert not [error for error in report.errors if error.kind == "internal"]


@pytest.mark.parametrize("value", ["1" + "0" * 400, "1e999", "-0", ".nan", "-.inf", "9" * 5000])
@pytest.mark.parametrize("key", ["micro_batch_size", "sequence_len", "lora_alpha", "lora_dropout"])
def test_numbers_without_measure(key: str, value: str) -> None:
    from oomlint.report import render
    from oomlint.report.paint import Paint

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    text = AXOLOTL.replace("micro_batch_size: 4\n", "") + f"adapter: lora\n{key}: {value}\n"
    report = linted("train.yaml", text)
    assert not [error for error in report.errors if error.kind == "internal"]
    json.loads(render(report, "json", Paint(), quiet=False), parse_constant=refuse)


@pytest.fixture
def odd(project: Path) -> Path:
    if sys.platform == "win32":
        pytest.skip("needs POSIX files")
    os.mkfifo(project / "fifo.yaml")
    (project / "zero.json").symlink_to("/dev/zero")
    (project / "loop.yaml").symlink_to("loop.yaml")
    (project / "again").symlink_to(".")
    (project / "folder.yaml").mkdir()
    (project / "sources.sh").write_text(
        "source /dev/zero\nsource fifo.yaml\nsource sources.sh\naxolotl train train.yaml\n"
    )
    (project / "names.yaml").write_text(AXOLOTL + "deepspeed: fifo.yaml\n")
    (project / "utf16.yaml").write_bytes(AXOLOTL.encode("utf-16"))
    return project


def test_a_folder_of_oddities(odd: Path, oomlint: Oomlint) -> None:
    result = oomlint("--isolated", "--output-format", "concise", ".")
    assert result.returncode in (1, 3), result.stderr
    assert "internal error" not in result.stdout + result.stderr
    assert "train.yaml:" in result.stdout


@pytest.mark.parametrize("name", ["fifo.yaml", "zero.json", "utf16.yaml"])
def test_named_files_that_cannot_be_read(name: str, odd: Path, oomlint: Oomlint) -> None:
    result = oomlint("--isolated", name)
    assert result.returncode == 3
    assert f"{name}" in result.stderr


def test_closed_folders(project: Path, oomlint: Oomlint, powerless: list[str]) -> None:
    closed = project / "closed"
    closed.mkdir()
    (closed / "train.yaml").write_text(AXOLOTL)
    closed.chmod(0)
    try:
        for path in ("closed", "closed/train.yaml"):
            result = oomlint(path, wrap=powerless)
            assert result.returncode == 3, result.stderr
            assert "internal" not in result.stderr
            assert "ermission denied" in result.stderr
    finally:
        closed.chmod(0o755)


def test_a_closed_file_is_told_of_and_the_rest_is_linted(
    project: Path, oomlint: Oomlint, powerless: list[str]
) -> None:
    closed = project / "sub" / "closed.yaml"
    closed.parent.mkdir()
    closed.write_text(AXOLOTL)
    closed.chmod(0)
    result = oomlint("check", "--no-cache", "--output-format", "json", ".", wrap=powerless)
    assert result.returncode == 3, result.stderr
    assert '"name": "train.yaml"' in result.stdout
    assert "sub/closed.yaml" in result.stdout


@pytest.mark.parametrize("mode", [0o000, 0o300, 0o600], ids=["none", "no list", "no look"])
def test_a_closed_folder_is_told_of_and_the_rest_is_linted(
    mode: int, project: Path, oomlint: Oomlint, powerless: list[str]
) -> None:
    closed = project / "sub" / "closed"
    closed.mkdir(parents=True)
    (closed / "train.yaml").write_text(AXOLOTL)
    closed.chmod(mode)
    try:
        for command in (
            ("check", "--output-format", "json"),
            ("estimate", "--output-format", "json"),
        ):
            result = oomlint(*command, ".", wrap=powerless)
            assert result.returncode == 3, result.stderr
            assert '"name": "train.yaml"' in result.stdout
            said = result.stderr + result.stdout
            assert "sub/closed" in said
            assert "the folder cannot be read: permission denied" in said
        (project / "oomlint.toml").write_text('exclude = ["sub"]\n')
        assert oomlint(".", wrap=powerless).returncode in (0, 1)
    finally:
        closed.chmod(0o755)


def test_a_file_of_the_kernel_is_read_no_further_than_it_says(
    project: Path, oomlint: Oomlint
) -> None:
    """``/proc/kmsg`` is a regular file of no bytes; whoever reads it waits until the kernel speaks."""
    from oomlint.files.reading import read_regular

    endless = Path("/proc/self/environ")
    if not endless.exists() or endless.stat().st_size:
        pytest.skip("needs /proc")
    assert endless.read_bytes()
    assert read_regular(endless) == b""
    assert Workspace(endless.parent).read(endless.name) == b""
    for name in ("kmsg.yaml", "oomlint.toml"):
        (project / name).symlink_to("/proc/kmsg")
    environ = {"OOMLINT_CACHE_DIR": str(project.parent / "cache")}
    for _ in range(2):
        result = oomlint("--hardware", "8xA100-80GB", "kmsg.yaml", environ=environ)
        assert result.returncode in (0, 3), result.stderr
