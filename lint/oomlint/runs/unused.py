"""Runs that nobody starts as things are: what is wrong with them nobody meets before somebody does.

That is what a command starts whose program is not here, an example that came with a copy of a framework
(:mod:`oomlint.runs.shipped_examples`), what trains in a function that nothing of the project calls, a config that is named
after a program which trains nothing or handed to one alone, one that by its name was set aside, and one that only tests read. A
script that a project has kept of the one that it began as is started by nobody, either: its program is gone, and the guides name other
scripts. What the user named is asked about, whoever starts it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING

from oomlint.dialects.base import Claim
from oomlint.documents import SHELL_SUFFIXES, kind_of
from oomlint.files.workspace import Workspace
from oomlint.runs.run import Run

if TYPE_CHECKING:
    from oomlint.files.live_texts import LiveTexts
    from oomlint.runs.inference_only import ForwardOnly
    from oomlint.runs.read_by_others import ReadByOthers
    from oomlint.runs.shipped_examples import ShippedExamples

# What people call a folder, or a file, that they have replaced: ``configs/archive/sft.yaml``, ``lora-old.yml``. A word
# is a whole part of a name between what are no letters. Of a file's own name fewer do: a "legacy" data format is in use.
_ASIDE = r"(?i)(?:^|[^a-z])(?:{})(?:[^a-z]|$)"
_FOLDERS = _ASIDE.format(
    "archived?|archives|old|backups?|bak|deprecated|legacy|obsolete|unused|attic"
)
_FILES = _ASIDE.format("archived|old|backup|bak|deprecated|obsolete|unused")

# What tests keep to read it (pytest's and Go's names for it), and where tests lie.
_KEPT_FOR_TESTS = r"(?i)_{0,2}fixtures?_{0,2}|test[-_]?data"
_OF_TESTS = r"(?i)(?:.*[-_])?(?:tests?|testing|fixtures?|test[-_]?data)"
# pytest 8 "Conventions for Python test discovery".
_TEST_MODULE = r"test_.*\.py|.*_test\.py|conftest\.py"

_GUIDE = ".md"
# Of the scripts of a project, which may be some hundreds, so many are asked for, as deep as projects keep them.
_MOST_SCRIPTS, _DEEPEST = 200, 6


def set_aside_in(folders: Sequence[str]) -> str:
    """The first of folders whose name says that what lies there is no longer used; empty where none does."""
    return next((folder for folder in folders if re.search(_FOLDERS, folder)), "")


def is_set_aside(name: str) -> bool:
    """Whether a file's own name says that it is no longer used."""
    return re.search(_FILES, name) is not None


class Unused:
    """Why nobody starts a run, or uses what stands in a file, in words, looked up when first asked; empty where somebody
    does. ``named`` are files that the user named."""

    def __init__(self, workspace: Workspace, named: Collection[str] = ()) -> None:
        self._workspace = workspace
        self._named = frozenset(named)
        self._known: dict[str, str] = {}

    @cached_property
    def _texts(self) -> LiveTexts:
        from oomlint.files.live_texts import LiveTexts  # few runs have findings to ask for

        return LiveTexts(self._workspace)

    @cached_property
    def _examples(self) -> ShippedExamples:
        from oomlint.runs.shipped_examples import ShippedExamples

        return ShippedExamples(self._workspace, self._texts)

    @cached_property
    def _forward_only(self) -> ForwardOnly:
        from oomlint.runs.inference_only import ForwardOnly

        return ForwardOnly(self._workspace)

    @cached_property
    def _read_by_others(self) -> ReadByOthers:
        from oomlint.runs.read_by_others import ReadByOthers

        return ReadByOthers(self._workspace, self._texts, self._forward_only)

    def run(self, run: Run) -> str:
        """Why nobody starts a run."""
        if run.name not in self._known:
            self._known[run.name] = _without_program(run) or self._why(run)
        return self._known[run.name]

    def line(self, path: str, line: int, run: Run) -> str:
        """Why a line of a file of a run is never run. A function that is a config itself is asked for by its name."""
        name = "" if self.is_named(path) else self._texts.uncalled(path, line)
        if not name or any(claim.name == f"{path}:{name}" for claim in run.claims):
            return ""
        return f"nothing here calls {name}, in which it stands"

    def file(self, path: str, *, beside_runs: bool) -> str:
        """Why nobody reads a config of which no run is known. One that lies beside nothing that trains may be all that
        there is: nothing says that it is unused. What tests read nobody trains with."""
        if self.is_named(path):
            return ""
        is_tried = False
        for other in self._texts.naming(path):
            if other == path:
                continue
            if not self._is_test(other):
                return ""
            is_tried = True
        if not beside_runs and not self._texts.train(path):
            return ""
        names = "only tests name it" if is_tried else "no other file names it in use"
        return f"no run here uses {path}, and {names}"

    def _is_test(self, path: str) -> bool:
        """Whether a file is one of those by which a project is tried, by its name or its folder's."""
        file, project = self._workspace.file(path), self._workspace.project_around(path)
        *folders, name = file.relative_to(project).parts
        return _is_of_tests(folders, _OF_TESTS) or re.fullmatch(_TEST_MODULE, name) is not None

    def example(self, run: Run) -> str:
        """Who ships a run as an example that nobody of the project's names, in words; empty of all others."""
        files = _told_of(run)
        return "" if any(map(self.is_named, files)) else self._shipped(files)

    def _shipped(self, files: list[str]) -> str:
        framework = self._examples.shipping(files)
        if framework:
            return f"{framework} ships this example as it is, and no file of the project's own names it"
        library = self._examples.library(files)
        if library:
            return f"it is an example of {library}, which lies here whole, and nothing outside of it names it"
        vendored = self._examples.vendored(files)
        if vendored:
            return f"it is a program of {vendored}, whose package lies here, and nothing outside of it names it"
        return ""

    def leftover(self, run: Run) -> str:
        """Why nobody misses the program of a script, in words: no file names the script, and guides of its project name
        others. Empty where somebody may."""
        script = _root_of(run).path
        if kind_of(script) not in SHELL_SUFFIXES or any(map(self.is_named, _told_of(run))):
            return ""
        if not any(each.is_program for each in run.missing) or self._examples.is_in_use(script):
            return ""
        project = str(self._workspace.project_around(script))
        saved = self._workspace.below(project, SHELL_SUFFIXES, _DEEPEST)
        unsaved = (each for each in self._workspace.overlay if kind_of(each) in SHELL_SUFFIXES)
        others = (each for each in chain(unsaved, islice(saved, _MOST_SCRIPTS)) if each != script)
        if any(self._examples.is_in_use(each, by=_GUIDE) for each in others):
            return f"no file names {script}, and the project's guides name other scripts"
        return ""

    def _why(self, run: Run) -> str:
        files, root = _told_of(run), _root_of(run)
        if any(map(self.is_named, files)):
            return ""
        shipped = self._shipped(files)
        if shipped:
            return shipped
        if not (root.is_program or root.kind == "launch"):
            return self._config(root)
        at = run.line_of(root.anchor) if root.is_program else None
        idle = "" if at is None else self.line(root.path, at, run)
        return idle or self._set_aside(root.path)

    def _set_aside(self, path: str) -> str:
        """Why nobody starts a script whose name, or its folder's, says that it has been replaced."""
        file, project = self._workspace.file(path), self._workspace.project_around(path)
        *folders, name = file.relative_to(project).parts
        if not is_set_aside(name) and not set_aside_in(folders):
            return ""
        if any(other for other in self._texts.naming(path) if other != path):
            return ""
        return f"its name says that {path} was set aside, and no other file names it in use"

    def _config(self, config: Claim) -> str:
        """Why nobody trains by a config of which no command here starts: what others name may be started all the same."""
        file, project = (
            self._workspace.file(config.path),
            self._workspace.project_around(config.path),
        )
        *folders, name = file.relative_to(project).parts
        if _is_of_tests(folders, _KEPT_FOR_TESTS):
            others = (other for other in self._texts.naming(config.path) if other != config.path)
            if all(_is_of_tests(other.split("/")[:-1], _OF_TESTS) for other in others):
                return f"{config.path} lies where tests keep what they read, and no other file names it"
            return ""
        others_read = self._read_by_others.why(config)
        if others_read:
            return others_read
        is_aside = is_set_aside(name) or bool(set_aside_in(folders))
        program = "" if is_aside else self._forward_only.program_of(config)
        others = (other for other in self._texts.naming(config.path) if other != config.path)
        if not (is_aside or program) or any(others):
            return ""
        if is_aside:
            return (
                f"its name says that {config.path} was set aside, and no other file names it in use"
            )
        return f"it is named after {program}, which trains nothing, and no other file names it"

    def is_named(self, path: str) -> bool:
        """Whether the user named the file, or a folder of the project's that it is in: not the project as a whole."""
        file, project = self._workspace.file(path), self._workspace.project_around(path)
        folders = (f for f in self._workspace.named if project in f.parents)
        return path in self._named or any(file.is_relative_to(f) for f in folders)


def _is_of_tests(folders: Sequence[str], names: str) -> bool:
    return any(re.fullmatch(names, folder) for folder in folders)


def _root_of(run: Run) -> Claim:
    return run.claims[0] if run.parts.root is None else run.parts.root


def _told_of(run: Run) -> list[str]:
    """The files by which somebody names a run: modules of its program are named for other reasons."""
    root = _root_of(run)
    files = (path for path in run.files if not path.endswith(".py") or path == root.path)
    return list(dict.fromkeys((root.path, *files)))


def _without_program(run: Run) -> str:
    absent = next((each for each in run.missing if each.is_program or each.ends), None)
    if absent is None:
        return ""
    does = "starts" if absent.is_program else "opens first"
    return f"{absent.reference}, which the command {does}, is not here: nothing is loaded"
