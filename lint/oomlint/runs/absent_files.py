"""Files that a command opens ahead of all else and does not find where it runs: the program and configs; it ends there.

Sure is that only where the folder is known in which the command runs: its script says so itself (``cd "$(dirname "$0")"``),
or the program is found from one folder and from no other. What may come from elsewhere, and what the environment of the
command decides, is not sure to be missing.

accelerate 0.17.1 to 1.11 ``commands/config/config_args.py load_config_from_file`` (*The passed configuration file … does not
exist*; 0.16 takes its default in the place of it); transformers 4.57 ``training_args.py __post_init__`` opens ``fsdp_config``,
``integrations/deepspeed.py`` the JSON of DeepSpeed; TRL 0.9 to 1.16 ``TrlParser.parse_args_and_config`` opens ``--config``.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping

from oomlint.dialects.base import Claim
from oomlint.dialects.machine.launch import Launch, place
from oomlint.documents import (
    JSON_SUFFIXES,
    SHELL_SUFFIXES,
    YAML_SUFFIXES,
    kind_of,
)
from oomlint.documents.base import Entry, Scalar, parser_of
from oomlint.documents.text import Location
from oomlint.files.workspace import Workspace
from oomlint.plan.library_changes import Release, release_of
from oomlint.runs.absent_programs import OPENED_BY_LAUNCHER
from oomlint.runs.arrivals import Arrivals, files_of_project
from oomlint.runs.parts import MissingFile
from oomlint.runs.vendored.readers import options_of_training

_OPENED_BY_TRAINER = ("deepspeed", "fsdp_config")
_OPENED_BY_PARSER = "config"
_STOPS: Release = (0, 17)
_KINDS = (*JSON_SUFFIXES, *YAML_SUFFIXES)
# ``${DS:-zero3.json}``
_IS_DEFAULT = re.compile(r"\$\{\w+:?[-=][\"']?$")
# Of these a script may have the files put where it looks for them, whatever it calls them.
_BRINGS_MORE = re.compile(
    r"(?m)^[^#\n]*\b(?:git[ \t]+(?:clone|pull|checkout)|cp|mv|ln|rsync|scp|tar|unzip|aws|gsutil|mount)[ \t]"
)


class AbsentFiles:
    """Looks for what commands open where these run."""

    def __init__(self, workspace: Workspace, arrivals: Arrivals) -> None:
        self._workspace = workspace
        self._arrivals = arrivals

    def program(self, launch: Launch, from_file: str) -> Iterator[MissingFile]:
        """The program of a command whose script says in which folder it runs, where it is not."""
        if launch.script is None or not launch.command.folder_is_own:
            return
        starts = self._starts(launch, from_file)
        if starts and self._is_missing(launch.script, starts, launch, from_file):
            where = Location(from_file, place(launch.program))
            yield MissingFile(launch.name, where, "was not found", is_program=True)

    def of(
        self,
        launch: Launch,
        from_file: str,
        claims: Iterable[Claim],
        versions: Mapping[str, tuple[str, str]],
    ) -> Iterator[MissingFile]:
        """The configs that a command is sure not to find; ``versions`` are what the project pins."""
        entries = tuple(self._opened(launch, claims, versions))
        starts = self._starts(launch, from_file) if entries else ()
        for entry in entries if starts else ():
            path = _path_of(entry, launch.document.source.text)
            if path is not None and self._is_missing(
                path, starts, launch, from_file, beside_program=True
            ):
                assert isinstance(entry.value, Scalar)
                where = Location(from_file, place(entry.value))
                found = self._workspace.resolve(path, from_file, launch.command.folder)
                yield MissingFile(
                    path, where, "was not found", ends=True, is_found=found is not None
                )

    def _opened(
        self, launch: Launch, claims: Iterable[Claim], versions: Mapping[str, tuple[str, str]]
    ) -> Iterator[Entry]:
        """The options whose file is opened before anything else is done with it."""
        launcher = launch.blocks[-1].mapping.entries.get(OPENED_BY_LAUNCHER)
        pinned = release_of(versions.get("accelerate", ("", ""))[0])
        if launcher is not None and (pinned is None or pinned >= _STOPS):
            yield launcher
        documents = [claim.document for claim in claims]
        parsers = [parser for parser in map(parser_of, documents) if parser is not None]
        settings = launch.flags.entries.get(_OPENED_BY_PARSER)
        if settings is not None and any(parser.takes_a_file for parser in parsers):
            yield settings
        if any(options_of_training(document) is not None for document in documents):
            for name in _OPENED_BY_TRAINER:
                is_joined = any(name in parser.joined for parser in parsers)
                entry = None if is_joined else launch.flags.entries.get(name)
                if entry is not None:
                    yield entry

    def _is_missing(
        self,
        path: str,
        starts: Iterable[str],
        launch: Launch,
        from_file: str,
        *,
        beside_program: bool = False,
    ) -> bool:
        if path[:1] in "/~$" or _BRINGS_MORE.search(launch.document.source.text):
            return False
        places = [posixpath.normpath(posixpath.join(start, path)) for start in starts]
        if any(self._workspace.exists(self._workspace.name(each)) for each in places):
            return False
        return not self._arrivals.may_come(
            path, places, launch, from_file, beside_program=beside_program
        )

    # -- where it runs ---------------------------------------------------------------------------

    def _starts(self, launch: Launch, from_file: str) -> tuple[str, ...]:
        """The folders in which a command may run, absolute ones: the one that its script says, or all from which the
        program is found."""
        command = launch.command
        if kind_of(from_file) not in SHELL_SUFFIXES or launch.script is None:
            return ()
        if command.folder_is_own:  # as ``$0`` has it, the script's display path
            return (posixpath.normpath(self._workspace.file(command.folder or ".").as_posix()),)
        if command.folder_is_open or launch.script[:1] in "/~$" or command.folder[:1] in ("/", "~"):
            return ()
        root = self._workspace.project_around(from_file)
        files = [
            f"{root.as_posix()}/{each}" for each in self._workspace.once(files_of_project, root)
        ]
        path = posixpath.normpath(posixpath.join(command.folder, launch.script))
        rest = re.sub(r"^(?:\.\./)+", "", path)
        up = (len(path) - len(rest)) // len("../")
        bases = {each[: -len(rest) - 1] for each in files if each.endswith(f"/{rest}")}
        if up:
            folders = {posixpath.dirname(each) for each in files}
            bases = {each for each in folders if _above(each, up) in bases}
        return tuple(sorted(posixpath.join(each, command.folder) for each in bases))


def _path_of(entry: Entry, text: str) -> str | None:
    """The path that an option names in a command's text, as it is whatever the environment says."""
    value = entry.value
    if not isinstance(value, Scalar) or value.may_differ or not isinstance(value.value, str):
        return None
    if _IS_DEFAULT.search(text[: value.span.start]):
        return None
    return value.value if kind_of(value.value) in _KINDS else None


def _above(folder: str, levels: int) -> str:
    for _ in range(levels):
        folder = posixpath.dirname(folder)
    return folder
