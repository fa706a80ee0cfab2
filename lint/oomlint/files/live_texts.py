"""Which texts of a project use a file or a function, by what of them somebody may run or follow.

A line that is commented out starts nothing, a function that no code names is never called, and the default of an option
that no code reads is nobody's path. What guides say, strings, tests and notebooks count: they tell how a project is used.
What is found is a guess by words; the linker decides what belongs together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from oomlint.documents import (
    HELD_LANGUAGES,
    PYTHON_SUFFIXES,
    SHELL_SUFFIXES,
    SUFFIXES,
    TOML_SUFFIXES,
    YAML_SUFFIXES,
    kind_of,
)
from oomlint.files.reference_index import calls_of, names_in, naming, texts_below
from oomlint.files.searched import SearchedTexts
from oomlint.files.workspace import Workspace

if TYPE_CHECKING:
    from oomlint.documents.python.outline import Lines, Outline

# Where ``#`` begins a comment. In YAML and the shell, as in Python, what stands at the head of a file says what it is for.
_HASHED = (*SHELL_SUFFIXES, *YAML_SUFFIXES, *TOML_SUFFIXES)
# Where functions are named besides code: guides, and the entry points of a package.
_NAMING = (*SUFFIXES, ".md", ".rst", ".txt", ".cfg")
_GUIDES = (".md", ".rst", ".txt")
# A line of a drawn tree of folders, as tree(1) draws it, says where a file lies, and not that somebody uses it.
_DRAWN = r"(?m)^[ \t>#]*(?:[│├└]|[|`+][-─]{2}).*$"
# What a program of training or a command that starts one has in its text.
_TRAINING = (b"Trainer", b".backward(", b".fit(", b"torchrun", b"accelerate launch", b"deepspeed ")
_PROGRAMS = (*PYTHON_SUFFIXES, *SHELL_SUFFIXES, *HELD_LANGUAGES)
# Of a project with more files it is not known which names a function.
_MOST_FILES = 20_000


class _Mention(Struct, frozen=True):
    """Names of files that stand somewhere in a text."""

    names: frozenset[str]
    function: Lines | None = None
    """The function of a Python file in which they stand."""
    options: tuple[Lines, ...] = ()
    """The options which are declared there."""


class LiveTexts:
    """The texts of the projects of a workspace, guides included; those of a project are looked up when first asked for."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._whole: dict[Path, SearchedTexts | None] = {}
        self._outlines: dict[str, tuple[list[str], Outline]] = {}
        self._called: dict[tuple[str, str], bool] = {}
        self._read: dict[tuple[str, Lines], bool] = {}
        self._mentions: dict[str, tuple[_Mention, ...]] = {}

    def naming(self, path: str) -> Iterator[str]:
        """The texts of a file's project that name it in a part that is live, the nearest first. Of each it is found out as
        it is asked for: to know who calls a function takes a look at all of a project."""
        wanted = calls_of(path)
        for each in naming(self._around(path), path):
            if each == path or self._names(each, wanted):
                yield each

    def train(self, path: str) -> bool:
        """Whether a file's project has a program that trains, or starts one: more than configs."""
        texts = self._around(path)
        return any(
            kind_of(name) in _PROGRAMS for word in _TRAINING for name, _ in texts.holding(word)
        )

    def uncalled(self, path: str, line: int) -> str:
        """The function of a Python file around a line which nothing of the project calls; empty where some code may, or
        where the line stands in none."""
        if kind_of(path) not in PYTHON_SUFFIXES:
            return ""
        function = self._outline(path)[1].function_at(line)
        if function is None or self._is_called(path, function):
            return ""
        return function.name

    def _around(self, path: str) -> SearchedTexts:
        return texts_below(self._workspace, self._workspace.project_around(path), guides=True)

    # -- what of a text is live ----------------------------------------------------------------

    def _names(self, path: str, wanted: set[str]) -> bool:
        if path not in self._mentions:
            self._mentions[path] = tuple(self._mentions_in(path))
        return any(
            not each.names.isdisjoint(wanted) and self._is_live(path, each)
            for each in self._mentions[path]
        )

    def _mentions_in(self, path: str) -> Iterator[_Mention]:
        """What of a file names others, comments and drawings left out."""
        text = self._text(path)
        if kind_of(path) in PYTHON_SUFFIXES:
            yield from self._mentions_in_python(path)
            return
        if kind_of(path) in _HASHED:
            text = "\n".join(_uncommented(text.split("\n")))
        elif path.endswith(_GUIDES):
            text = re.sub(_DRAWN, "", text)
        yield _Mention(_named_in(text))

    def _mentions_in_python(self, path: str) -> Iterator[_Mention]:
        lines, outline = self._outline(path)
        for number, line in enumerate(lines, 1):
            may_name = ("." in line or "config" in line) and number not in outline.comments
            names = _named_in(line) if may_name else frozenset[str]()
            if names:
                options = tuple(each for each in outline.options if each.has(number))
                yield _Mention(names, outline.function_at(number), options)

    def _is_live(self, path: str, mention: _Mention) -> bool:
        """Whether what names a file stands where somebody may run or read it."""
        if mention.function is not None and not self._is_called(path, mention.function):
            return False
        return all(self._is_read(path, option) for option in mention.options)

    # -- what names a function or an option ----------------------------------------------------

    def _is_called(self, path: str, function: Lines) -> bool:
        """Whether code that may run itself names a function, or a function that such code names in turn, or a guide
        does; functions that only call each other nobody calls."""
        start = (path, function.name)
        if start not in self._called:
            seen, waiting = {start}, [(path, function)]
            while waiting:
                for other, around in self._uses(*waiting.pop()):
                    key = None if around is None else (other, around.name)
                    if around is None or key is None or self._called.get(key):
                        self._called[start] = True
                        return True
                    if key not in seen and key not in self._called:
                        seen.add(key)
                        waiting.append((other, around))
            self._called |= dict.fromkeys(seen, False)
        return self._called[start]

    def _uses(self, path: str, named: Lines) -> Iterator[tuple[str, Lines | None]]:
        """Files that name what a Python file declares, each with the function around that place; one use in no file
        where it is not known."""
        word = re.compile(rf"(?<!\w){re.escape(named.name)}(?!\w)")
        defined = re.compile(rf"\s*(?:async\s+)?def\s+{re.escape(named.name)}\b")
        for other in self._holding(path, named.name):
            if other is None:
                yield path, None
            elif kind_of(other) not in PYTHON_SUFFIXES:
                yield other, None
            else:
                yield from self._uses_in(other, path, named, word, defined)

    def _uses_in(
        self,
        other: str,
        path: str,
        named: Lines,
        word: re.Pattern[str],
        defined: re.Pattern[str],
    ) -> Iterator[tuple[str, Lines | None]]:
        lines, outline = self._outline(other)
        # What a package takes into its own namespace it offers to others.
        passed_over = outline.comments
        if not other.endswith("__init__.py"):
            passed_over |= outline.imports
        for number, line in enumerate(lines, 1):
            if not word.search(line) or defined.match(line) or number in passed_over:
                continue
            if other != path or not named.has(number):
                yield other, outline.function_at(number)

    def _is_read(self, path: str, option: Lines) -> bool:
        if (path, option) not in self._read:
            self._read[path, option] = any(True for _ in self._uses(path, option))
        return self._read[path, option]

    def _holding(self, path: str, word: str) -> Iterator[str | None]:
        """The files in which a word stands, that itself first; ``None`` where there are too many to tell."""
        yield path
        root = self._workspace.project_around(path)
        if root not in self._whole:
            files = list(islice(self._workspace.disk.walk(root, _NAMING), _MOST_FILES + 1))
            names = {*self._workspace.overlay, *map(self._workspace.name, files)}
            known = len(files) <= _MOST_FILES
            self._whole[root] = SearchedTexts(self._workspace, names) if known else None
        texts = self._whole[root]
        if texts is None:
            yield None
            return
        yield from (each for each, _ in texts.holding(word.encode()) if each != path)

    def _text(self, path: str) -> str:
        return (self._workspace.read_or_none(path) or b"").decode("utf-8", "replace")

    def _outline(self, path: str) -> tuple[list[str], Outline]:
        if path not in self._outlines:
            from oomlint.documents.python.outline import outline  # most projects ask for none

            text = self._text(path)
            self._outlines[path] = (text.split("\n"), outline(text))
        return self._outlines[path]


def _named_in(text: str) -> frozenset[str]:
    return names_in(text.encode("utf-8", "replace"))


def _uncommented(lines: list[str]) -> Iterator[str]:
    """The lines less the comments that stand below the head of a file."""
    is_head = True
    for line in lines:
        is_comment = line.lstrip().startswith("#")
        if not is_comment or is_head or line.startswith("#SBATCH"):
            yield line
        is_head = is_head and (is_comment or not line.strip())
