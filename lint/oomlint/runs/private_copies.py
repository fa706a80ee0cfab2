"""Where a run's own copy of a file goes that other runs use too.

A file that a framework ships and that is not at hand is copied beside the file that names it; one that
lies in the project beside itself, so that what stands around it is found from the copy as well.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from oomlint.dialects.base import Claim, Reference
from oomlint.dialects.block import Copy
from oomlint.dialects.deepspeed.presets import is_shipped
from oomlint.documents import JSON_SUFFIXES, TOML_SUFFIXES, YAML_SUFFIXES, kind_of, parse
from oomlint.documents.text import Source
from oomlint.errors import FileError
from oomlint.files.disk import is_tools_own
from oomlint.files.workspace import Workspace

if TYPE_CHECKING:
    from oomlint.documents.proof import Leaf, Path

# Plain data reads the same wherever it lies; code may look for what lies beside it.
_COPIED = (*JSON_SUFFIXES, *YAML_SUFFIXES, *TOML_SUFFIXES)

# What of a DeepSpeed config names the optimizer, and its numbers.
OPTIMIZER = "optimizer."

# So many files of a folder are compared with a copy before it is made.
_MOST_TWINS = 64


class Copier(Struct, frozen=True, eq=False):
    """Makes copies of the files of one run."""

    workspace: Workspace
    claims: Sequence[Claim]

    def copy_of(self, path: str, name_for: Callable[[str], str]) -> Copy | None:
        """Where a copy of a file goes, called as ``name_for`` makes of its name without ending; ``None``
        where no other file names it, or it is code."""
        reached = (c for c in self.claims if c.path == path and c.named is not None)
        claim = next(reached, None)
        if claim is None or claim.named is None or kind_of(path) not in _COPIED:
            return None
        return _beside_itself(self.workspace, path, claim.named, name_for)

    def taken(self, path: str, name_for: Callable[[str], str]) -> str | None:
        """The file beside another one that is called as its copy would be."""
        folder, slash, name = path.rpartition("/")
        stem, suffix = os.path.splitext(name)
        there = f"{folder}{slash}{name_for(stem)}{suffix}"
        return there if there != path and self.workspace.exists(there) else None

    def renamed(self, copy: Copy, name_for: Callable[[str], str]) -> Copy:
        """The copy of a file that a framework ships, called by what it is for."""
        stem, suffix = os.path.splitext(copy.written.rpartition("/")[2])
        folder, slash, name = copy.path.rpartition("/")
        suffix = suffix or os.path.splitext(name)[1]
        path = _free(self.workspace, f"{folder}{slash}{name_for(stem)}", suffix)
        reference = copy.reference.removesuffix(name) + path.rpartition("/")[2]
        return replace(copy, path=path, reference=reference)

    def twin_of(
        self, copy: Copy, path: str, text: str, tuning: str = "", dtype: str | None = None
    ) -> Copy | None:
        """The copy as a file that is there already: beside the file at ``path``, with the data of ``text``,
        whatever its layout and what it says of the keys that match ``tuning``; the one first that says all
        the same. ``dtype`` is what the run computes in, which ``auto`` then stands for."""
        wanted = _data(path, text)
        if wanted is None:
            return None
        near: str | None = None
        for name in self.workspace.beside(path)[:_MOST_TWINS]:
            data = self.workspace.read_or_none(name)
            if name == path or data is None:
                continue
            try:
                found = _data(name, Source.from_bytes(name, data).text)
            except FileError:
                continue
            if found == wanted:
                return _named(copy, name)
            if (
                near is None
                and found is not None
                and tuning
                and _does(_job(found, tuning, dtype), _job(wanted, tuning, dtype))
            ):
                near = name
        return None if near is None else _named(copy, near)

    def wider_of(self, path: str, text: str) -> str | None:
        """A DeepSpeed config beside the file at ``path`` of the stage that ``text`` is of, and that keeps in host RAM all
        that this does, or more: with that one the project makes its models fit."""
        wanted = _keys(path, text)
        if wanted is None or not _offloads(wanted):
            return None
        for name in self.workspace.beside(path)[:_MOST_TWINS]:
            data = self.workspace.read_or_none(name)
            if name == path or data is None:
                continue
            try:
                found = _keys(name, Source.from_bytes(name, data).text)
            except FileError:
                continue
            is_alike = found is not None and found.get(_STAGE) == wanted.get(_STAGE)
            if found is not None and is_alike and _offloads(found) >= _offloads(wanted):
                return name
        return None


def _offloads(said: Mapping[str, Leaf]) -> frozenset[str]:
    """The parts of the states that a DeepSpeed config keeps elsewhere than on the GPU."""
    found = ((re.fullmatch(_DEVICE, key), leaf[1]) for key, leaf in said.items())
    return frozenset(match[1] for match, device in found if match and device not in (None, "none"))


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
        beside = workspace.beside(found)
        others = frozenset(n.rpartition("/")[2] for n in beside if _is_as_shipped(workspace, n))
    return Copy(reference.location, reference.path, path, named, others)


def _is_as_shipped(workspace: Workspace, name: str) -> bool:
    data = workspace.read_or_none(name)
    return data is not None and is_shipped(name, data.decode("utf-8", "replace"))


def _beside_itself(
    workspace: Workspace, path: str, reference: Reference, name_for: Callable[[str], str]
) -> Copy:
    """Where a copy of one of the project's own files goes."""
    folder, slash, name = path.rpartition("/")
    from_file = reference.location.path
    stem, suffix = os.path.splitext(name)
    called = name_for(stem)
    copy = Copy(reference.location, reference.path, path, reference.path)
    if is_tools_own(path) or not workspace.can_add_to(folder):
        # What another tool installs it installs anew, and some folders nobody may write to.
        folder, slash, _ = from_file.rpartition("/")
        other = _free(workspace, f"{folder}{slash}{called}", suffix)
        return replace(
            copy, path=other, reference=workspace.reference_to(other, reference.path, from_file)
        )
    return _named(copy, _free(workspace, f"{folder}{slash}{called}", suffix))


def _named(copy: Copy, path: str) -> Copy:
    """The copy at another place in the folder of the file that it is made of."""
    folder, slash, _ = copy.written.rpartition("/")
    return replace(copy, path=path, reference=f"{folder}{slash}{path.rpartition('/')[2]}")


def _free(workspace: Workspace, start: str, suffix: str) -> str:
    names: Iterator[str] = (f"{start}{'' if n == 1 else f'-{n}'}{suffix}" for n in count(1))
    return next(name for name in names if not workspace.exists(name))


def _job(data: Mapping[Path, Leaf], tuning: str, dtype: str | None) -> dict[str, Leaf]:
    """What a file says but for its tuning, for offloading to nowhere, which is the same as none, and for the
    precision where that is the run's."""
    said = {".".join(map(str, path[1:])): leaf for path, leaf in data.items()}
    of_run = {half for half in _HALVES if dtype is not None and _computes(said, half, dtype)}
    # An AdamW all of whose numbers the Trainer fills in is the one that it makes where none is named
    # (transformers 4.57 integrations/deepspeed.py deepspeed_optim_sched).
    optimizer = {key: leaf for key, leaf in said.items() if key.startswith(OPTIMIZER)}
    is_trainers = all(
        leaf[1] == ("AdamW" if key == f"{OPTIMIZER}type" else "auto")
        for key, leaf in optimizer.items()
    )
    return {
        key: leaf
        for key, leaf in said.items()
        if not re.fullmatch(tuning, key)
        and key.partition(".")[0] not in of_run
        and not ("offload" in key and leaf[1] == "none")
        and not (is_trainers and key in optimizer)
    }


_HALVES = ("bf16", "fp16")


def _does(found: Mapping[str, Leaf], wanted: Mapping[str, Leaf]) -> bool:
    """Whether a file does a job, and at most permits what the one that is wanted does not ask for."""
    more = (
        key in _PERMITS and leaf[1] == _PERMITS[key]
        for key, leaf in found.items()
        if key not in wanted
    )
    return all(more) and wanted == {key: found[key] for key in found.keys() & wanted.keys()}


# What takes an optimizer that DeepSpeed would refuse, and changes nothing for another (DeepSpeed 0.19 runtime/engine.py
# _do_sanity_check, _configure_basic_optimizer).
_PERMITS = {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}


def _computes(said: Mapping[str, Leaf], half: str, dtype: str) -> bool:
    """Whether a DeepSpeed config turns one of the 16-bit types on or off as a run does that computes in ``dtype``;
    ``auto`` is what the Trainer's arguments say (transformers 4.57 integrations/deepspeed.py)."""
    leaf = said.get(f"{half}.enabled")
    enabled = False if leaf is None else leaf[1]
    return enabled == "auto" or bool(enabled) == (half == dtype)


_STAGE = "zero_optimization.stage"
_DEVICE = r"zero_optimization\.(offload_\w+)\.device"


def _keys(name: str, text: str) -> dict[str, Leaf] | None:
    """What a file says by its keys, joined by dots."""
    data = _data(name, text)
    return None if data is None else {".".join(map(str, p[1:])): leaf for p, leaf in data.items()}


def _data(name: str, text: str) -> dict[Path, Leaf] | None:
    """What a file says, whatever its layout and the order of its keys; ``None`` if nobody can
    tell."""
    from oomlint.documents.base import DataDocument
    from oomlint.documents.proof import leaves

    try:
        document = parse(Source(name, text))
    except FileError:
        return None
    return leaves(document) if isinstance(document, DataDocument) else None
