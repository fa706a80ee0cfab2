"""A folder of plug-in code, read once: what is hashed is what runs.

Its modules are imported from the bytes that were read, never from the folder, so that neither a
change in between nor a compiled file (``__pycache__``) can slip in code that nobody allowed.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from msgspec import Struct

# Far above what a plug-in has; what holds more is no folder of rules but a repository.
_MOST_FILES = 500
_MOST_BYTES = 8 * 2**20

_PREFIX = "oomlint_folder_"

LISTINGS = ("rules", "dialects")
"""Functions with which a module says what it brings."""


class FolderProblem(Exception):
    """A folder cannot be a plug-in; ``str(error)`` says why."""


class Sources(Struct, frozen=True, dict=True):
    """The files of a folder by relative path; ``digest`` is the SHA-256 of them all."""

    folder: Path
    files: Mapping[str, bytes]

    def __hash__(self) -> int:
        return hash((self.folder, self.digest))

    @cached_property
    def digest(self) -> str:
        total = hashlib.sha256()
        for name, data in sorted(self.files.items()):
            for part in (name.encode("utf-8", "surrogateescape"), data):
                total.update(len(part).to_bytes(8, "big") + part)
        return total.hexdigest()

    @property
    def package(self) -> str:
        """The name under which its modules are imported: its own, so that it hides no other."""
        return f"{_PREFIX}{self.digest[:16]}"

    def modules(self) -> Iterator[ModuleType]:
        """Every module of the folder, imported; those whose names start with ``_`` only where
        others import them, and only the folder's own ``__init__`` if it lists what it brings."""
        loader = _Loader(self)
        if loader not in sys.meta_path:
            sys.meta_path.insert(0, loader)
        whole = import_module(self.package)
        yield whole
        if any(callable(getattr(whole, listing, None)) for listing in LISTINGS):
            return
        for name in sorted(loader.paths.keys() - {self.package}):
            if not any(part.startswith("_") for part in name.split(".")):
                yield import_module(name)


def read_folder(folder: Path) -> Sources:
    """The files below a folder; compiled and hidden ones are no part of it.

    Raises:
        FolderProblem: it is no folder, cannot be read, or is far too large.
    """
    if not folder.is_dir():
        raise FolderProblem("it is no folder")
    files: dict[str, bytes] = {}
    room = _MOST_BYTES
    for path in _walk(folder):
        try:
            if len(files) == _MOST_FILES or (room := room - path.stat().st_size) < 0:
                raise FolderProblem(
                    f"it holds more than {_MOST_FILES} files or {_MOST_BYTES // 2**20} MiB; "
                    "name the folder that holds the rules alone"
                )
            files[path.relative_to(folder).as_posix()] = path.read_bytes()
        except OSError as error:
            raise FolderProblem(f"{path} cannot be read: {error.strerror or error}") from None
    return Sources(folder, files)


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f != "__pycache__")
        for name in sorted(names):
            path = Path(parent, name)
            if not name.startswith(".") and path.is_file():
                yield path


class _Loader(MetaPathFinder, ExecutionLoader):
    """Finds and loads the modules of one folder out of memory."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.paths = {sources.package: "__init__.py", **dict(self._named())}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Loader) and other.sources.digest == self.sources.digest

    def __hash__(self) -> int:
        return hash(self.sources.digest)

    def _named(self) -> Iterator[tuple[str, str]]:
        """Module names with their files; a folder is a package whether it says so or not."""
        for file in self.sources.files:
            if not file.endswith(".py"):
                continue
            parts = [self.sources.package, *file.removesuffix(".py").split("/")]
            if parts[-1] == "__init__":
                parts.pop()
            for depth in range(1, len(parts)):
                folder = "/".join([*parts[1:depth], "__init__.py"])
                yield ".".join(parts[:depth]), folder
            yield ".".join(parts), file

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.paths:
            return None
        is_package = self.is_package(fullname)
        spec = ModuleSpec(fullname, self, origin=self.get_filename(fullname), is_package=is_package)
        # Packages have no places to search: nothing is imported from the folder itself.
        spec.has_location = True
        return spec

    def is_package(self, fullname: str) -> bool:
        return self.paths[fullname].endswith("__init__.py")

    def get_filename(self, fullname: str) -> str:
        return str(self.sources.folder / self.paths[fullname])

    def get_source(self, fullname: str) -> str:
        from importlib.util import decode_source

        return decode_source(self.sources.files.get(self.paths[fullname], b""))
