"""Visits of somebody who knows training and not this tool: what the terminal shows at each step.

``visits/*.md`` are sessions as in the docs (``…`` stands for anything), with what is said to standard error,
and after each command its exit status in brackets. What they show was read by people.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from .conftest import ROOT, Block
from .test_commands import pattern, run, sessions, user

pytestmark = pytest.mark.slow

__all__ = ["user"]

VISITS = sorted((Path(__file__).parent / "visits").glob("*.md"))


@pytest.mark.parametrize("visit", VISITS, ids=lambda visit: visit.stem)
def test_a_visit_shows_what_was_read(visit: Path, tmp_path: Path, user: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "visit"
    shutil.copytree(ROOT / "examples/axolotl-no-checkpointing", folder / "run")
    shutil.copy(ROOT / "examples/logs/trainer.log", folder / "train.log")
    (text,) = re.findall(r"```console\n(.*?)```", visit.read_text("utf-8"), re.DOTALL)
    for command, shown in sessions(Block(visit.name, 3, "console", text)):
        ran = run(f"{{ {command}; }} 2>&1", folder, user)
        printed = f"{ran.stdout}[{ran.status}]\n"
        assert pattern(shown).fullmatch(printed), f"$ {command}\n{printed}"
