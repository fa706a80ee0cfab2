"""What a workspace has behind it: the disk, or nothing.

:data:`DISK` notes every look (:mod:`oomlint.files.dependencies`). Behind :data:`NOWHERE` there is nothing: a lint
of texts that somebody handed over, as in a browser, sees these texts and no file of this machine. A :class:`Glance` is
the disk as one check sees it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from oomlint.documents import STAGED, kind_of
from oomlint.errors import DeniedError, ReadError
from oomlint.files import dependencies

# A config is at most a few hundred kilobytes; what is larger is data, and named so.
MAX_FILE_BYTES = 8 * 2**20
# Of a notebook most is pictures, which are passed over.
MAX_NOTEBOOK_BYTES = 128 * 2**20

_SKIPPED_FOLDERS = frozenset(
    {
        ".git", ".hg", ".svn", ".tox", ".nox", ".venv", "venv", "node_modules", "__pycache__",
        ".mypy_cache", ".ruff_cache", ".pytest_cache", ".oomlint_cache", "site-packages", "wandb",
        ".ipynb_checkpoints",  # what Jupyter keeps of files while they are edited
    }
)  # fmt: skip

# What cookiecutter and copier fill in: a name with this in it is of a template, whose files are none of a program yet.
_BLANK = "{{"

# What Hydra writes of every run that it starts, in its output folder: the config as composed, its own settings,
# and what the command line said (hydra 1.3, core/utils.py, run_job; the folder is `hydra.output_subdir`).
_HYDRA_FOLDER = ".hydra"
_HYDRA_FILES = frozenset({"config.yaml", "hydra.yaml", "overrides.yaml"})
# And of a sweep, beside the folders of its runs (hydra 1.3, _internal/core_plugins/basic_sweeper.py).
_HYDRA_SWEEP = "multirun.yaml"

# Copies of a project's modules that setuptools makes as it builds, `build/lib` or `build/lib.linux-x86_64-cpython-312`
# beside what describes the project (setuptools 80.9, _distutils/command/build.py, finalize_options).
_BUILT_IN = "build"
_BUILT = r"lib(\..+)?"
_BUILT_FROM = frozenset({"setup.py", "setup.cfg", "pyproject.toml"})

Step: TypeAlias = tuple[str, list[str], list[str]]
"""A folder, the folders in it, of which those are entered that are left in the list, and its files: as of ``os.walk``."""


class Disk:
    """Looks at files by absolute path."""

    def is_file(self, path: str) -> bool:
        # os.path answers "no" where pathlib raises: names too long, folders without permission.
        is_there = os.path.isfile(path)
        dependencies.saw_file(path, is_there)
        return is_there

    def has(self, path: str) -> bool:
        """Whether there is anything, if only a link to nothing."""
        is_there = os.path.lexists(path)
        dependencies.saw_any(path, is_there)
        return is_there

    def names(self, folder: str) -> list[str]:
        """What stands in a folder; nothing in one that cannot be looked into."""
        try:
            entries = os.listdir(folder)
        except OSError:
            return []
        dependencies.saw_names(folder, entries)
        return entries

    def can_add_to(self, folder: str) -> bool:
        return not os.path.isdir(folder) or os.access(folder, os.W_OK | os.X_OK)

    def real(self, path: Path) -> Path:
        """A path without links."""
        return Path(os.path.realpath(path))

    def is_below(self, file: Path, roots: Sequence[Path]) -> bool:
        """Whether a file lies below one of some folders without links, wherever links on its path lead."""
        from oomlint.documents.write import is_below  # most lints change nothing

        return is_below(file, roots)

    def has_other_names(self, file: Path) -> bool:
        """Whether a file has another name, a hard link, which a new text in its place would part from it."""
        try:
            return os.stat(file).st_nlink > 1
        except OSError:
            return False

    def size(self, path: str) -> int | None:
        """How many bytes a file has; ``None`` where there is none."""
        try:
            return os.stat(path).st_size
        except (OSError, ValueError):
            return None

    def at_a_glance(self) -> Disk:
        """The same for one check, which goes through the same folders for many of its files."""
        return Glance()

    def tree(self, top: str) -> Iterable[Step]:
        """A folder and those below it, links left out."""
        return os.walk(top)

    def walk(
        self, folder: Path, suffixes: Sequence[str], deepest: int | None = None
    ) -> Iterator[str]:
        """The paths that :func:`walk` finds."""
        return _paths_below(self.tree(str(folder)), folder, suffixes, deepest=deepest)

    def documents(self, top: str, deepest: int) -> Iterator[str]:
        """The documents for people in a folder and in those up to ``deepest`` below it."""
        for parent, folders, files in self.tree(top):
            dependencies.saw_tree(parent, folders, files)
            below = 0 if parent == top else os.path.relpath(parent, top).count(os.sep) + 1
            wanted = folders if below < deepest else ()
            kept = (f for f in wanted if f not in _SKIPPED_FOLDERS)
            folders[:] = sorted(f for f in kept if not _is_built(parent, f))
            yield from (os.path.join(parent, each) for each in sorted(filter(is_document, files)))

    def read(self, path: str, name: str) -> bytes:
        """The bytes of a file, which errors call ``name``.

        Raises:
            ReadError: it is missing, unreadable, or far too large for a config.
        """
        try:
            return _read(path, name)
        except OSError as error:
            dependencies.saw_no_bytes(path)
            kind = DeniedError if isinstance(error, PermissionError) else ReadError
            raise kind(name, f"cannot be read: {error.strerror or error}") from None
        except ValueError as error:
            raise ReadError(name, f"cannot be read: {error}") from None

    @cached_property
    def hf_cache(self) -> str | None:
        """The Hugging Face hub cache of this machine, as huggingface_hub locates it."""
        environ = os.environ
        home = environ.get("HF_HOME") or os.path.join(
            environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "huggingface"
        )
        return environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")


class Glance(Disk):
    """The disk as one check sees it: what stands in a folder and how large a file is it looks up once, and says again.
    Whoever goes through the folders notes all the same what it saw there."""

    def __init__(self) -> None:
        self._folders: dict[str, tuple[list[str], list[str], frozenset[str]] | None] = {}
        self._sizes: dict[str, int | None] = {}

    def size(self, path: str) -> int | None:
        if path not in self._sizes:
            self._sizes[path] = super().size(path)
        return self._sizes[path]

    def at_a_glance(self) -> Disk:
        return self

    def tree(self, top: str) -> Iterator[Step]:
        if top not in self._folders:
            self._folders[top] = _entries(top)
        found = self._folders[top]
        if found is None:
            return
        below, files, links = found
        folders = [*below]
        yield top, folders, files
        for folder in folders:
            if folder not in links:
                yield from self.tree(os.path.join(top, folder))


class Nowhere(Disk):
    """A disk without files."""

    def is_file(self, path: str) -> bool:
        return False

    def has(self, path: str) -> bool:
        return False

    def names(self, folder: str) -> list[str]:
        return []

    def can_add_to(self, folder: str) -> bool:
        return True

    def real(self, path: Path) -> Path:
        return path

    def is_below(self, file: Path, roots: Sequence[Path]) -> bool:
        return any(root == file or root in file.parents for root in roots)

    def has_other_names(self, file: Path) -> bool:
        return False

    def size(self, path: str) -> None:
        return None

    def at_a_glance(self) -> Disk:
        return self

    def tree(self, top: str) -> Iterable[Step]:
        return ()

    def walk(
        self, folder: Path, suffixes: Sequence[str], deepest: int | None = None
    ) -> Iterator[str]:
        return iter(())

    def documents(self, top: str, deepest: int) -> Iterator[str]:
        return iter(())

    def read(self, path: str, name: str) -> bytes:
        raise ReadError(name, "cannot be read: it is not among the files given")

    @property
    def hf_cache(self) -> None:
        return None


DISK = Disk()
NOWHERE = Nowhere()


def _read(path: str, name: str) -> bytes:
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        dependencies.saw_no_bytes(path)
        what = "cannot be read: it is not a regular file"
        if stat.S_ISDIR(status.st_mode) and not os.access(path, os.R_OK | os.X_OK):
            what = "the folder cannot be read: permission denied"
        raise ReadError(name, what)
    if name.endswith(STAGED):
        dependencies.saw_no_bytes(path)
        raise ReadError(
            name,
            "was made by an oomlint that was killed before it put this text in place, or "
            "by one at work right now: repeat what it was to do, such as --fix, and delete "
            "this file if it is still here",
        )
    size = status.st_size
    is_notebook = kind_of(name) == ".ipynb"
    most = MAX_NOTEBOOK_BYTES if is_notebook else MAX_FILE_BYTES
    if size > most:
        dependencies.saw_no_bytes(path)
        raise ReadError(
            name,
            f"is {size / 2**20:.0f} MiB; oomlint reads "
            f"{'notebooks' if is_notebook else 'configs'} up to {most // 2**20} MiB",
        )
    data = b""
    if size:  # the kernel's own files say that they are empty, and some of them never end
        with open(path, "rb") as file:
            data = file.read()
    dependencies.saw_bytes(path, data)
    return data


def is_tools_own(name: str) -> bool:
    """Whether a file stands in a folder that some tool keeps for itself, such as ``.venv``."""
    return not _SKIPPED_FOLDERS.isdisjoint(name.split("/")[:-1])


def is_document(name: str) -> bool:
    """Whether a file holds prose for people, by its name."""
    return name.lower().endswith((".md", ".rst"))


def walk(
    folder: Path,
    suffixes: Sequence[str],
    trouble: Callable[[str], None] = lambda _: None,
    deepest: int | None = None,
    leaves_out: Callable[[str, bool], bool] | None = None,
) -> Iterator[Path]:
    """Files below a folder whose kind is one of ``suffixes``, sorted, tool folders, templates by their names, what setuptools
    built and what Hydra keeps of past runs left out, folders more than ``deepest`` below it, and what ``leaves_out`` is true of: an absolute path, and whether
    that is a folder.

    Links to folders are not followed, so there are no cycles. ``trouble`` is told the paths of
    folders that cannot be looked into, and of texts that a killed ``--fix`` did not put in place.
    """
    steps = os.walk(folder, onerror=lambda e: trouble(e.filename))
    return map(Path, _paths_below(steps, folder, suffixes, trouble, deepest, leaves_out))


def _paths_below(
    steps: Iterable[Step],
    folder: Path,
    suffixes: Sequence[str],
    trouble: Callable[[str], None] = lambda _: None,
    deepest: int | None = None,
    leaves_out: Callable[[str, bool], bool] | None = None,
) -> Iterator[str]:
    top = str(folder)
    for parent, folders, files in steps:
        dependencies.saw_tree(parent, folders, files)
        if not os.access(parent, os.X_OK):
            trouble(parent)
            folders.clear()
            continue
        is_last = deepest is not None and _depth(parent, top) >= deepest
        wanted = () if is_last else folders
        folders[:] = sorted(
            f
            for f in wanted
            if f not in _SKIPPED_FOLDERS
            and _BLANK not in f
            and (parent == top or not _is_built(parent, f))
            and not (leaves_out and leaves_out(os.path.join(parent, f), True))
        )
        if parent != top and _is_record(parent, files):
            folders.clear()
            continue
        past = {_HYDRA_SWEEP} if _is_sweep(parent, folders, files) else ()
        for file in sorted(f for f in set(files).difference(past) if _BLANK not in f):
            if (kind_of(file) or os.path.splitext(file)[1]) in suffixes:
                path = os.path.join(parent, file)
                if not (leaves_out and leaves_out(path, False)):
                    yield path
            elif file.endswith(STAGED):
                trouble(os.path.join(parent, file))


def _entries(folder: str) -> tuple[list[str], list[str], frozenset[str]] | None:
    """The folders and files in a folder, and which of the folders are links; ``None`` where it cannot be looked into."""
    for _, folders, files in os.walk(folder):
        links = (each for each in folders if os.path.islink(os.path.join(folder, each)))
        return folders, files, frozenset(links)
    return None


def _depth(folder: str, top: str) -> int:
    """How many folders a folder lies below another."""
    return 0 if folder == top else folder.count(os.sep, len(top.rstrip(os.sep)))


def _is_built(parent: str, name: str) -> bool:
    """Whether a folder holds what setuptools copied of the project around it as it built it: nobody starts or edits that."""
    above, last = os.path.split(parent)
    if last != _BUILT_IN or not re.fullmatch(_BUILT, name):
        return False
    return any(DISK.is_file(os.path.join(above, each)) for each in sorted(_BUILT_FROM))


def _is_record(folder: str, files: Sequence[str]) -> bool:
    """Whether a folder is Hydra's record of a past run, which is no config that anybody starts."""
    return os.path.basename(folder) == _HYDRA_FOLDER and _HYDRA_FILES.issubset(files)


def _is_sweep(folder: str, folders: Sequence[str], files: Sequence[str]) -> bool:
    """Whether a folder holds the runs of one of Hydra's sweeps, and with them the record of it."""
    if _HYDRA_SWEEP not in files:
        return False
    records = (os.path.join(folder, each, _HYDRA_FOLDER) for each in folders)
    return any(all(os.path.isfile(os.path.join(r, f)) for f in _HYDRA_FILES) for r in records)
