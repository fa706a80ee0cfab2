"""The picture of a report in the README, from what `oomlint` really prints: `python docs/images/report.py`.

SVG is text: the picture can be read in a diff, and a test compares it with what is printed now.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[2]
PICTURE = Path(__file__).with_name("report.svg")
EXAMPLE = "examples/axolotl-no-checkpointing"
COLUMNS = 96
_WIDTH, _HEIGHT, _MARGIN = 8.4, 19, 16  # of a letter, of a line, around all, in pixels

# SGR parameters of `oomlint.report.paint`, as a dark terminal has them.
_COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "36": "#79c0ff"}


def printed() -> str:
    """What the command prints on a terminal with colours."""
    sources = os.pathsep.join(str(ROOT / name) for name in ("lint", "rules", "schemas"))
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GITHUB_", "OOMLINT_"))
    }
    ran = subprocess.run(
        [sys.executable, "-m", "oomlint", "check", "--no-cache", "--color", "always", EXAMPLE],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": sources, "COLUMNS": str(COLUMNS)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    return ran.stdout


def picture(text: str) -> str:
    lines = [f"\x1b[2m$\x1b[0m oomlint {EXAMPLE}", *text.rstrip().split("\n")]
    width, height = round(COLUMNS * _WIDTH + 2 * _MARGIN), _HEIGHT * len(lines) + 2 * _MARGIN
    rows = "\n".join(
        f'<text x="{_MARGIN}" y="{_MARGIN + _HEIGHT * i + 14}" xml:space="preserve">{"".join(_spans(line))}</text>'
        for i, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" '
        'font-size="14" fill="#e6edf3">\n'
        "<title>The report of oomlint on a run that dies, as a terminal shows it</title>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>\n{rows}\n</svg>\n'
    )


def _spans(line: str) -> Iterator[str]:
    """The text of a line in pieces of one style, each as wide as its letters are in a terminal."""
    style = ""
    for piece in re.split(r"(\x1b\[[\d;]*m)", line):
        if piece.startswith("\x1b["):
            style = _style(piece[2:-1].split(";"))
        elif piece:
            yield f'<tspan textLength="{len(piece) * _WIDTH:.1f}"{style}>{escape(piece, quote=False)}</tspan>'


def _style(codes: list[str]) -> str:
    colour = next((_COLOURS[code] for code in codes if code in _COLOURS), "")
    bold = ' font-weight="bold"' if "1" in codes else ""
    dim = ' fill="#8b949e"' if "2" in codes else ""
    return bold + (f' fill="{colour}"' if colour else dim)


if __name__ == "__main__":
    PICTURE.write_text(picture(printed()), "utf-8")
