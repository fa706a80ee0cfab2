"""Files that several runs use: a run's own copy of one is changed, unless all want the same."""

from __future__ import annotations

from collections.abc import Mapping as MappingABC, Set
from typing import Any

from msgspec import Struct

from oomlint.dialects.table import Copy
from oomlint.documents.base import Document, Node, Scalar
from oomlint.documents.text import Edit, Source, by_path, together
from oomlint.errors import CannotEdit
from oomlint.run import Run


class Apart(Struct, frozen=True):
    """Edits that touch nothing that other runs use."""

    edits: tuple[Edit, ...]
    left: MappingABC[str, tuple[Copy, str]]
    """File that was copied → its copy, and another run that uses it, if that is why."""
    joined: frozenset[str]
    """Files that the run is made to name and that were there before."""


def set_apart(
    run: Run, edits: tuple[Edit, ...], expected: dict[Any, Any], agreed: Set[str]
) -> Apart:
    """Edits of files that are not the run's alone as edits of copies, which the run is made to
    name; what it then says of its files is added to ``expected``.

    Raises:
        CannotEdit: a file cannot be copied, or its copy not be named.
    """
    left: dict[str, tuple[Copy, str]] = {}
    joined: set[str] = set()
    while True:
        groups = by_path(edits)
        ours = (path for path, group in groups.items() if not group[0].creates)
        found = next(((p, c) for p in ours for c in [_copy(run, p, agreed)] if c), None)
        if found is None:
            return Apart(edits, left, frozenset(joined))
        path, (copy, whose, source) = found
        text = source.edited(groups[path]).text
        rest = [edit for edit in edits if edit.path != path]
        twin = run.parts.copier.twin_of(copy, path, text) if run.parts.copier and whose else None
        if twin is None:
            mark = "\ufeff" if source.has_bom else ""
            rest.append(Edit(copy.path, 0, 0, mark + text, creates=True))
        else:
            copy = twin
            joined.add(twin.path)
        left[path] = copy, whose
        # The file that names it may be one that others use, too.
        edits = together([*rest, *_name_copy(run, copy, expected, whose)])


def _copy(run: Run, path: str, agreed: Set[str]) -> tuple[Copy, str, Source] | None:
    """Where the run's own copy of a file goes, another run that uses the file, and its text;
    ``None`` where it may be edited in place.

    Raises:
        CannotEdit: it must not be edited, and cannot be copied either.
    """
    for block, _ in run.parts.blocks:
        if block.path == path and block.copy is not None:
            return block.copy, "", block.document.source
    if any(c.path == path and c.is_shipped and c.named is None for c in run.claims):
        raise CannotEdit(f"others use {path} too; a run that names it gets a copy")
    if path in agreed or path not in run.parts.shared:
        return None
    whose = next(name for name in run.parts.shared[path] if name != run.name)
    copy = run.parts.copier.copy_of(path) if run.parts.copier is not None else None
    if copy is None:
        raise CannotEdit(f"{path} also serves {whose}, which does not ask for it")
    source = next(claim.document.source for claim in run.claims if claim.path == path)
    return copy, whose, source


def _name_copy(run: Run, copy: Copy, expected: dict[Any, Any], whose: str) -> list[Edit]:
    """Edits that make the run name its own copy of a file instead of the one it names now.

    Raises:
        CannotEdit: the value that names the file cannot be written.
    """
    try:
        document, node = _naming(run, copy)
        edits = document.set_value(node, copy.reference)
    except CannotEdit as error:
        if not whose:
            raise
        raise CannotEdit(
            f"{copy.written} also serves {whose}, and this run cannot be given a copy: {error}"
        ) from None
    for name, setting in run.settings.items():
        entry = setting.origin.entry
        if entry is not None and entry.value is node:
            expected[name] = copy.reference
    return edits


def _naming(run: Run, copy: Copy) -> tuple[Document, Node]:
    """The value that names a file: that of a key or an option, or a word of a command line."""
    for block, _ in run.parts.blocks:
        node = block.value_at(copy.named)
        if node is not None:
            return block.document, _whole(node, copy)
    for claim in run.claims:
        commands = getattr(claim.document, "commands", ()) if claim.path == copy.named.path else ()
        for word in (word for command in commands for word in command.words):
            if (word.via or word.span) == copy.named.span:
                return claim.document, _whole(word, copy)
    raise CannotEdit("the file is named where nothing can be changed")


def _whole(node: Node, copy: Copy) -> Node:
    """The value, if it is the name of the file and nothing else."""
    if isinstance(node, Scalar) and node.value == copy.written:
        return node
    raise CannotEdit("the file is named by parts of its path")
