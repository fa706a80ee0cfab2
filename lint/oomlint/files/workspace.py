"""The files that a lint sees: read once, parsed once, with an overlay for unsaved text.

Everything downstream names files by their *display path*: relative to the working
directory where they lie below it, else absolute; forward slashes, no leading ``./``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

from oomlint.documents import kind_of, parse
from oomlint.documents.base import Document
from oomlint.documents.lines import Lines
from oomlint.documents.text import Source
from oomlint.errors import (
    FileError,
    InternalError,
    ParseError,
    PointerError,
    ReadError,
    in_words,
)
from oomlint.files.disk import DISK, Disk, is_document
from oomlint.files.requirements import (
    floors,
    included,
    is_guide,
    is_pin_file,
    is_requirements,
    merged,
    pins,
    ranges,
    set_up_floors,
    submodules,
)

_DEEPEST_PATH = 24

# Requirements take in others that take in others; what is deeper is a circle.
_DEEPEST_INCLUDE = 4

# How a file begins that Git LFS keeps elsewhere (github.com/git-lfs/git-lfs, docs/spec.md "The Pointer", 2026-11-29).
_POINTER = b"version https://git-lfs.github.com/spec/v1"

# What the root of a Python project has: `python -m`, `swift` and their like find their files from there.
_PROJECT_MARKS = ("pyproject.toml", "setup.py")

_Started = tuple[str, tuple[str | None, ...], tuple[tuple[str, str | None], ...]]
"""A script's name, its arguments and variables."""

_Pins = Callable[[str, str], dict[str, str]]
"""Package → version, of a file's name and text."""

Found = TypeVar("Found")
Key = TypeVar("Key", bound=Hashable)


class Workspace:
    """Files below a working directory, read through one place.

    Args:
        cwd: absolute working directory; relative names start here.
        overlay: texts that stand for files on disk (an editor's buffer, a fix in progress,
            standard input), by display path.
        project_root: where paths inside configs are looked up first; the working
            directory of the training process, as far as anybody knows it.
        named: what the user named beside the working directory: files, and folders, in which what lies
            may be changed, too.
        disk: what is there besides the overlay; :data:`oomlint.files.disk.NOWHERE` has nothing.
    """

    def __init__(
        self,
        cwd: Path | None = None,
        overlay: Mapping[str, bytes] | None = None,
        project_root: Path | None = None,
        named: Collection[Path] = (),
        disk: Disk = DISK,
    ) -> None:
        # Display paths have no "..", so neither may what they are relative to.
        self.cwd = Path(os.path.abspath(cwd or Path.cwd()))
        self._cwd = str(self.cwd)
        self._prefix = self._cwd.rstrip(os.sep) + os.sep
        self.overlay: dict[str, bytes] = dict(overlay or {})
        self.project_root = Path(os.path.abspath(project_root or self.cwd))
        self.named = tuple(named)
        self.disk = disk
        self._documents: dict[str, Document | FileError | None] = {}
        self.recognised: dict[str, object] = {}
        """What was found to stand in parsed files, by name: whoever finds it keeps it here for as long as they stay."""
        self._as_started: dict[_Started, Document] = {}
        self._pins: dict[tuple[str, _Pins], dict[str, tuple[str, str]]] = {}
        self._git_roots: dict[str, str | None] = {}
        self._projects: dict[str, str | None] = {}
        self._absent: dict[str, frozenset[str]] = {}
        self._starts: dict[str, tuple[Path, ...]] = {}
        self._held: dict[str, bool] = {}
        self._nowhere: set[tuple[str, str]] = set()
        self._known: dict[tuple[Callable[..., Any], Hashable], Any] = {}

    # -- names -----------------------------------------------------------------------

    def name(self, path: str | os.PathLike[str]) -> str:
        """The display path of any path."""
        # Plain strings: this is asked for every file that is looked for, mostly in vain.
        whole = path if os.path.isabs(path) else os.path.join(self._cwd, os.path.expanduser(path))
        absolute, prefix = os.path.normpath(whole), self._prefix
        shown = absolute[len(prefix) :] if absolute.startswith(prefix) else absolute
        return shown.replace(os.sep, "/")

    def file(self, name: str) -> Path:
        """The absolute path behind a display path."""
        return self.cwd / name

    def once(self, find: Callable[[Workspace, Key], Found], about: Key) -> Found:
        """``find(self, about)``, looked up when first asked: what costs a walk over a project is the same for every
        run and finding there."""
        if (find, about) not in self._known:
            self._known[find, about] = find(self, about)
        return cast(Found, self._known[find, about])

    # -- writing ---------------------------------------------------------------------

    @cached_property
    def roots(self) -> tuple[Path, ...]:
        """The folders, without links, below which files may be changed: the working directory and its
        checkout, the project's, and what the user named."""
        checkout = self._git_root(self._cwd)
        named = (each for each in self.named if not self.disk.is_file(str(each)))
        folders = [self.cwd, self.project_root, *named]
        folders += [] if checkout is None else [Path(checkout)]
        return tuple(dict.fromkeys(self.disk.real(folder) for folder in folders))

    def why_not_to_change(self, name: str) -> str | None:
        """Why a file is left alone, if so: it does not lie below one of :attr:`roots`, wherever links on its
        path lead, or it is one file under several names, which a new text would part."""
        file = self.file(name)
        if not self.disk.is_below(file, self.roots):
            return f"{name} lies outside of what is checked"
        if self.disk.has_other_names(file):
            return f"{name} has another name (a hard link), which would keep the old text"
        return None

    # -- reading ---------------------------------------------------------------------

    def exists(self, name: str) -> bool:
        return name in self.overlay or self.disk.is_file(os.path.join(self._cwd, name))

    def size(self, name: str) -> int | None:
        """How large a file on disk is; ``None`` where there is none."""
        return self.disk.size(os.path.join(self._cwd, name))

    def read(self, name: str) -> bytes:
        """The bytes of a file.

        Raises:
            ReadError: it is missing, unreadable, or far too large for a config.
        """
        if name in self.overlay:
            return self.overlay[name]
        parsed = self._documents.get(name)
        if parsed is not None and not isinstance(parsed, FileError):
            # What was read is what counts: an editor may have saved in the meantime.
            return parsed.source.to_bytes()
        # A Path costs as much as a look for a file.
        return self.disk.read(os.path.join(self._cwd, name), name)

    def read_or_none(self, name: str) -> bytes | None:
        try:
            return self.read(name)
        except ReadError:
            return None

    def document(self, name: str) -> Document | None:
        """The parsed file, or ``None`` where its language has nothing to read in it.

        Raises:
            FileError: it cannot be read, decoded or parsed.
        """
        if name not in self._documents:
            self._documents[name] = self._parse(name)
        found = self._documents[name]
        if isinstance(found, FileError):
            raise found
        return found

    def lines(self, name: str) -> Document:
        """A file as lines of text, whatever its name.

        Raises:
            FileError: it cannot be read or decoded.
        """
        return Lines(Source.from_bytes(name, self.read(name)))

    def started(
        self,
        name: str,
        arguments: Sequence[str | None],
        variables: Sequence[tuple[str, str | None]] = (),
    ) -> Document:
        """A shell script as it runs with these arguments and variables.

        Raises:
            FileError: it cannot be read, decoded or parsed.
        """
        key = (name, tuple(arguments), tuple(variables))
        if key not in self._as_started:
            from oomlint.documents.shell.document import parse_shell

            source = Source.from_bytes(name, self.read(name))
            self._as_started[key] = parse_shell(
                source, lambda reference: self._found(reference, name), arguments, variables
            )
        return self._as_started[key]

    def configured(
        self, name: str, options: Mapping[str, str | None], caller: str = ""
    ) -> Document | None:
        """A Python script as a command with these options starts it: see
        :class:`oomlint.documents.python.configs.files.ConfigFiles`; a module as a program does which calls what trains in
        it.

        Raises:
            FileError: it cannot be read, decoded or parsed.
        """
        from oomlint.documents.python.document import parse_python

        source = Source.from_bytes(name, self.read(name))
        calls = Source.from_bytes(caller, self.read(caller)) if caller else None
        return parse_python(source, lambda reference: self._found(reference, name), options, calls)

    def _parse(self, name: str) -> Document | FileError | None:
        try:
            data = self.read(name)
            if data.startswith(_POINTER):
                return PointerError(
                    name, "a pointer of Git LFS, for which git lfs pull brings the file"
                )
            source = Source.from_bytes(name, data)
            return parse(source, lambda reference: self._found(reference, name))
        except FileError as error:
            return error
        except RecursionError:
            return ParseError(name, "is nested too deeply to be read")
        except ImportError as error:  # as in a browser, where not all that we need has a build
            return ParseError(name, f"cannot be read here, where {error.name} is not installed")
        except Exception as error:  # a reader's bug must not cost the user the other files
            return InternalError(name, f"reading failed: {in_words(error)}")

    def _found(self, reference: str, from_file: str) -> Source | None:
        """The text of a file that a script takes in, if it is here."""
        # All files of a folder import what is installed, each module in vain from a dozen places.
        asked = (reference, self._folder_of(from_file))
        name = None if asked in self._nowhere else self.resolve(reference, from_file)
        if name is None:
            self._nowhere.add(asked)
        data = self.read_or_none(name) if name is not None and name != from_file else None
        try:
            return None if data is None or name is None else Source.from_bytes(name, data)
        except FileError:
            return None

    def with_overlay(self, texts: Mapping[str, bytes]) -> Workspace:
        """The same workspace with some files replaced; parsed files that did not change are kept."""
        return self.refreshed({**self.overlay, **texts}, texts)

    def refreshed(self, overlay: Mapping[str, bytes], changed: Collection[str]) -> Workspace:
        """The same workspace under another overlay; parsed files are kept but for ``changed``
        ones and those that take them in."""
        clone = Workspace(self.cwd, overlay, self.project_root, self.named, self.disk)
        clone._documents = {
            name: clone._adopted(name, document)
            for name, document in self._documents.items()
            if name not in changed and not any(n in changed for n in _sourced(document))
        }
        clone.recognised = {n: r for n, r in self.recognised.items() if n in clone._documents}
        return clone

    def _adopted(
        self, name: str, document: Document | FileError | None
    ) -> Document | FileError | None:
        """What another workspace parsed, as of this one."""
        if not isinstance(document, Document):
            return document
        return document.looking_in(lambda reference: self._found(reference, name))

    def unread(self) -> Workspace:
        """The same workspace that has parsed nothing yet."""
        return Workspace(self.cwd, self.overlay, self.project_root, self.named, self.disk)

    def at_a_glance(self) -> Workspace:
        """The same for one check: that has parsed nothing yet, and sees of the disk what was there when it first looked."""
        disk = self.disk.at_a_glance()
        return Workspace(self.cwd, self.overlay, self.project_root, self.named, disk)

    @property
    def parsed(self) -> frozenset[str]:
        """Every file that a parsed document was made of, and those that could not be parsed."""
        taken_in = (_sourced(document) for document in self._documents.values())
        return frozenset(self._documents).union(*taken_in)

    # -- finding ---------------------------------------------------------------------

    def resolve(self, reference: str, from_file: str, folder: str = "") -> str | None:
        """The display path of a file that a config names, or ``None`` if it is nowhere.

        Frameworks open such paths relative to the process's working directory, which a
        linter cannot know; so, in order: absolute, the project root, the working
        directory, the root of the git checkout, every folder above the config from its own up.
        An absolute path of another machine or of a container is looked for by its end, one into the
        project is not: what is not there is nowhere. Where the program is known to run in a ``folder``,
        it is looked for there first.
        """
        if "\0" in reference or not reference.strip():
            return None
        if folder and not reference.startswith("~"):
            inside = self.resolve(os.path.join(folder, reference), from_file)
            if inside is not None:
                return inside
        expanded = os.path.expanduser(reference)
        if os.path.isabs(expanded):
            name = self.name(expanded)
            if self.exists(name):
                return name
            own = (self.project_root, self.project_around(from_file))
            is_own = any(Path(expanded).is_relative_to(each) for each in own if each.name)
            return None if is_own else self._elsewhere(expanded, from_file)
        for start in self.search_folders(from_file):
            name = self.name(os.path.join(start, expanded))
            if self.exists(name):
                return name
        return None

    def program(self, path: str, from_file: str, folder: str = "") -> str | None:
        """The display path of a program that a command names; it may lie in ``src``, which ``PYTHONPATH`` or an
        installation in place puts before the working directory."""
        found = self.resolve(path, from_file, folder)
        return self.resolve(f"src/{path}", from_file, folder) if found is None else found

    def reference_to(self, name: str, like: str, from_file: str) -> str:
        """How ``from_file`` names the file at a display path, from the folder that its reference
        ``like`` starts in, or would."""
        file = self.file(name)
        if os.path.isabs(os.path.expanduser(like)):
            return file.as_posix()
        folders = [f for f in self.search_folders(from_file) if f in file.parents]
        start = next((f for f in folders if self.exists(self.name(f / like))), None)
        return file.relative_to(start or self._started_in(file, folders[0])).as_posix()

    def _started_in(self, file: Path, outer: Path) -> Path:
        """Where what lies beside a file is started of which nothing else tells that: in the root of a project of its
        own below ``outer``, such as a framework's whole copy, else there."""
        inner = (f for f in file.parents if f.is_relative_to(outer) and f != outer)
        marked = (f for f in inner if any(self.exists(self.name(f / m)) for m in _PROJECT_MARKS))
        return next(marked, outer)

    def beside(self, name: str) -> list[str]:
        """The files of its kind in the folder of a file, itself included, by display path."""
        return self._files_in(self._folder_of(name), (kind_of(name),))

    def files_in(self, folder: str, kinds: Sequence[str]) -> list[str]:
        """The files of some kinds in a folder (as a display path), in the order of the kinds, then by name."""
        return self._files_in(self._folder_of(os.path.join(folder, "_")), kinds)

    def _files_in(self, folder: str, kinds: Sequence[str]) -> list[str]:
        entries = (entry for entry in self.disk.names(folder) if kind_of(entry) in kinds)
        found = {self.name(os.path.join(folder, entry)) for entry in entries}
        found |= {
            other
            for other in self.overlay
            if kind_of(other) in kinds and self._folder_of(other) == folder
        }
        return sorted(found, key=lambda name: (kinds.index(kind_of(name)), name))

    def documents_in(self, folder: str, deepest: int) -> list[str]:
        """The documents for people (Markdown, reStructuredText) in a folder, as a display path, and in those
        up to ``deepest`` below it."""
        top = os.path.normpath(os.path.join(self._cwd, folder))
        found = set(map(self.name, self.disk.documents(top, deepest)))
        prefix = top.rstrip(os.sep) + os.sep
        for name in filter(is_document, self.overlay):
            path = os.path.join(self._cwd, name)
            if path.startswith(prefix) and path[len(prefix) :].count(os.sep) <= deepest:
                found.add(name)
        return sorted(found)

    def can_add_to(self, folder: str) -> bool:
        """Whether a file may be added to a folder (as a display path); to one that is not there
        yet, too."""
        return self.disk.can_add_to(os.path.join(self._cwd, folder))

    def below(self, folder: str, suffixes: Sequence[str], deepest: int) -> Iterator[str]:
        """The files on disk below a folder (as a display path), as :func:`oomlint.files.disk.walk` finds them."""
        return map(self.name, self.disk.walk(self.file(folder), suffixes, deepest))

    def _elsewhere(self, path: str, from_file: str) -> str | None:
        """The file here that has the longest end of an absolute path."""
        parts = path.strip("/").split("/")
        folders = self.search_folders(from_file)
        for start in range(1, len(parts)) if len(parts) <= _DEEPEST_PATH else ():
            for folder in folders:
                name = self.name(folder.joinpath(*parts[start:]))
                if self.exists(name):
                    return name
        return None

    def search_folders(self, from_file: str) -> tuple[Path, ...]:
        """Where a relative path in ``from_file`` may start, most likely first: nowhere above the repository that it
        is of, whatever else lies there."""
        folder = self._folder_of(from_file)
        if folder not in self._starts:
            path, root = Path(folder), self._git_root(folder)
            at_root = () if root is None else (Path(root),)
            above = [each for each in path.parents if root is None or each.is_relative_to(root)]
            starts = (self.project_root, self.cwd, *at_root, path, *above)
            self._starts[folder] = tuple(dict.fromkeys(starts))
        return self._starts[folder]

    def holds(self, folder: Path, entry: str) -> bool:
        """Whether a folder has an entry of this name, so that a path that begins with it may lead
        somewhere."""
        path = os.path.normpath(os.path.join(folder, entry))
        if path not in self._held:
            self._held[path] = self.disk.has(path)
        return self._held[path] or self._is_unsaved(path)

    def _is_unsaved(self, path: str) -> bool:
        """Whether the overlay has a file at an absolute path, or in a folder there."""
        below = path.rstrip(os.sep) + os.sep
        named = (os.path.normpath(os.path.join(self._cwd, name)) for name in self.overlay)
        return any(name == path or name.startswith(below) for name in named)

    def _folder_of(self, name: str) -> str:
        """The absolute folder of the file at a display path."""
        return os.path.dirname(os.path.join(self._cwd, name))

    def _git_root(self, folder: str) -> str | None:
        """The nearest folder, from an absolute one upwards, that is a git checkout."""
        if folder not in self._git_roots:
            is_root = self.disk.has(os.path.join(folder, ".git"))
            parent = os.path.dirname(folder)
            above = None if is_root or parent == folder else self._git_root(parent)
            self._git_roots[folder] = folder if is_root else above
        return self._git_roots[folder]

    # -- library versions ------------------------------------------------------------

    def versions(self, from_file: str) -> dict[str, tuple[str, str]]:
        """Package → version or commit, and the file that pins it, as the project around a file says;
        the nearest file up the tree counts."""
        return self._pinned_around(self._folder_of(from_file), pins)

    def floors(self, from_file: str) -> dict[str, tuple[str, str]]:
        """Package → the oldest version that the project around a file allows, and the file."""
        return self._pinned_around(self._folder_of(from_file), floors)

    def ranges(self, from_file: str) -> dict[str, tuple[str, str]]:
        """The same of packages of which the project allows several releases, the newest of which counts as pinned."""
        return self._pinned_around(self._folder_of(from_file), ranges)

    def set_up_floors(self, from_file: str) -> dict[str, tuple[str, str]]:
        """The same of the scripts that set up the project around a file."""
        return self._pinned_around(self._folder_of(from_file), set_up_floors)

    def absent(self, from_file: str) -> frozenset[str]:
        """Packages that the project around a file has as submodules which are not checked out: of which release
        each is, its commit says."""
        folder = self._project_of(self._folder_of(from_file)) or self._folder_of(from_file)
        if folder not in self._absent:
            text = self._pin_text(self.name(os.path.join(folder, ".gitmodules"))) or ""
            found = submodules(text).items()
            self._absent[folder] = frozenset(
                package for package, place in found if self._is_empty(os.path.join(folder, place))
            )
        return self._absent[folder]

    def _is_empty(self, folder: str) -> bool:
        unsaved = (os.path.join(self._folder_of(name), "") for name in self.overlay)
        inside = os.path.join(folder, "")
        return not self.disk.names(folder) and not any(each.startswith(inside) for each in unsaved)

    def requirements(self, from_file: str) -> tuple[str, ...]:
        """The texts in which the project around a file says which packages it needs, the nearest first."""
        folder, top = self._folder_of(from_file), self._project_of(self._folder_of(from_file))
        folders = [folder]
        while (
            top is not None and folders[-1] != top and os.path.dirname(folders[-1]) != folders[-1]
        ):
            folders.append(os.path.dirname(folders[-1]))
        found = (name for each in folders for name in sorted(self._pin_files(each)))
        names = (name for name in found if not is_guide(name.rpartition("/")[2]))
        return tuple(filter(None, map(self._pin_text, names)))

    def _pinned_around(self, folder: str, read: _Pins) -> dict[str, tuple[str, str]]:
        """What files in a folder pin and, within its project, those in the folders above."""
        key = (folder, read)
        if key not in self._pins:
            top = self._project_of(folder)
            ends = top is None or folder == top
            above = {} if ends else self._pinned_around(os.path.dirname(folder), read)
            self._pins[key] = above | self._pinned_in(folder, read)
        return self._pins[key]

    def project_around(self, name: str) -> Path:
        """The folder of the project that a file belongs to, else the file's own."""
        folder = self._folder_of(name)
        return Path(self._project_of(folder) or folder)

    def checkout_of(self, folder: Path) -> Path | None:
        """The folder of the git checkout that an absolute folder is in."""
        root = self._git_root(str(folder))
        return None if root is None else Path(root)

    def _project_of(self, folder: str) -> str | None:
        """The folder of the project that an absolute folder belongs to: its checkout, else that in which
        everything is said to be, else what the user named."""
        if folder not in self._projects:
            root = self._git_root(folder)
            known = map(str, (self.project_root, *self.named)) if root is None else ()
            inside = folder + os.sep
            around = (each for each in known if inside.startswith(each.rstrip(os.sep) + os.sep))
            self._projects[folder] = next(around, root)
        return self._projects[folder]

    def _pinned_in(self, folder: str, read: _Pins) -> dict[str, tuple[str, str]]:
        texts = {name: self._pin_text(name) for name in self._pin_files(folder)}
        return merged({n: read(n, text) for n, text in texts.items() if text is not None})

    def _pin_text(self, name: str, trail: tuple[str, ...] = ()) -> str | None:
        """The text of a file that may pin versions, behind that of the files which it takes in."""
        data = self.read_or_none(name)
        if data is None:
            return None
        text = data.decode("utf-8", "replace")
        folder, trail = name.rpartition("/")[0], (*trail, name)
        if not trail[1:] and not is_requirements(name.rpartition("/")[2]):
            return text
        others = (self.name(os.path.join(folder, path)) for path in included(text))
        taken = (
            self._pin_text(other, trail)
            for other in others
            if other not in trail and len(trail) <= _DEEPEST_INCLUDE
        )
        return "\n".join((*filter(None, taken), text))

    def _pin_files(self, folder: str) -> set[str]:
        entries = self.disk.names(folder)
        here = {self.name(os.path.join(folder, entry)) for entry in entries if is_pin_file(entry)}
        unsaved = {name for name in self.overlay if is_pin_file(name.rpartition("/")[2])}
        return here | {name for name in unsaved if self._folder_of(name) == folder}


def _sourced(parsed: Document | FileError | None) -> tuple[str, ...]:
    """The paths of other files that a file takes in, as far as it could be parsed."""
    return parsed.sourced if isinstance(parsed, Document) else ()
