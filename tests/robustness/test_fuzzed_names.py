"""Names, paths and values of odd characters, drawn at random, in every format that oomlint writes."""

from __future__ import annotations

import json
import random
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

_ODD = (
    "\x1b[31m", "\x1b]0;t\x07", "\x9b2J", "\u202e", "\u2066", "\u200b", "\ufeff", "\x7f", "\x00", "\r", "\n",
    "\n::error::pwn", "\n##[error]pwn", "\u2028", "\u0085", "%0A::error::pwn", "</script>", "]]>", "&", "'", '"', "`", "|",
    "\\", "é", "模", " ", "-", "--", "~", "$(id)", "hf_" + "a" * 34,
)  # fmt: skip
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u202a-\u202e\u2066-\u2069\ufeff]")
_COMMAND = re.compile(r"(?m)^\s*(?:::(?!(?:error|warning|notice) (?:file|title)=)|##\w*\[)")
_HARDWARE = ("--isolated", "--hardware", "8xA100-80GB")
_SEEDS = range(3)


def _odd(draw: random.Random, *, in_name: bool) -> str:
    text = "x" + "".join(draw.choice(_ODD) + draw.choice("ab") for _ in range(4))
    return text.replace("\x00", "").replace("</script>", "<script>") if in_name else text


def _project(at: Path, seed: int) -> list[str]:
    draw = random.Random(seed)
    names = []
    for number in range(2):
        folder = at / _odd(draw, in_name=True)
        folder.mkdir(exist_ok=True)
        config = {
            "base_model": "meta-llama/Llama-2-70b-hf",
            "datasets": [{"path": _odd(draw, in_name=False), "type": "alpaca"}],
            "micro_batch_size": 8,
            "optimizer": _odd(draw, in_name=False),
            _odd(draw, in_name=False): _odd(draw, in_name=False),
            "hub_token": "hf_" + "b" * 34,
            "deepspeed": _odd(draw, in_name=True) + ".json",
            "output_dir": _odd(draw, in_name=False),
        }
        file = folder / f"{number}{_odd(draw, in_name=True)}.yaml"
        file.write_text(json.dumps(config))  # which is YAML as well
        names.append(str(file.relative_to(at)))
    return names


def _commands(names: list[str]) -> list[tuple[str, ...]]:
    return [
        *(("check", ".", *_HARDWARE, "--output-format", form) for form in get_args(OutputFormat)),
        ("check", ".", *_HARDWARE, "--verbose", "--color", "never"),
        ("check", ".", *_HARDWARE, "--diff", "--unsafe-fixes"),
        ("check", ".", "--show-files"),
        ("estimate", ".", *_HARDWARE),
        ("estimate", ".", *_HARDWARE, "--output-format", "json"),
        ("why", names[0]),
    ]


@pytest.mark.parametrize("seed", _SEEDS)
def test_nothing_odd_reaches_an_output_as_it_is(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = _project(tmp_path, seed)
    monkeypatch.chdir(tmp_path)
    for command in _commands(names):
        result = oomlint(*command)
        assert result.exit_code in (0, 1, 3), command
        text = result.output
        assert "Traceback" not in text, command
        assert not _HIDDEN.search(text), (command, _HIDDEN.findall(text))
        assert not _COMMAND.search(text), command
        is_data = "json" in command or "sarif" in command or "--diff" in command
        assert is_data or "b" * 30 not in text, command
