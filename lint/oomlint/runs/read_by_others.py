"""Configs that a project's scripts hand to a program which trains nothing, and that nothing else names: the template of
a checkpoint's conversion, say.

Such a program is given the model's part of a framework's whole config, which says how one would train, too. Whoever
trains by hand may still mean the config: nothing is said unless the project trains by other means, which take no config by
its name, and a config beside one that is handed on so is for the same. One that such a program opens beside itself by its
own name is there for it, whatever else trains.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from oomlint.dialects.base import Claim
from oomlint.dialects.machine.launches import launches
from oomlint.documents import PYTHON_SUFFIXES, SHELL_SUFFIXES, YAML_SUFFIXES, kind_of
from oomlint.documents.base import Scalar, Sequence
from oomlint.errors import FileError
from oomlint.files.reference_index import texts_below
from oomlint.files.workspace import Workspace
from oomlint.runs.vendored.files import programs_in
from oomlint.runs.vendored.readers import LOADS_YAML, PARSES

if TYPE_CHECKING:
    from oomlint.dialects.machine.launch import Launch
    from oomlint.files.live_texts import LiveTexts
    from oomlint.runs.inference_only import ForwardOnly


class ReadByOthers:
    """Which program that trains nothing reads a config, where no other does."""

    def __init__(self, workspace: Workspace, texts: LiveTexts, forward_only: ForwardOnly) -> None:
        self._workspace = workspace
        self._texts = texts
        self._forward_only = forward_only
        self._trainers: dict[str, bool] = {}

    def why(self, config: Claim) -> str:
        """Who reads a config that nobody trains by, in words; empty where somebody may train by it."""
        path = config.path
        if kind_of(path) not in YAML_SUFFIXES:
            return ""
        opener = self._opener(path)
        if opener:
            return f"{opener} beside it opens it, which trains nothing, and no other file names it"
        if not self._trains_otherwise(path):
            return ""
        named = self._readers(path)
        if named is None:
            return ""
        if named:
            script, program = named
            return (
                f"{script} hands it to {program}, which trains nothing, and no other file names it"
            )
        for other in self._beside(path):
            named = self._readers(other)
            if named:
                script, program = named
                return f"no file names it, and {script} hands {other} beside it to {program}, which trains nothing"
        return ""

    def _opener(self, path: str) -> str:
        """The program which trains nothing that opens a config beside it by its name; empty where another file names it."""
        folder = self._workspace.file(path).parent
        first = ""
        for text in self._texts.naming(path):
            if text == path:
                continue
            is_beside = self._workspace.file(text).parent == folder
            if not (is_beside and kind_of(text) in PYTHON_SUFFIXES):
                return ""
            if not self._forward_only.trains_nothing(text):
                return ""
            first = first or text
        return first

    def _beside(self, path: str) -> Iterator[str]:
        """The other configs of its folder."""
        folder = self._workspace.file(path).parent
        if folder == self._workspace.project_around(path):
            return
        saved = self._workspace.below(str(folder), YAML_SUFFIXES, 1)
        for other in dict.fromkeys((*self._workspace.overlay, *saved)):
            is_config = other != path and kind_of(other) in YAML_SUFFIXES
            if is_config and self._workspace.file(other).parent == folder:
                yield other

    def _readers(self, path: str) -> tuple[str, str] | tuple[()] | None:
        """The script that hands a config to a program which trains nothing, and that program; nothing where no file names
        it, ``None`` where one does that may train by it."""
        found: tuple[str, str] | tuple[()] = ()
        for text in self._texts.naming(path):
            if text == path:
                continue
            program = self._program_given(text, path)
            if program is None:
                return None
            found = found or ((text, program) if program != text else ())
        top = self._workspace.file(path).relative_to(self._workspace.project_around(path)).parts
        return None if len(top) > 1 and self._folder_is_named(path, top[0]) else found

    def _program_given(self, text: str, path: str) -> str | None:
        """The program which trains nothing that a file hands a config to, or that the file is; ``None`` where it may
        be another."""
        if kind_of(text) in PYTHON_SUFFIXES:
            return text if self._forward_only.trains_nothing(text) else None
        if kind_of(text) not in SHELL_SUFFIXES:
            return None
        return self._program_of_all(text, lambda word: _is_path_of(word, path))

    def _program_of_all(self, script: str, is_meant: Callable[[str], bool]) -> str | None:
        """The one program which trains nothing that the commands of a script with such a word start."""
        programs: set[str | None] = set()
        with suppress(FileError):
            document = self._workspace.document(script)
            for launch in launches(document) if document is not None else ():
                if any(map(is_meant, _words(launch))):
                    programs.add(self._program_of(launch, script))
        return programs.pop() if len(programs) == 1 else None

    def _program_of(self, launch: Launch, text: str) -> str | None:
        script = launch.script
        found = script and self._workspace.resolve(script, text, launch.command.folder)
        return found if found and self._forward_only.trains_nothing(found) else None

    def _folder_is_named(self, path: str, folder: str) -> bool:
        """Whether a file that does not hand the config on names the folder in which it lies: it may take any of those there."""
        word = re.compile(rf"(?<![\w-]){re.escape(folder)}(?![\w-])".encode())
        around = self._workspace.project_around(path)
        for name, data in texts_below(self._workspace, around, guides=True).holding(
            folder.encode("utf-8", "surrogateescape")
        ):
            if not word.search(data) or self._workspace.file(name).is_relative_to(around / folder):
                continue
            is_python = kind_of(name) in PYTHON_SUFFIXES
            if is_python and self._forward_only.trains_nothing(name):
                continue
            is_shell = kind_of(name) in SHELL_SUFFIXES
            if is_shell and self._program_of_all(name, lambda word: folder in word.split("/")):
                continue
            return True
        return False

    def _trains_otherwise(self, path: str) -> bool:
        """Whether the project has programs that train, none of which loads a file that it is told."""
        root = str(self._workspace.project_around(path))
        if root not in self._trainers:
            self._trainers[root] = self._has_trainers(root)
        return self._trainers[root]

    def _has_trainers(self, root: str) -> bool:
        trainers = [
            name
            for name in programs_in(self._workspace, root)
            if self._forward_only.has_steps(name)
        ]
        texts = (self._workspace.read_or_none(name) or b"" for name in trainers)
        return bool(trainers) and not any(self._loads.search(text) for text in texts)

    @cached_property
    def _loads(self) -> re.Pattern[bytes]:
        return re.compile(LOADS_YAML + rb"|" + PARSES)


def _words(launch: Launch) -> Iterator[str]:
    """The words of a command, and the values of its options."""
    command = launch.command
    options = (*command.flags.entries.values(), *command.assignments.entries.values())
    for node in (*command.words, *(option.value for option in options)):
        values = node.items if isinstance(node, Sequence) else (node,)
        yield from (str(each.value) for each in values if isinstance(each, Scalar))


def _is_path_of(word: str, path: str) -> bool:
    """Whether a word ends in a file's name, with its folder where both have one."""
    *_, folder, name = ("", *path.split("/"))
    *_, holder, last = ("", *word.split("/"))
    return last == name and (not holder or not folder or holder in (folder, ".", ".."))
