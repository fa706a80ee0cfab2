"""The fenced blocks of the pages that people read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Rule pages are made by `oomlint.linting.pages` and tried by the rules' own harness.
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")])

_FENCE = re.compile(
    r"^(?P<indent>[ ]*)(?P<fence>`{3,})(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^(?P=indent)(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    """All blocks of these languages, in the order of the pages."""
    return [block for page in PAGES for block in _of(page) if block.language in languages]


def _of(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    name = page.relative_to(ROOT).as_posix()
    for match in _FENCE.finditer(text):
        indent = match["indent"]
        inner = "\n".join(line.removeprefix(indent) for line in match["text"].split("\n"))
        yield Block(name, text.count("\n", 0, match.start()) + 1, match["language"], inner)
