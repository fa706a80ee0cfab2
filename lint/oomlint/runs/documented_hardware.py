"""On which machine a project says that a script ran.

verl's ``docs/perf/device_tuning.rst`` lists its tuning scripts with the cards that each was tested on, and some
scripts begin with "# run on 8xH100". Who wrote that had seen the run, so that it is evidence against a prediction
that says otherwise. A row of a table counts, or a line of prose, that names both the script and a number of
GPUs by name, the line above a block of commands that name it ("tested on 1 H100:"), and the comment at the head of
the script itself. What stands in a block does not: that is a command, or what a program printed, be it that the
run dies there.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Iterator

from oomlint.dialects.machine.named_hardware import gpu_named
from oomlint.errors import UsageError
from oomlint.files.workspace import Workspace
from oomlint.hardware import Hardware, parse_hardware
from oomlint.runs.attested import Attested

# Where projects keep their documentation, and how deep in there a table of scripts may stand: verl's is in
# docs/perf.
_FOLDER = "docs"
_DEEPEST = 3

# A number of GPUs by name: ``8*H100``, ``2x8xA100-80GB``, ``8 A100 (80GB)``.
_HARDWARE = re.compile(
    r"(?<![\w.])(?:(?P<nodes>\d{1,3}) ?[x×*] ?)?(?P<gpus>\d{1,4}) ?[x×*]? ?(?:NVIDIA )?"
    r"(?P<name>(?:RTX ?)?[A-Z]{0,2}\d{2,4}(?: ?Ti)?(?:[- ]?\(?\d{2,3} ?GB?\)?)?)(?!\w)",
    re.IGNORECASE,
)
_RAN = re.compile(r"\b(?:run|ran|runs|tested|trained|works?) (?:on|with)\b", re.IGNORECASE)
# What a row says of a script that did not get through.
_FAILED = re.compile(
    r"\boom\b|out of memory|\bfail|\bcrash|\bdoes ?n[o']t\b|\bnot (?:enough|fit|run|work)|[❌✗×✘](?!\w)",
    re.IGNORECASE,
)
_FENCE = re.compile(r"[ \t>]*(?P<marks>`{3,}|~{3,})")
_COMMENT = re.compile(r"[ \t]*#(?P<said>[^\r\n]*)")


class Attestations:
    """What the documents of a project say of its scripts."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._texts: dict[str, str] = {}
        self._below: dict[str, tuple[str, ...]] = {}

    def of(self, names: Iterable[str]) -> Attested | None:
        """The machine that one of a run's files, by display path, is said to have run on."""
        for name in names:
            found = self._at_head(name) or self._documented(name)
            if found is not None:
                return found
        return None

    def _at_head(self, name: str) -> Attested | None:
        """What the comment at the head of a script says."""
        for number, line in enumerate(self._text(name).split("\n"), 1):
            comment = _COMMENT.match(line)
            if comment is None and line.strip():
                return None
            if comment is not None and _RAN.search(comment["said"]):
                hardware = _named(comment["said"])
                if hardware is not None:
                    return Attested(hardware, f"{name}:{number} says that it runs")
        return None

    def _documented(self, name: str) -> Attested | None:
        for document in self._documents(name):
            if _folded(name.rpartition("/")[2]) not in _folded(self._text(document)):
                continue
            lines = self._text(document).split("\n")
            fences = _fences(lines)
            prose = [
                "" if open_ is not None else line for line, open_ in zip(lines, fences, strict=True)
            ]
            for number in _naming(name, document, lines):
                row, verb = _row(prose, number), "lists it"
                introduced = _before_fence(lines, fences[number])
                if introduced is not None:
                    row, number = introduced
                    verb = "says that it runs"
                hardware = None if _FAILED.search(row) else _named(row)
                if hardware is not None:
                    return Attested(hardware, f"{document}:{number + 1} {verb}")
        return None

    def _documents(self, name: str) -> Iterator[str]:
        """The documents in the project's folders above a script, and in those for documentation there."""
        folder, top = (
            os.path.dirname(name),
            self.workspace.name(self.workspace.project_around(name)),
        )
        while True:
            if folder not in self._below:
                self._below[folder] = tuple(self._in(folder))
            yield from self._below[folder]
            if not folder or folder in (top, ".", os.path.dirname(folder)):
                return
            folder = os.path.dirname(folder)

    def _in(self, folder: str) -> Iterator[str]:
        yield from self.workspace.documents_in(folder, deepest=0)
        yield from self.workspace.documents_in(os.path.join(folder, _FOLDER), deepest=_DEEPEST)

    def _text(self, name: str) -> str:
        if name not in self._texts:
            data = self.workspace.read_or_none(name) or b""
            self._texts[name] = data.decode("utf-8", "replace")
        return self._texts[name]


def _fences(lines: list[str]) -> list[int | None]:
    """Of each line that of the fence which opens the block of Markdown it stands in, a closing fence included."""
    found: list[int | None] = []
    opened, open_with = None, ""
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        marks = "" if fence is None else fence["marks"]
        if opened is None and marks:
            opened, open_with = number, marks
            found.append(number)
            continue
        found.append(opened)
        if opened is not None and marks.startswith(open_with):
            opened = None
    return found


def _naming(name: str, document: str, lines: list[str]) -> Iterator[int]:
    """The lines of a document that name a script: with its folder, or in the same folder by its name
    alone, which others may have elsewhere."""
    base = _folded(name.rpartition("/")[2])
    path = re.compile(rf"[\w.~/+]*(?<![\w.~+]){re.escape(base)}(?![\w.])")
    wanted = 1 if os.path.dirname(name) == os.path.dirname(document) else 2
    mine = _folded(name).split("/")[::-1]
    for number, line in enumerate(map(_folded, lines)):
        for found in path.findall(line) if base in line else ():
            theirs = found.split("/")[::-1]
            shared = 0
            while shared < min(len(mine), len(theirs)) and mine[shared] == theirs[shared]:
                shared += 1
            if shared >= wanted:
                yield number
                break


def _folded(text: str) -> str:
    """A text with names as people mistake them: verl's table has a script as ``qwen2-14b_grpo`` that is
    called ``qwen2_14b_grpo``."""
    return text.replace("-", "_")


def _row(lines: list[str], number: int) -> str:
    """The row of a table that a line belongs to: of a list table (reStructuredText) all its cells."""
    if not re.match(r"\s+(?:\* )?- ", lines[number]):
        return lines[number]
    first = number
    while first and not re.match(r"\s*\* - ", lines[first]):
        if not lines[first].strip():
            return lines[number]
        first -= 1
    last = number + 1
    while last < len(lines) and re.match(r"\s+- ", lines[last]):
        last += 1
    return "\n".join(lines[first:last])


def _before_fence(lines: list[str], fence: int | None) -> tuple[str, int] | None:
    """The line that introduces a block of code which names the script in a command, with its number, where it
    says on what that was run; ``None`` outside of such blocks."""
    if fence is None:
        return None
    above = next((n for n in range(fence - 1, -1, -1) if lines[n].strip()), None)
    if above is None or not _RAN.search(lines[above]):
        return None
    return lines[above], above


def _named(text: str) -> Hardware | None:
    """The one machine that a text counts GPUs of by name; ``None`` where there are several, or none."""
    found: dict[str, Hardware] = {}
    for match in _HARDWARE.finditer(text):
        gpu = gpu_named(match["name"])
        if gpu is None:
            continue
        spelled = "x".join(filter(None, (match["nodes"], match["gpus"], gpu.name)))
        try:
            found[spelled] = parse_hardware(spelled)
        except UsageError:
            continue
    return next(iter(found.values())) if len(found) == 1 else None
