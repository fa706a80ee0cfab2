"""Copies of frameworks that projects carry: what such a copy declares is legal in the project's runs,
and what its code makes of a key is what the key does there.

A copy is often of another version, or changed: it has keys of its own, and values. A program that was
built after a framework's model has arguments of the same names in a package of its own, and its
configs are none of the framework's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from msgspec.structs import replace

from oomlint.changes import release_of
from oomlint.dialects.base import Claim, CodeReader, Dialect
from oomlint.dialects.table import Block, StrayKey, WrongValue, plain_value
from oomlint.documents.text import Source
from oomlint.errors import FileError
from oomlint.run import Run
from oomlint.workspace import Workspace, walk

# `src/llamafactory/hparams/model_args.py` of a copy in a folder of the project.
_DEEPEST = 4
_QUOTED = rb"[\"']([^\"'\n]*)[\"']"


def without_declared(workspace: Workspace, run: Run, claims: Iterable[Claim]) -> Run:
    """The run less the stray keys, and the values out of range, that the project's own copy of its
    framework declares."""
    refused = [stray for stray in run.stray if stray.block.table.refuses(stray.path)]
    worded = [wrong for wrong in run.wrong if _word_of(wrong)]
    if not refused and not worded:
        return run
    texts = list(_copies(workspace, claims))
    words = {word for text in texts for word in re.findall(rb"\w+", text)}
    choices = {choice for text in texts for choice in re.findall(_QUOTED, text)}

    def is_known(stray: StrayKey) -> bool:
        return stray in refused and stray.path.encode() in words

    def is_choice(wrong: WrongValue) -> bool:
        return wrong in worded and _word_of(wrong).encode() in choices

    return replace(
        run,
        stray=tuple(stray for stray in run.stray if not is_known(stray)),
        wrong=tuple(wrong for wrong in run.wrong if not is_choice(wrong)),
    )


def _word_of(wrong: WrongValue) -> str:
    """A value that may be one of a list of names; a number that is out of range is so everywhere."""
    value = plain_value(wrong.entry.value, "yaml12")
    return value if isinstance(value, str) and re.search("[A-Za-z]", value) else ""


def _copies(workspace: Workspace, claims: Iterable[Claim]) -> Iterator[bytes]:
    names = {
        workspace.resolve(path, claim.path)
        for claim in claims
        for path in (
            *claim.dialect.declared_in,
            *(r.path for r in claim.references if r.path.endswith(".py")),
        )
    }
    for name in filter(None, names):
        with suppress(FileError):
            yield workspace.read(name)


class CarriedCode:
    """What the copies of frameworks that a project carries make of their keys; each file is read
    once."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._read: dict[tuple[str, str], Block | None] = {}

    def blocks(self, dialect: Dialect, claim: Claim, folder: str) -> Iterator[Block]:
        """What the files of the copy that a run starts say, if its project carries one."""
        for path, reader in dialect.carried_code.items():
            found = self.workspace.resolve(path, claim.path, folder)
            if found is None:
                continue
            key = (dialect.name, found)
            if key not in self._read:
                self._read[key] = self._block(found, reader)
            block = self._read[key]
            if block is not None:
                yield block

    def version(self, dialect: Dialect, claim: Claim, folder: str) -> dict[str, tuple[str, str]]:
        """The release that the copy is of, by its package, and the file that says so."""
        package, path = dialect.carried_version
        found = self.workspace.resolve(path, claim.path, folder) if path else None
        data = None if found is None else self.workspace.read_or_none(found)
        said = "" if data is None else data.decode("utf-8", "replace").strip()
        if found is None or release_of(said) is None:
            return {}
        return {package: (said, found)}

    def _block(self, name: str, reader: CodeReader) -> Block | None:
        with suppress(FileError):
            return reader(Source.from_bytes(name, self.workspace.read(name)))
        return None


class OwnPrograms:
    """Which projects train with a program of their own that took over a framework's arguments."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._found: dict[tuple[str, str], bool] = {}

    def has(self, claim: Claim) -> bool:
        """Whether the project around a config declares the framework's own arguments, in files of
        the framework's names, in a package of another name only."""
        dialect = claim.dialect
        if not dialect.declares or self._carries(claim):
            return False
        folder = str(self.workspace.project_around(claim.path))
        key = (folder, dialect.name)
        if key not in self._found:
            self._found[key] = any(self._akin(folder, dialect))
        return self._found[key]

    def _carries(self, claim: Claim) -> bool:
        paths = claim.dialect.declared_in
        return any(self.workspace.resolve(path, claim.path) is not None for path in paths)

    def _akin(self, folder: str, dialect: Dialect) -> Iterator[bool]:
        names = {path.rpartition("/")[2] for path in dialect.declared_in}
        declared = re.compile(rf"^\s+(?:{'|'.join(dialect.declares)})\s*:".encode(), re.MULTILINE)
        files = walk(self.workspace.file(folder), (".py",), deepest=_DEEPEST)
        for name in (*map(self.workspace.name, files), *self.workspace.overlay):
            if name.rpartition("/")[2] in names:
                yield declared.search(self.workspace.read_or_none(name) or b"") is not None
