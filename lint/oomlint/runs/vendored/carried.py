"""What the copies of frameworks that a project carries make of their keys, and of which release they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from oomlint.dialects.base import Claim, CodeReader, Dialect
from oomlint.dialects.block import Block
from oomlint.documents.text import Source
from oomlint.errors import FileError
from oomlint.files.workspace import Workspace
from oomlint.plan.library_changes import release_of

_VERSION = r"(?m)^(?:VERSION|__version__)\s*=\s*[\"']([^\"'\s]+)"


class CarriedCode:
    """What the copies of frameworks that a project carries make of their keys; each file is read
    once."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._read: dict[tuple[str, str], Block | None] = {}

    def blocks(self, dialect: Dialect, claim: Claim, folder: str) -> Iterator[Block]:
        """What the files of the copy that a run starts say, if its project carries one."""
        for path, reader in dialect.carried_code.items():
            found = self._found(path, claim, folder)
            if found is None:
                continue
            key = (dialect.name, found)
            if key not in self._read:
                self._read[key] = self._block(found, reader)
            block = self._read[key]
            if block is not None:
                yield block

    def version(self, dialect: Dialect, claim: Claim, folder: str) -> dict[str, tuple[str, str]]:
        """The release that the copy is of, by its package, and the file that says so. A development
        version is taken for the release that it became."""
        package, paths = dialect.carried_version
        for path in paths:
            found = self._found(path, claim, folder)
            data = None if found is None else self.workspace.read_or_none(found)
            said = "" if data is None else data.decode("utf-8", "replace").strip()
            named = re.search(_VERSION, said)
            version = said if named is None else named[1]
            if found is not None and release_of(version) is not None:
                number, is_development, _ = version.partition(".dev")
                became = dialect.became.get(number, number) if is_development else version
                return {package: (became, found)}
        return {}

    def _found(self, path: str, claim: Claim, folder: str) -> str | None:
        """A file of a package that lies in the project's root, or among its sources."""
        places = (path, f"src/{path}")
        found = (self.workspace.resolve(place, claim.path, folder) for place in places)
        return next(filter(None, found), None)

    def _block(self, name: str, reader: CodeReader) -> Block | None:
        with suppress(FileError):
            return reader(Source.from_bytes(name, self.workspace.read(name)))
        return None
