"""A DeepSpeed config that a run is to name and that is not here yet: where it goes, and by which name the run finds it.

It goes beside what names it. A program opens it from the folder that it is started in, which is told by how a command
line names the config or the script that it starts; a config that nothing starts is taken to be started from the
project's root. A config of the project's own that does the job already is named in its place.
"""

from __future__ import annotations

import os.path
import posixpath
import re
from collections.abc import Iterator, Mapping as MappingABC, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct

from oomlint.dialects.base import Claim
from oomlint.dialects.block import Block, Copy
from oomlint.dialects.common.fields import ref
from oomlint.dialects.deepspeed.blocks import deepspeed_block
from oomlint.dialects.deepspeed.dialect import looks_like_deepspeed
from oomlint.dialects.deepspeed.keys import DEEPSPEED
from oomlint.dialects.deepspeed.presets import FAMILIES, text_of
from oomlint.dialects.setting import Setting
from oomlint.documents import JSON_SUFFIXES, PYTHON_SUFFIXES, YAML_SUFFIXES, kind_of
from oomlint.documents.base import Document, Mapping, Scalar, ShellDocument, root_of
from oomlint.documents.json import parse_json
from oomlint.documents.text import Location, Source, Span
from oomlint.errors import CannotEdit, FileError
from oomlint.files.searched import SearchedTexts
from oomlint.files.workspace import Workspace
from oomlint.fix.ownership import why_not_ours
from oomlint.plan.fields import f
from oomlint.runs.claimed import launch_of
from oomlint.runs.private_copies import Copier
from oomlint.runs.run import Run

# How deep below a project's root its DeepSpeed configs lie, and how many files are looked at.
_DEEPEST = 5
_MOST_FILES = 500


class AddedConfig(Struct, frozen=True):
    """``reference`` is how the run names it; ``text`` is ``None`` where the file is here already."""

    path: str
    reference: str
    text: str | None


class _Place(Struct, frozen=True):
    """A folder, as a display path, how the run names what lies in it, and the folder that the run starts in, if it is
    told."""

    folder: str
    written: str
    start: str | None

    def name(self, file: str) -> tuple[str, str]:
        """Path and reference of a file in it."""
        return posixpath.join(self.folder, file), posixpath.join(self.written, file)


def is_to_be_added(run: Run, name: object) -> bool:
    """Whether a DeepSpeed config that a run is to name is one that is not here yet: named without a folder, for a run
    that names none as it is (:func:`oomlint.dialects.deepspeed.fixes.swap_preset`)."""
    names = [f"{own}.json" for family in FAMILIES for own in family.configs()]
    return not run.is_explicit(ref.deepspeed) and name in names


def added_config(run: Run, block: Block, name: str) -> AddedConfig:
    """The config called ``name`` as a file that the run finds, which ``block`` is to name.

    Raises:
        CannotEdit: it cannot be told from where the run would look for it, or the project has one for the job that says
            otherwise.
    """
    copier = run.parts.copier
    if copier is None:
        raise CannotEdit("no file can be added here")
    place = _place_of(run, copier.workspace, block)
    path, reference = place.name(name)
    theirs = configs_around(copier.workspace, block.path)
    family = next(each for each in FAMILIES if name.removesuffix(".json") in each.configs())
    text = text_of(family, name)
    twin = _twin(copier, run, path, reference, text)
    if twin is not None:
        return AddedConfig(twin.path, twin.reference, None)
    if copier.workspace.exists(path):
        raise CannotEdit(f"{name} beside it is for that, and says otherwise")
    other = _elsewhere(copier, run, theirs, path, text)
    if other is not None:
        return AddedConfig(other, _from_start(place, other), None)
    if theirs:
        raise CannotEdit(
            f"the project has DeepSpeed configs of its own ({theirs[0].path}), and which of them a run takes is its author's to say"
        )
    if not copier.workspace.can_add_to(place.folder):
        raise CannotEdit(f"no file can be added beside {block.path}")
    return AddedConfig(path, reference, text)


# -- where it goes ---------------------------------------------------------------------------------


def _place_of(run: Run, workspace: Workspace, block: Block) -> _Place:
    claim = next((c for c in run.claims if c.path == block.path and c.named is not None), None)
    if claim is not None and claim.named is not None:
        return _beside_named(claim.path, claim.named.path)
    if isinstance(block.document, ShellDocument):
        return _beside_command(run, workspace, block)
    if kind_of(block.path) in (*PYTHON_SUFFIXES, ".ipynb"):
        raise CannotEdit("nothing here starts the script, and so nothing tells in which folder")
    name = block.path.rpartition("/")[2]
    reference = workspace.reference_to(block.path, f"{name}.not-there", block.path)
    return _beside_named(block.path, reference)


def _beside_named(path: str, written: str) -> _Place:
    """Beside a file that a command names, by the way in which it does."""
    if os.path.isabs(os.path.expanduser(written)):
        raise CannotEdit(
            "the command names it by an absolute path, so that nothing tells in which folder it starts"
        )
    return _Place(posixpath.dirname(path), posixpath.dirname(written), _start_of(path, written))


def _start_of(path: str, written: str) -> str | None:
    """The folder in which a command starts that names the file at ``path`` as ``written``."""
    plain = posixpath.normpath(written)
    if plain.startswith("..") or not f"/{path}".endswith(f"/{plain}"):
        return None
    return path[: len(path) - len(plain)].rstrip("/") or ("/" if path.startswith("/") else "")


def _beside_command(run: Run, workspace: Workspace, block: Block) -> _Place:
    """Beside the script that has the command, if that lies where it starts or below, else where it starts."""
    claim = next((c for c in run.claims if c.path == block.path and c.is_launched), None)
    launch = None if claim is None else launch_of(claim)
    if claim is None or launch is None or launch.command.folder_is_open:
        raise CannotEdit("nothing tells in which folder the command starts")
    programs = (
        _start_of(found, path) for path, found in _programs(claim, workspace, launch.command.folder)
    )
    start = next((each for each in programs if each is not None), None)
    if start is None:
        raise CannotEdit("nothing tells in which folder the command starts")
    if "$" in _written(block.document.source, launch.program):
        raise CannotEdit("a variable names the folder of its program, and not the one it starts in")
    folder = posixpath.dirname(block.path)
    inside = posixpath.relpath(folder or ".", start or ".")
    if inside.startswith(".."):
        return _Place(start, "", start)
    return _Place(folder, "" if inside == "." else inside, start)


def _written(source: Source, word: Scalar) -> str:
    """A word as it stands in its file."""
    return source.text[word.span.start : word.span.end]


def _programs(claim: Claim, workspace: Workspace, folder: str) -> Iterator[tuple[str, str]]:
    """The programs that a command starts, as it names them, and where they are."""
    for path in claim.scripts:
        found = workspace.resolve(path, claim.path, folder)
        if found is not None:
            yield path, found


def _from_start(place: _Place, path: str) -> str:
    """How a run names a file that lies elsewhere in the project.

    Raises:
        CannotEdit: it is not told in which folder the run starts.
    """
    if place.start is None:
        raise CannotEdit(f"{path} is for that, and nothing tells how the run would name it")
    return posixpath.relpath(path, place.start or ".")


# -- what does the job already ---------------------------------------------------------------------


def _twin(copier: Copier, run: Run, path: str, reference: str, text: str) -> Copy | None:
    """A file in the folder of ``path``, that one included, which says what ``text`` says but for its tuning."""
    other = f"{path}.not-there.json"  # a file is not asked whether it is its own twin
    copy = Copy(Location(path, Span(0, 0)), reference, other, reference)
    dtype = run.plan.precision.compute
    return copier.twin_of(copy, other, text, DEEPSPEED.tuning, dtype)


def _elsewhere(
    copier: Copier, run: Run, theirs: Sequence[Theirs], path: str, text: str
) -> str | None:
    """A config of the project's own that does the job of ``text``, wherever it lies.

    Raises:
        CannotEdit: one is of that stage, offloads as much or more, and says otherwise.
    """
    mine = sense_of(path, text)
    assert mine is not None
    stage, offloads = mine
    alike = [each.path for each in theirs if each.stage == stage and each.offloads >= offloads]
    for other in alike:
        twin = _twin(copier, run, other, other, text)
        if twin is not None:
            return twin.path
    if alike:
        raise CannotEdit(f"{alike[0]} is for that, and says otherwise")
    return None


class Theirs(Struct, frozen=True):
    """A DeepSpeed config of the project's own, its stage, and what it offloads."""

    path: str
    stage: object
    offloads: frozenset[Any]


def configs_around(workspace: Workspace, path: str) -> tuple[Theirs, ...]:
    """The DeepSpeed configs of the project around a file."""
    return workspace.once(_configs_in, workspace.name(workspace.project_around(path)))


def accelerate_config_around(workspace: Workspace, path: str) -> str | None:
    """A config of Accelerate's in the project around a file by which DeepSpeed trains; ``None`` where it has none."""
    project = workspace.name(workspace.project_around(path))
    return workspace.once(_accelerate_config_in, project)


def _accelerate_config_in(workspace: Workspace, project: str) -> str | None:
    files = islice(workspace.below(project, YAML_SUFFIXES, _DEEPEST), _MOST_FILES)
    texts = SearchedTexts(workspace, files).holding(b"distributed_type")
    return next((name for name, data in texts if re.search(_BY_DEEPSPEED, data)), None)


# accelerate 1.15 utils/dataclasses.py DistributedType, commands/config/config_args.py.
_BY_DEEPSPEED = rb"(?m)^distributed_type:[ \t]*['\"]?DEEPSPEED\b"


def _configs_in(workspace: Workspace, project: str) -> tuple[Theirs, ...]:
    files = islice(workspace.below(project, JSON_SUFFIXES, _DEEPEST), _MOST_FILES)
    unsaved = (name for name in workspace.overlay if kind_of(name) in JSON_SUFFIXES)
    found: list[Theirs] = []
    for name, _ in SearchedTexts(workspace, (*files, *unsaved)).holding(b"zero_optimization"):
        if why_not_ours(workspace, name) is not None:
            continue
        try:
            document = workspace.document(name)
        except FileError:
            continue
        sense = None if document is None else _sense(document)
        if sense is not None:
            found.append(Theirs(name, *sense))
    return tuple(found)


def sense_of(path: str, text: str) -> tuple[object, frozenset[Any]] | None:
    """The stage of a text that is a DeepSpeed config in JSON, and the states that it offloads."""
    return _sense(parse_json(Source(path, text))) if kind_of(path) in JSON_SUFFIXES else None


def _sense(document: Document) -> tuple[object, frozenset[Any]] | None:
    """The stage of a document that is a DeepSpeed config, and the states that it offloads."""
    root = root_of(document)
    if not isinstance(root, Mapping) or not looks_like_deepspeed(root.entries):
        return None
    settings: MappingABC[Any, Setting] = deepspeed_block(document, root).reading.settings
    if f.parallel.zero.stage not in settings:
        return None
    moved = (f.offload.optimizer, f.offload.params)
    offloads = {each for each in moved if each in settings and settings[each].value != "none"}
    return settings[f.parallel.zero.stage].value, frozenset(offloads)
