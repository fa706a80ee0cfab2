"""Where a run's own copy of a file goes that other runs use too.

A file that a framework ships is copied beside the file that names it; one of the project's own
beside itself, so that what stands around it is found from the copy as well.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Sequence
from itertools import count

from msgspec import Struct
from msgspec.structs import replace

from oomlint.dialects.base import Claim, Reference
from oomlint.dialects.table import Copy
from oomlint.disk import is_tools_own
from oomlint.documents import JSON_SUFFIXES, TOML_SUFFIXES, YAML_SUFFIXES, kind_of, parse
from oomlint.documents.text import Source
from oomlint.errors import FileError
from oomlint.workspace import Workspace

# Plain data reads the same wherever it lies; code may look for what lies beside it.
_COPIED = (*JSON_SUFFIXES, *YAML_SUFFIXES, *TOML_SUFFIXES)

# So many files of a folder are compared with a copy before it is made.
_MOST_TWINS = 64


class Copier(Struct, frozen=True, eq=False):
    """Makes copies of the files of one run."""

    workspace: Workspace
    claims: Sequence[Claim]

    def copy_of(self, path: str) -> Copy | None:
        """Where a copy of a file goes; ``None`` where no other file names it, or it is code."""
        reached = (c for c in self.claims if c.path == path and c.named is not None)
        claim = next(reached, None)
        if claim is None or claim.named is None or kind_of(path) not in _COPIED:
            return None
        return _beside_itself(self.workspace, path, claim.named)

    def twin_of(self, copy: Copy, path: str, text: str) -> Copy | None:
        """The copy as a file that is there already: beside the file at ``path``, with the very
        data of ``text``, whatever its layout."""
        wanted = _data(path, text)
        if wanted is None:
            return None
        for name in self.workspace.beside(path)[:_MOST_TWINS]:
            data = self.workspace.read_or_none(name)
            if name == path or data is None:
                continue
            try:
                is_same = _data(name, Source.from_bytes(name, data).text) == wanted
            except FileError:
                continue
            if is_same:
                return _named(copy, name)
        return None


def shipped_copy(workspace: Workspace, claim: Claim, reference: Reference, from_file: str) -> Copy:
    """Where a copy of a file goes that a framework ships: beside the file that names it."""
    folder, slash, name = from_file.rpartition("/")
    stem, suffix = os.path.splitext(reference.path.rpartition("/")[2])
    suffix = suffix or (".json" if claim.document.source.text.startswith("{") else ".yaml")
    start = f"{folder}{slash}{os.path.splitext(name)[0]}.{stem}"
    path = _free(workspace, start, suffix)
    named = workspace.reference_to(path, reference.path, from_file)
    others = None
    found = workspace.resolve(reference.path, from_file)
    if found is not None:
        others = frozenset(n.rpartition("/")[2] for n in workspace.beside(found))
    return Copy(reference.location, reference.path, path, named, others)


def _beside_itself(workspace: Workspace, path: str, reference: Reference) -> Copy:
    """Where a copy of one of the project's own files goes."""
    folder, slash, name = path.rpartition("/")
    from_file = reference.location.path
    whose = os.path.splitext(from_file.rpartition("/")[2])[0]
    stem, suffix = os.path.splitext(name)
    copy = Copy(reference.location, reference.path, path, reference.path)
    if is_tools_own(path) or not workspace.can_add_to(folder):
        # What another tool installs it installs anew, and some folders nobody may write to.
        folder, slash, _ = from_file.rpartition("/")
        other = _free(workspace, f"{folder}{slash}{whose}.{stem}", suffix)
        return replace(
            copy, path=other, reference=workspace.reference_to(other, reference.path, from_file)
        )
    return _named(copy, _free(workspace, f"{folder}{slash}{stem}.{whose}", suffix))


def _named(copy: Copy, path: str) -> Copy:
    """The copy at another place in the folder of the file that it is made of."""
    folder, slash, _ = copy.written.rpartition("/")
    return replace(copy, path=path, reference=f"{folder}{slash}{path.rpartition('/')[2]}")


def _free(workspace: Workspace, start: str, suffix: str) -> str:
    names: Iterator[str] = (f"{start}{'' if n == 1 else f'-{n}'}{suffix}" for n in count(1))
    return next(name for name in names if not workspace.exists(name))


def _data(name: str, text: str) -> object:
    """What a file says, whatever its layout and the order of its keys; ``None`` if nobody can
    tell."""
    from oomlint.documents.proof import Rooted, leaves

    try:
        document = parse(Source(name, text))
    except FileError:
        return None
    return leaves(document) if isinstance(document, Rooted) else None
