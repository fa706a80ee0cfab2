"""What names of files hold is made visible in every output: it moves no terminal and commands no CI."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import get_args

import pytest
from tests.command import oomlint

from oomlint.config.settings import OutputFormat

pytestmark = pytest.mark.slow

if sys.platform == "win32":
    pytest.skip("no such file names", allow_module_level=True)

NAMES = (
    "x\n::error file=a::pwn\x1b[31m.yaml",
    "rtl\u202egpj.yaml",
    "  ##[error]\u200b\x9b31m.yaml",
)
TRAIN = (
    "model_name_or_path: meta-llama/Llama-2-70b-hf\nstage: sft\ndo_train: true\nfinetuning_type: full\n"
    "dataset: alpaca_en\ntemplate: llama2\noutput_dir: out\nper_device_train_batch_size: 8\n"
)
HARDWARE = ("--hardware", "8xA100-80GB")
COMMANDS: list[tuple[str, ...]] = [
    *(("check", ".", *HARDWARE, "--output-format", form) for form in get_args(OutputFormat)),
    ("check", ".", *HARDWARE, "--diff", "--unsafe-fixes"),
    ("check", ".", *HARDWARE, "--verbose", "--color", "never"),
    ("check", ".", "--show-files"),
    ("estimate", ".", *HARDWARE),
    ("estimate", ".", *HARDWARE, "--output-format", "json"),
    ("fit", ".", *HARDWARE),
    ("why", NAMES[0]),
    ("compare", *NAMES[:2]),
    ("check", "no\n::error::such"),
]


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in NAMES:
        (tmp_path / name).write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_name_reaches_the_output_as_it_is(odd: Path, command: tuple[str, ...]) -> None:
    text = oomlint(*command).output
    assert "pwn" in text or "such" in text or "--diff" in command
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202e]", text)
    of_ours = r"^::(?:error|warning|notice) (?:file|title)="
    started = re.findall(r"(?m)^\s*(?:::|##\w*\[).*$", text)
    assert all("github" in command and re.match(of_ours, line) for line in started), started
    assert not re.search(r"(?m)^\s*::error file=a", text)


def test_json_holds_the_very_name(odd: Path) -> None:
    result = oomlint("check", ".", *HARDWARE, "--output-format", "json")
    assert {run["files"][0] for run in json.loads(result.stdout)["runs"]} == set(NAMES)
