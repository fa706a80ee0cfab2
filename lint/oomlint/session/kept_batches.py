"""What was said of batches of files, for as long as nothing that they saw has changed.

Where one file of a folder has changed, the check as a whole (:mod:`oomlint.session.cache`) is to be made anew, but most
of its batches know nothing of that file. What is kept of a batch is found by all that decides beside files, and by
the names of its files; it counts only while everything that it saw on disk would be seen again.
"""

from __future__ import annotations

import io
import json
import pickle
import sys
import zlib
from collections.abc import Sequence
from enum import Enum
from pathlib import PurePath
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from oomlint.files.dependencies import Sights, is_certain, still_holds
from oomlint.files.disk import Disk
from oomlint.files.workspace import Workspace
from oomlint.linting.rule import Rule
from oomlint.plan.fields import Field
from oomlint.session.cache import BATCH, identity, key_of, read_entry, write_entry
from oomlint.session.jobs import Job

T = TypeVar("T")

# An entry is written once and mostly read some times: of 250 KB that repeat themselves, the quickest level leaves 40.
_LEVEL = 1


class KeptBatches:
    """What is kept of batches of a job, and takes what is to be kept of others.

    Args:
        asked: what decides about the answers beside the job, in words.

    Raises:
        OSError: oomlint's own files cannot be looked at.
        ValueError: the options hold paths that are no text.
    """

    def __init__(self, job: Job, asked: str) -> None:
        self._job = job
        self._again: set[tuple[str, str]] = set()
        self._common = _known(job, asked)

    def found(
        self, names: Sequence[str], kind: type[T], about: Sequence[Any]
    ) -> tuple[T, Sights] | None:
        """What is kept of the batch of these files, a ``kind``, with all that it saw; ``None`` if nothing is that
        still holds. ``about``: what it was told of other batches."""
        entry = read_entry(self._key(names, about), BATCH)
        if entry is None:
            return None
        try:
            seen, _, answer = zlib.decompress(entry).partition(b"\n")
            sights: Sights = json.loads(seen)
            if not still_holds(sights, self._again):
                return None
            kept = _Unpickler(io.BytesIO(answer)).load()
        except Exception:  # whatever somebody else has written there is as good as nothing
            return None
        return (kept, sights) if isinstance(kept, kind) else None

    def keep(
        self, names: Sequence[str], answer: object, sights: Sights, about: Sequence[Any]
    ) -> None:
        if is_certain(sights):
            data = io.BytesIO()
            _Pickler(data, pickle.HIGHEST_PROTOCOL).dump(answer)
            entry = zlib.compress(json.dumps(sights).encode() + b"\n" + data.getvalue(), _LEVEL)
            write_entry(self._key(names, about), BATCH, entry)

    def _key(self, names: Sequence[str], about: Sequence[Any]) -> str:
        explicit = sorted(self._job.explicit.intersection(names))
        return key_of([self._common, list(names), explicit, msgspec.json.encode(about).decode()])


def _known(job: Job, asked: str) -> list[Any]:
    """What decides about the answer for every batch, beside files and their names."""
    space = job.workspace
    folders = [str(folder) for folder in (space.cwd, space.project_root, *space.named)]
    options = msgspec.json.encode(job.options, order="sorted").decode()
    return [asked, identity(), options, folders, job.others_train]


# -- answers as bytes ----------------------------------------------------------------------

# Records, and what stands in them: to make one does nothing else.
_PLAIN = (Struct, Enum, Rule, Workspace, Disk, Field, PurePath)
_MODULES = ("oomlint", "oomlint_rules", "pathlib")
# Of records that take keywords alone, pickle notes this function of msgspec (0.18 on), which calls their class.
_REBUILD = ("msgspec._utils", "rebuild")


class _ByValue(pickle.Pickler):
    """Writes a member of an enumeration as its class and its value, as Python does but for 3.11.0 to 3.11.3, whose enum.py
    has pickle call ``getattr``, which is no record of ours."""

    def reducer_override(self, value: object) -> Any:
        return (type(value), (value.value,)) if isinstance(value, Enum) else NotImplemented


_Pickler = _ByValue if (3, 11) <= sys.version_info[:3] < (3, 11, 4) else pickle.Pickler


class _Unpickler(pickle.Unpickler):
    """Reads records of ours and nothing else: bytes of somebody else's that got into the cache start nothing."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == _REBUILD:
            return super().find_class(module, name)
        found = super().find_class(module, name) if module.partition(".")[0] in _MODULES else None
        if not (isinstance(found, type) and issubclass(found, _PLAIN)):
            raise pickle.UnpicklingError(f"{module}.{name} is no record of ours")
        return found
