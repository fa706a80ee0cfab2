"""What a notebook's own outputs show: that it trained, and on which machine.

Who keeps the outputs in a notebook keeps a record of its last run. A cell that starts training and shows steps got there:
nothing ahead of it ended the program, and the card had the memory. Of what programs print the words are here, each with
its source; what the code is, the readers of code say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from oomlint.dialects.machine.named_hardware import largest_named
from oomlint.documents.text import Source
from oomlint.errors import FileError, UsageError
from oomlint.hardware import Hardware, parse_hardware
from oomlint.hardware.printed import CARD_LINES, SMI_ROW

if TYPE_CHECKING:
    from oomlint.documents.notebook import Cell, Notebook

# A line that starts training by a Trainer: not ``model.train()``, which is a mode of a module.
_STARTS = re.compile(
    r"^[^#\n]*?(?:\b\w*train\w*(?:\([^\n]*\))?\.train\(|\bunsloth_train\()|^[ \t]*\)\.train\(",
    re.IGNORECASE | re.MULTILINE,
)
# What shows that steps were taken, with their number where the words have it (transformers 4.57): what train() returns
# (trainer_utils.py TrainOutput), the progress bar (utils/notebook.py NotebookProgressBar.update_bar, which is one ahead), what
# is logged at the end (trainer.py speed_metrics) and after steps (trainer_callback.py PrinterCallback).
_STEPPED = (
    re.compile(r"TrainOutput\(global_step=(?P<steps>\d+)"),
    re.compile(r"\[ *(?P<steps>\d+)/\d+ \d[\d:]* ?(?:<|, Epoch|\])"),
    re.compile(r"[{,] ?'train_runtime': '?[\d.]+"),
    re.compile(r"\{'loss': '?[\d.]+'?, [^{}]*'epoch': "),
)
# So many steps on its bar: one may be under way, and the first is the lightest.
_FEWEST = 3
_DIED = re.compile(r"OutOfMemoryError|CUDA out of memory|CUDA error: out of memory")


class Shown(Struct, frozen=True):
    """Training that a notebook's outputs show, in the last of the cells that start any. ``at`` is the offset in the file, ``hardware``
    the machine as far as outputs or Colab's own metadata name one."""

    path: str
    line: int
    at: int
    steps: int | None
    hardware: Hardware | None

    @property
    def words(self) -> str:
        """``train.ipynb:60 shows that it trained 250 steps``"""
        steps = "" if self.steps is None else f" {self.steps:,} steps"
        return f"{self.path}:{self.line} shows that it trained{steps}"


def shown_in(name: str, data: bytes) -> Shown | None:
    """What the outputs of a notebook show; ``None`` where a cell that starts training shows none, or died."""
    from oomlint.documents.notebook import read_notebook

    try:
        source = Source.from_bytes(name, data)
        notebook = read_notebook(source)
    except FileError:
        return None
    last: re.Match[str] | None = None
    for cell in notebook.cells:
        if not _STARTS.search(cell.code.text):
            continue
        last = _steps_of(cell, source)
        if last is None:
            return None
    if last is None:
        return None
    steps = last.groupdict().get("steps")
    return Shown(
        path=name,
        line=source.position(last.start())[0],
        at=last.start(),
        steps=None if steps is None else int(steps),
        hardware=_machine(notebook, source),
    )


def _steps_of(cell: Cell, source: Source) -> re.Match[str] | None:
    """Where a cell shows that it took steps."""
    span = cell.outputs
    if span is None or _DIED.search(source.text, span.start, span.end):
        return None
    for pattern in _STEPPED:
        found = list(pattern.finditer(source.text, span.start, span.end))
        if found and int(found[-1].groupdict().get("steps") or _FEWEST) >= _FEWEST:
            return found[-1]
    return None


def _machine(notebook: Notebook, source: Source) -> Hardware | None:
    """The one machine that all outputs agree on, else the one that Colab was told to use."""
    printed = {
        machine
        for cell in notebook.cells
        if cell.outputs is not None
        for machine in _printed(source.text[cell.outputs.start : cell.outputs.end])
    }
    if not printed and notebook.gpu is not None:
        printed = {(1, str(notebook.gpu.value))}
    found = {(count, gpu.name) for count, name in printed if (gpu := largest_named(name))}
    if len(found) != 1:
        return None
    ((count, name),) = found
    try:
        return parse_hardware(f"{count}x{name}")
    except UsageError:
        return None


def _printed(text: str) -> Iterator[tuple[int, str]]:
    """Numbers of cards and their names, as the outputs of a cell print them."""
    rows = {row["index"]: row["name"].rstrip(". ") for row in re.finditer(SMI_ROW, text)}
    if rows and len(set(rows.values())) == 1:
        yield len(rows), next(iter(rows.values()))
    for line in CARD_LINES:
        if line.needle in text:
            for card in re.finditer(line.pattern, text):
                counted = card.groupdict().get("gpus")
                yield int(counted or 1), card["name"].strip()
