"""The page of error messages: each is known to `oomlint diagnose`, which says of it what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oomlint.diagnose import examine, read_logs
from oomlint.diagnose.render import render

from .conftest import ROOT

PAGE = (ROOT / "docs/errors.md").read_text("utf-8")
# A message in a block, and below it in bold what `diagnose` begins with.
SHOWN = re.findall(r"```text\n(.*?)```\n\n\*\*(.+?)\*\*", PAGE, re.DOTALL)


@pytest.mark.parametrize(("message", "verdict"), SHOWN, ids=[verdict[:50] for _, verdict in SHOWN])
def test_what_the_page_says_is_what_diagnose_says(
    message: str, verdict: str, tmp_path: Path
) -> None:
    log = tmp_path / "train.log"
    log.write_text(message)
    scanned, errors = read_logs([str(log)], lambda *_: None)
    said = render(examine(scanned, None, errors)).split("\n")[0]
    assert said.startswith(" ".join(verdict.split()).rstrip(".")), said


def test_every_message_has_its_verdict_and_what_people_paste_is_there() -> None:
    assert PAGE.count("```text\n") == len(SHOWN) >= 20
    for words in ("CUDA out of memory", "Exit code -9", "Exit code 137", "oom_kill", "OOMKilled"):
        assert re.search(rf"(?m)^## .*{words}", PAGE, re.IGNORECASE), words
