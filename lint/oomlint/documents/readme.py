"""Fenced code of a README, where projects write how a run of their configs is started, or its plain lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from oomlint.documents.excerpt import ExcerptShell, commands_in, lines_of
from oomlint.documents.shell.names import SHELLS, is_launch
from oomlint.documents.suffixes import SHELL_SUFFIXES, TOML_SUFFIXES, YAML_SUFFIXES
from oomlint.documents.text import Source, Span

_LOCKED = "it stands in a README"
# CommonMark 0.31, "Fenced code blocks": what closes one has no info string.
_FENCE = re.compile(r"[ \t]*(?:```+|~~~+)(?P<info>[^\r\n]*)")
_FENCED = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
# A prompt and assignments, each perhaps on a line of its own, then the program.
_PROMPT = re.compile(r"[ \t]*(?:[$>%][ \t]+)?")
_PROGRAM = re.compile(r"(?:\w+=\S*(?:[ \t]|\\\r?\n)+)*(?P<program>[\w./-]+)[ \t]+\S")
# A command is of interest that names a config, a script or a module of a package.
_NAMES_A_FILE = re.compile(
    r"(?:^|\s)-m[ \t]+\w+\.\w|\w(?:"
    + "|".join(map(re.escape, (*YAML_SUFFIXES, *TOML_SUFFIXES, *SHELL_SUFFIXES, ".py")))
    + r")\b"
)
# What a command after it may name.
_ASSIGNS = re.compile(r"(?:export[ \t]+)?\w+=[^\s<>`]+")
_LONGEST = 400_000
# For one card a guide has another section than for several: what is listed for a command of one holds there.
_CARDS = "CUDA_VISIBLE_DEVICES"
_HEADING = re.compile(r"#{1,6}[ \t]+\S")


def starts_in_readme(source: Source) -> ExcerptShell | None:
    """The commands in fenced code, or in notes without any, that start something with a config, or a script, each once, with the
    variables that are set before; none of them can be edited. Cards that are listed before a command are those of its section."""
    found: list[list[Span] | str] = []
    assigned: list[list[Span]] = []
    seen: set[str] = set()
    shown_to = -1  # the end of the last command that the cards are listed for
    for lines in _commands(source.text[:_LONGEST]):
        if shown_to >= 0 and _begins_section(source.text, shown_to, lines[0].start):
            found.append(f"unset {_CARDS}")
            shown_to = -1
        said = "\n".join(source.text[line.start : line.end] for line in lines)
        program = _PROGRAM.match(said)
        if _ASSIGNS.fullmatch(said):
            assigned.append(lines)
            continue
        if said in seen or program is None or not _NAMES_A_FILE.search(said):
            continue
        if _starts(program["program"]):
            seen.add(said)
            begun = (line for each in assigned for line in each if _CARDS in _of(source.text, line))
            lists = any(
                not _begins_section(source.text, line.end, lines[0].start) for line in begun
            )
            found += [*assigned, lines]
            assigned.clear()
            if lists or shown_to >= 0:
                shown_to = lines[-1].end
    return commands_in(source, found, _LOCKED)


def _begins_section(text: str, start: int, end: int) -> bool:
    """Whether a heading stands between two commands: no comment in their fences."""
    inside = True
    for line in lines_of(text, start, end):
        if _FENCE.match(text, line.start, line.end):
            inside = not inside
        elif not inside and _HEADING.match(text, line.start, line.end):
            return True
    return False


def _starts(program: str) -> bool:
    name = program.rpartition("/")[2]
    return is_launch(program) or name in SHELLS or name.endswith(SHELL_SUFFIXES)


def _commands(text: str) -> Iterator[list[Span]]:
    """The lines of fenced code, each with those that it is continued on; of notes that fence nothing those that begin
    at the margin."""
    inside = is_bare = _FENCED.search(text) is None
    lines: list[Span] = []
    for line in lines_of(text, 0, len(text)):
        if is_bare and not lines and text[line.start : line.start + 1].isspace():
            continue
        fence = _FENCE.match(text, line.start, line.end)
        if fence is not None and not (inside and fence["info"].strip()):
            inside = not inside
            if lines:
                yield _ended(text, lines)
            lines = []
        elif inside:
            prompt = _PROMPT.match(text, line.start, line.end) if not lines else None
            start = line.start if prompt is None else prompt.end()
            lines.append(Span(start, line.start + len(_of(text, line))))
            if not _of(text, line).endswith("\\"):
                yield lines
                lines = []


def _ended(text: str, lines: list[Span]) -> list[Span]:
    """The lines of a command that the fence cuts off, the last less the backslash with which it
    would go on into whatever stands next."""
    *before, last = lines
    said = text[last.start : last.end].rstrip("\\")
    return [*before, Span(last.start, last.start + len(said))]


def _of(text: str, line: Span) -> str:
    return text[line.start : line.end].rstrip()
