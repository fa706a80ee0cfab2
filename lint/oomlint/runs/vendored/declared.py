"""What a project's own copies of frameworks, patches of them and programs declare, and so is no mistake in its runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from oomlint.dialects.base import Claim
from oomlint.dialects.block import Block
from oomlint.dialects.entries import plain_value
from oomlint.dialects.reading import StrayKey, WrongValue
from oomlint.documents.base import PythonDocument
from oomlint.errors import FileError
from oomlint.files.workspace import Workspace
from oomlint.runs.run import Run
from oomlint.runs.vendored.files import DEEPEST, MOST_OF_PACKAGE, PACKAGE_DEEPEST
from oomlint.runs.vendored.readers import LIST, QUOTED, OwnReaders, as_field
from oomlint.runs.vendored.unsloth import patched_by

_PATCHES = (".patch", ".diff")
_MOST_PATCHES = 50
_DECLARES = rb"(?m)^class \w|add_argument\("


def without_declared(
    workspace: Workspace, run: Run, claims: Sequence[Claim], readers: OwnReaders
) -> Run:
    """The run less the stray keys that the project's own programs ask for, and less those and the
    values out of range that its own copy of the framework declares, or a patch of it."""
    is_started = any(claim.is_launched for claim in claims) and not run.is_started_by_guess
    options = readers.options_of(claims) if run.stray else frozenset[str]()
    known = tuple(_as_installed(workspace, stray) for stray in run.stray)
    strays = tuple(
        stray
        for stray in known
        if stray.path not in options and not readers.ask_for(stray, is_started=is_started)
    )
    run = run if strays == run.stray else replace(run, stray=strays)
    redeclared = frozenset(_redeclared(workspace, run, readers))
    run = replace(run, redeclared=redeclared) if redeclared else run
    wrongs = tuple(
        wrong
        for wrong in run.wrong
        if is_started or not (readers.replace(wrong) or readers.declare(wrong))
    )
    run = run if wrongs == run.wrong else replace(run, wrong=wrongs)
    refused = [stray for stray in run.stray if stray.is_refused]
    worded = [wrong for wrong in run.wrong if _word_of(wrong)]
    listed = [wrong for wrong in run.wrong if _is_list(wrong)]
    # What the project's copy declares it reads, whatever a release makes of it.
    ignored = [stray for stray in run.stray if stray.is_ignored and stray.nearest]
    if not refused and not ignored and not worded and not listed:
        return run
    texts = [*_copies(workspace, claims), *_patches(workspace, claims)]
    copies = [readers.declared_by_copy(claim) for claim in claims]
    words = {word for text in texts for word in re.findall(rb"\w+", text)}
    declared = {name for copy in copies for name in copy.names}
    words |= declared
    choices = {choice for text in texts for choice in re.findall(QUOTED, text)}
    choices |= {choice for copy in copies for choice in copy.choices}
    lists = {as_field(option) for text in texts for option in re.findall(LIST, text)}
    lists |= {option for copy in copies for option in copy.lists}

    def is_known(stray: StrayKey) -> bool:
        key = stray.path.rpartition(".")[2].encode()
        return (stray in refused and key in words) or (stray in ignored and key in declared)

    def is_declared(wrong: WrongValue) -> bool:
        if wrong in listed and as_field(wrong.entry.key.encode()) in lists:
            return True
        return wrong in worded and _word_of(wrong).encode() in choices

    return replace(
        run,
        stray=tuple(stray for stray in run.stray if not is_known(stray)),
        wrong=tuple(wrong for wrong in run.wrong if not is_declared(wrong)),
    )


def _redeclared(workspace: Workspace, run: Run, readers: OwnReaders) -> Iterator[str]:
    """Old names of keys that a script of the project gives to options of its own, or another library to the class that is
    called."""
    for block, _ in run.parts.blocks:
        for key, _ in block.renamed():
            if isinstance(block.document, PythonDocument):  # a call of the library's own class
                is_declared = bool(patched_by(workspace, key))
            else:
                is_declared = readers.declare(key)
            if is_declared:
                yield key.path


def lacks(workspace: Workspace, claims: Sequence[Claim], block: Block, key: str) -> bool | None:
    """Whether a key would be new to the project's own copy of the framework that reads a block; ``None`` where it has
    no copy of it."""
    claim = next((c for c in claims if block in c.blocks and c.dialect.declares_all), None)
    if claim is None:
        return None
    copies = _own_copies(workspace, claim)
    section, _, name = key.rpartition(".")
    if section and section in copies.sections:
        # Options of argparse that are called by their section: the same word in another one is another key.
        return key not in copies.options
    return name not in copies.words if copies.words else None


class _Declared(Struct, frozen=True):
    """What files of a project may declare: every word in them, the options that they quote, and the sections that
    options of their parsers are called by."""

    words: frozenset[str]
    options: frozenset[str]
    sections: frozenset[str]


def _own_copies(workspace: Workspace, claim: Claim) -> _Declared:
    """What the files of the project declare that hold the keys of a claim's framework, the program that it starts
    included; of one of which none is known those of its packages."""
    programs = (r.path for r in claim.references if r.dialect == claim.dialect.name)
    paths = (*claim.dialect.declared_in, *(path for path in programs if path.endswith(".py")))
    beside = os.path.join(os.path.dirname(claim.path), "_")  # the same for all configs there
    return workspace.once(_declared_around, (beside, paths, tuple(claim.dialect.packages)))


def _declared_around(
    workspace: Workspace, about: tuple[str, tuple[str, ...], tuple[str, ...]]
) -> _Declared:
    """What is declared in the files that a config would find at some paths, else in packages around it."""
    name, paths, packages = about
    named = [workspace.resolve(path, name) for path in paths]
    # Where one program parses all options, what its package says elsewhere is no key.
    if any(named):
        return workspace.once(_declared_in, tuple(dict.fromkeys(filter(None, named))))
    folders = tuple(
        str(each / package)
        for package in packages
        for each in workspace.search_folders(name)
        if workspace.holds(each, package)
    )
    return workspace.once(_declared_below, folders)


def _declared_below(workspace: Workspace, folders: tuple[str, ...]) -> _Declared:
    return _declared_in(workspace, tuple(_of_packages(workspace, folders)))


def _declared_in(workspace: Workspace, names: tuple[str, ...]) -> _Declared:
    words, options, sections = set[bytes](), set[bytes](), set[bytes]()
    for name in names:
        with suppress(FileError):
            text = workspace.read(name)
            words.update(re.findall(rb"\w+", text))
            options.update(re.findall(rb'"--([\w.-]+)"', text))
            sections.update(re.findall(rb'add_argument\(\s*"--([\w.-]+)\.', text))
    return _Declared(*(frozenset(map(_text, found)) for found in (words, options, sections)))


def _text(word: bytes) -> str:
    return word.decode("utf-8", "replace")


def _of_packages(workspace: Workspace, folders: Iterable[str]) -> Iterator[str]:
    """The files of a framework's packages in the project that declare anything: where only configs lie there, no
    copy does."""
    for folder in folders:
        inside = f"{workspace.name(folder)}/"
        unsaved = (name for name in workspace.overlay if name.startswith(inside))
        saved = islice(workspace.below(folder, (".py",), PACKAGE_DEEPEST), MOST_OF_PACKAGE)
        for name in (*unsaved, *saved):
            if re.search(_DECLARES, workspace.read_or_none(name) or b""):
                yield name


def _as_installed(workspace: Workspace, stray: StrayKey) -> StrayKey:
    """A key with what the project's own copy of the framework makes of it, or another library of the framework."""
    if _drops(workspace, stray):
        return replace(stray, is_dropped=True)
    doubt = patched_by(workspace, stray)
    return replace(stray, doubt=doubt) if doubt else stray


def _drops(workspace: Workspace, stray: StrayKey) -> bool:
    """Whether the project's own copy of the framework goes on without a key that later releases refuse."""
    refusal = stray.block.table.refusal
    paths = () if refusal is None else refusal.paths
    names = filter(None, (workspace.resolve(path, stray.block.path) for path in paths))
    data = next((workspace.read_or_none(name) for name in names), None)
    return refusal is not None and data is not None and re.search(refusal.by, data) is None


def _word_of(wrong: WrongValue) -> str:
    """A value that may be one of a list of names; a number that is out of range is so everywhere."""
    value = plain_value(wrong.entry.value, "yaml12")
    return value if isinstance(value, str) and re.search("[A-Za-z]", value) else ""


def _is_list(wrong: WrongValue) -> bool:
    """Whether several values are given at once: a list, or words of a command that stand in one variable."""
    value = plain_value(wrong.entry.value, "yaml12")
    return isinstance(value, list) or (isinstance(value, str) and len(value.split()) > 1)


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


def _patches(workspace: Workspace, claims: Iterable[Claim]) -> Iterator[bytes]:
    """What patches that the project carries add to the files of a run's framework."""
    folders = {
        (claim.dialect.name.replace("-", "").encode(), workspace.project_around(claim.path))
        for claim in claims
    }
    for package, folder in sorted(folders):
        unsaved = (name for name in workspace.overlay if name.endswith(_PATCHES))
        names = (*unsaved, *workspace.below(str(folder), _PATCHES, DEEPEST))
        for name in names[:_MOST_PATCHES]:
            for part in re.split(rb"(?m)^\+\+\+ ", workspace.read_or_none(name) or b"")[1:]:
                path, _, hunks = part.partition(b"\n")
                if package in path.replace(b"-", b"").replace(b"_", b"").split(b"/"):
                    yield b"\n".join(re.findall(rb"(?m)^\+(.*)$", hunks))
