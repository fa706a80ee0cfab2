"""Files that several runs use, or that are called by what they say: a copy is changed, or the one named that
says it already."""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Mapping as MappingABC, Sequence, Set
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from oomlint.dialects.block import Copy
from oomlint.dialects.table import Table
from oomlint.documents.base import Document, Node, Scalar
from oomlint.documents.suffixes import PYTHON_SUFFIXES, SHELL_SUFFIXES, YAML_SUFFIXES
from oomlint.documents.text import Edit, Source, by_path, together
from oomlint.errors import CannotEdit
from oomlint.files.workspace import Workspace
from oomlint.fix.new_files import configs_around, sense_of
from oomlint.fix.story import (
    Wishes,
    contradiction,
    name_for,
    says_offloading_twice,
)
from oomlint.plan.fields import f
from oomlint.runs.private_copies import OPTIMIZER
from oomlint.runs.run import Run

# Of what a machine has nobody keeps a file for each number.
_COUNTS = (".gpus_per_node", ".nodes", ".world", ".total_processes", ".machines")


class FixFields(Struct, frozen=True):
    """What a fix sets: canonical fields, and the fields of each file that say it."""

    wishes: Wishes
    written: MappingABC[str, Set[Any]]
    left: tuple[str, ...] = ()
    """Files in whose place the run names others by now."""

    def of(self, path: str) -> Wishes:
        """What is set in one file, or in those that it names in their place: what a copy is for."""
        paths = (path,) if path in self.written else self.left
        fields = {field for each in paths for field in self.written.get(each, ())}
        own = {name: value for name, value in self.wishes.items() if name in fields}
        if own:
            return own
        others = {
            field
            for other, fields in self.written.items()
            if other not in paths
            for field in fields
        }
        return {name: value for name, value in self.wishes.items() if name not in others}

    def following(self, path: str) -> FixFields:
        return replace(self, left=(*self.left, path))


class Apart(Struct, frozen=True):
    """Edits that touch nothing that other runs use."""

    edits: tuple[Edit, ...]
    left: MappingABC[str, tuple[Copy, str]]
    """File that the run does not name any more → the one in its place, and why."""
    joined: frozenset[str]
    """Files that the run is made to name and that were there before."""
    freed: frozenset[Any] = frozenset()
    """Fields that such a file may say otherwise: tuning, which every file has its own of."""


class _Leaving(Struct, frozen=True):
    """A file that a run has to leave for another one: ``why`` completes "in a copy, …, since"; empty
    where a framework ships it. ``has_heirs``: one beside it will do. ``taken`` is the file beside it that has the
    name which a copy would have."""

    copy: Copy
    why: str
    source: Source
    has_heirs: bool
    taken: str | None = None


def set_apart(
    run: Run, edits: tuple[Edit, ...], expected: dict[Any, Any], agreed: Set[str], wanted: FixFields
) -> Apart:
    """Edits of files that are not the run's alone, or that would no longer be what they are called, as edits
    of copies, which the run is made to name; what it then says of its files is added to ``expected``.

    Raises:
        CannotEdit: a file cannot be copied, or its copy not be named.
    """
    left: dict[str, tuple[Copy, str]] = {}
    joined: set[str] = set()
    freed: set[Any] = set()
    while True:
        groups = by_path(edits)
        ours = (path for path, group in groups.items() if not group[0].creates)
        found = next(
            ((p, c) for p in ours for c in [_leaving(run, p, agreed, wanted, groups[p])] if c), None
        )
        if found is None:
            return Apart(edits, left, frozenset(joined), frozenset(freed))
        path, leaving = found
        if wanted.of(path) and all(str(field).endswith(_COUNTS) for field in wanted.of(path)):
            raise CannotEdit(
                f"{_name(path)} serves others too, and how many processes start is said better on the command line"
            )
        if _says_what_trains(run, path):
            raise CannotEdit(
                f"{_name(path)} serves others too, and what this run alone wants is said better on its command line"
            )
        offloads = any(str(field).startswith("offload.") for field in wanted.of(path))
        wanted = wanted.following(path)
        copy = leaving.copy
        text = leaving.source.edited(groups[path]).text
        rest = [edit for edit in edits if edit.path != path]
        table, tuning = _table_of(run, path)
        twin = _twin(run, copy, path, text) if leaving.has_heirs else None
        if twin is None or twin.path != leaving.taken:
            _check_copy(run, path, leaving, None if twin is not None else text, offloads)
        if twin is None:
            mark = "\ufeff" if leaving.source.has_bom else ""
            rest.append(Edit(copy.path, 0, 0, mark + text, creates=True))
        else:
            copy = twin
            joined.add(twin.path)
            if table is not None and tuning:
                freed |= tuned_fields(table)
        left[path] = copy, leaving.why
        # The file that names it may be one that others use, too.
        edits = together([*rest, *_name_copy(run, copy, expected, leaving.why)])


def _check_copy(run: Run, path: str, leaving: _Leaving, text: str | None, offloads: bool) -> None:
    """See that a copy, of which ``text`` is what it says, or the one beside it that is named in its place, is the only
    file for its job, and says by its name what that is.

    Raises:
        CannotEdit: it would not.
    """
    if leaving.taken is not None:
        # Two files of one name and a number tell nobody which is for what.
        raise CannotEdit(f"{_name(leaving.taken)} beside it is for that, and says otherwise")
    copier = run.parts.copier
    if text is None or copier is None:
        return
    wider = copier.wider_of(path, text) if offloads else None
    if wider is not None:
        raise CannotEdit(f"{_name(wider)} beside it is for that, and offloads as much or more")
    elsewhere = _elsewhere(run, path, text)
    if elsewhere is not None:
        raise CannotEdit(f"{elsewhere} is for that, and says otherwise")
    if says_offloading_twice(_stem(path), _stem(leaving.copy.path)):
        raise CannotEdit(f"{_name(path)} says by its name already what it offloads")


def _elsewhere(run: Run, path: str, text: str) -> str | None:
    """A DeepSpeed config of the project's own in another folder that is of the stage of a copy and keeps in host RAM what
    this does, or more, where the file that the copy is of is not: two files for one job tell nobody which is whose. One
    that a config beside it names is for that one's runs."""
    assert run.parts.copier is not None
    wanted = sense_of(path, text)
    if wanted is None:
        return None
    stage, offloads = wanted
    folder, workspace = path.rpartition("/")[0], run.parts.copier.workspace
    return next(
        (
            each.path
            for each in configs_around(workspace, path)
            if each.path.rpartition("/")[0] != folder
            and each.stage == stage
            and each.offloads >= offloads
            and not _is_named_beside(workspace, each.path)
        ),
        None,
    )


def _is_named_beside(workspace: Workspace, path: str) -> bool:
    """Whether a config or a script in the folder of a file names it."""
    folder, _, name = path.rpartition("/")
    others = workspace.files_in(folder, (*YAML_SUFFIXES, *SHELL_SUFFIXES, *PYTHON_SUFFIXES))
    return any(name.encode() in (workspace.read_or_none(other) or b"") for other in others)


def tuned_fields(table: Table) -> frozenset[Any]:
    """What a file that does the same job may say otherwise, by the table of its keys."""
    said_anew = rf"{table.tuning}|{re.escape(OPTIMIZER)}.+|(?:bf16|fp16)\..+"
    return frozenset(row.field for row in table.rows if re.fullmatch(said_anew, row.key))


def _says_what_trains(run: Run, path: str) -> bool:
    """Whether the file at ``path`` is a config of the project's own that names the model: that is a run, and no file
    which is chosen by its job, and nobody keeps two of one run that differ in a number."""
    return any(
        block.path == path and block.copy is None and f.model.id in block.table.by_field
        for block, _ in run.parts.blocks
    )


def _table_of(run: Run, path: str) -> tuple[Table | None, str]:
    """The table of a file's keys, and which of them are tuning."""
    table = next((block.table for block, _ in run.parts.blocks if block.path == path), None)
    return table, "" if table is None else table.tuning


def _twin(run: Run, copy: Copy, path: str, text: str) -> Copy | None:
    """A file beside the one at ``path`` that says already what a text for it says."""
    if run.parts.copier is None:
        return None
    _, tuning = _table_of(run, path)
    return run.parts.copier.twin_of(copy, path, text, tuning, run.plan.precision.compute)


def _leaving(
    run: Run, path: str, agreed: Set[str], wanted: FixFields, group: Sequence[Edit]
) -> _Leaving | None:
    """Why and for what a run must leave a file; ``None`` where it may be edited in place.

    Raises:
        CannotEdit: it must not be edited, and cannot be copied either.
    """
    # A copy is called by what it has otherwise.
    asked = wanted.of(path)
    new = {
        field: value
        for field, value in asked.items()
        if (said := run.settings.get(field)) is None or said.value != value
    }
    stem = partial(name_for, wishes=new or asked)
    for block, _ in run.parts.blocks:
        if block.path == path and block.copy is not None:
            return _leaving_shipped(run, path, block.copy, block.document.source, stem)
    if any(c.path == path and c.is_shipped and c.named is None for c in run.claims):
        raise CannotEdit(f"others use {path} too; a run that names it gets a copy")
    name = _name(path)
    word = contradiction(path, run.plan, wanted.wishes)
    is_shared = path in run.parts.shared and path not in agreed
    if word is None and not is_shared:
        return _leaving_for_twin(run, path, stem, group)
    if word is None:
        _check_name(path, stem)
    copy_of = run.parts.copier.copy_of(path, stem) if run.parts.copier is not None else None
    whose = next((other for other in run.parts.shared.get(path, ()) if other != run.name), "")
    if copy_of is None:
        if word is not None:
            raise CannotEdit(f"{name} would no longer be what its name says: {word}")
        raise CannotEdit(f"{path} also serves {whose}, which does not ask for it")
    source = next(claim.document.source for claim in run.claims if claim.path == path)
    why = f"{whose} uses {name} too" if is_shared else f"{name} is called {word}"
    taken = None if run.parts.copier is None else run.parts.copier.taken(path, stem)
    return _Leaving(copy_of, why, source, has_heirs=True, taken=taken)


def _check_name(path: str, stem: Callable[[str], str]) -> None:
    """See that a copy tells by its name what it is for: ``zero3-2.yaml`` tells nobody.

    Raises:
        CannotEdit: it would not.
    """
    plain = _stem(path)
    if stem(plain) == plain:
        raise CannotEdit(
            f"{path} also serves others, and a copy would have nothing to be called by"
        )


def _leaving_for_twin(
    run: Run, path: str, stem: Callable[[str], str], group: Sequence[Edit]
) -> _Leaving | None:
    """For what a run leaves a file of its own: one beside it that does the job already; ``None`` where there is none,
    and for files of a kind that is not chosen by its job."""
    copier, tuning = run.parts.copier, _table_of(run, path)[1]
    copy = copier.copy_of(path, stem) if copier is not None and tuning else None
    if copy is None:
        return None
    source = next(claim.document.source for claim in run.claims if claim.path == path)
    twin = _twin(run, copy, path, source.edited(group).text)
    if twin is None:
        return None
    return _Leaving(copy, f"{_name(twin.path)} is for that", source, has_heirs=True)


def _leaving_shipped(
    run: Run, path: str, copy: Copy, source: Source, stem: Callable[[str], str]
) -> _Leaving:
    """For what a run leaves a file that a framework ships: one beside it where that folder is the project's, else
    one beside the file that names it.

    Raises:
        CannotEdit: a copy would not be found.
    """
    copier = run.parts.copier
    if copier is None:
        return _Leaving(copy, "", source, has_heirs=False)
    beside = copier.copy_of(path, stem) if copier.workspace.exists(path) else None
    if beside is not None:
        _check_name(path, stem)
        taken = copier.taken(path, stem)
        return _Leaving(beside, "", source, has_heirs=True, taken=taken)
    elsewhere = copy.written.rpartition("/")[0]
    if elsewhere:
        # "examples/deepspeed/ds_z3_config.json" is found where the run starts: in a checkout of the framework, not here.
        raise CannotEdit(
            f"it starts where {elsewhere} is, which is not in this project, so that a copy here would not be found"
        )
    return _Leaving(copier.renamed(copy, stem), "", source, has_heirs=False)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _stem(path: str) -> str:
    return os.path.splitext(_name(path))[0]


def _name_copy(run: Run, copy: Copy, expected: dict[Any, Any], why: str) -> list[Edit]:
    """Edits that make the run name its own copy of a file instead of the one it names now.

    Raises:
        CannotEdit: the value that names the file cannot be written.
    """
    try:
        document, node = _naming(run, copy)
        edits = _in_its_folder(document.source, node, copy)
        edits = edits or document.set_value(node, copy.reference)
    except CannotEdit as error:
        if not why:
            raise
        raise CannotEdit(f"{why}, and this run cannot be given a copy: {error}") from None
    for name, setting in run.settings.items():
        entry = setting.origin.entry
        if entry is not None and entry.value is node:
            expected[name] = copy.reference
    return edits


def _in_its_folder(source: Source, node: Node, copy: Copy) -> list[Edit]:
    """The last part of a name of which the rest is a variable's: ``"$HERE/zero2.json"``.

    Raises:
        CannotEdit: more than the folder is a variable's, or the copy lies elsewhere.
    """
    start, end = node.span.start, node.span.end
    written = source.text[start:end]
    if "$" not in written:
        return []
    old, new = copy.written.rpartition("/"), copy.reference.rpartition("/")
    at = written.rfind(f"/{old[2]}")
    if at < 0 or old[0] != new[0] or written[at + len(old[2]) + 1 :].strip("\"'"):
        raise CannotEdit("a variable names it")
    return [Edit(source.path, start + at + 1, start + at + 1 + len(old[2]), new[2])]


def _naming(run: Run, copy: Copy) -> tuple[Document, Node]:
    """The value that names a file: that of a key or an option, or a word of a command line."""
    for block, _ in run.parts.blocks:
        node = block.value_at(copy.named)
        if node is not None:
            return block.document, _whole(node, copy)
    for claim in run.claims:
        commands = claim.document.commands if claim.path == copy.named.path else ()
        for word in (word for command in commands for word in command.words):
            if (word.via or word.span) == copy.named.span:
                return claim.document, _whole(word, copy)
    raise CannotEdit("the file is named where nothing can be changed")


def _whole(node: Node, copy: Copy) -> Node:
    """The value, if it is the name of the file and nothing else."""
    if isinstance(node, Scalar) and node.value == copy.written:
        return node
    raise CannotEdit("the file is named by parts of its path")
