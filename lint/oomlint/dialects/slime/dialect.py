"""slime: ``train.py`` and ``train_async.py`` under ``ray job submit``, and scripts of its forks.

Read from THUDM/slime 624b824a (2026-08-21). A script keeps its options in arrays, those of the model
in one of another file, ``source models/qwen3-4B.sh``: what comes from there is read, pointed at and
changed there. Ray starts the ranks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint.dialects.base import Claim, Dialect, Reference
from oomlint.dialects.common.paths import with_ends_of_paths
from oomlint.dialects.machine.launch import Launch, place
from oomlint.dialects.machine.launches import launches
from oomlint.dialects.megatron.dialect import MegatronOptions, as_options
from oomlint.dialects.reading import StrayKey
from oomlint.dialects.slime.keys import SLIME, SWITCHES
from oomlint.dialects.slime.meaning import meaning
from oomlint.dialects.slime.signature import is_slimes
from oomlint.documents import SHELL_SUFFIXES
from oomlint.documents.base import Document, Entry, Mapping, ShellDocument
from oomlint.documents.shell.nodes import ShellEntry
from oomlint.documents.text import Location

if TYPE_CHECKING:
    from oomlint.dialects.cells import Cells

# What is a program of slime's, or of a copy of it, where arrays out of sight hold its options.
_PROGRAM = re.compile(r"train\w*")


class Slime(Dialect):
    name = "slime"
    packages = ("slime",)
    markers = (b"actor-num-gpus-per-node", b"hf-checkpoint", b"rollout-num-gpus")
    markers_prove = False
    suffixes = SHELL_SUFFIXES
    declared_in = ("slime/utils/arguments.py",)
    meaning = meaning

    def strays(self, run: Cells) -> Iterable[StrayKey]:
        """Scripts of forks and of own entry points have options of their own: a slip of the pen is what
        is an option of slime's but for its spelling."""
        return (stray for stray in run.strays if stray.meant is not None)

    def recognise(self, document: Document) -> Iterable[Claim]:
        for launch in launches(document):
            if _is_ours(launch):
                yield self._launch(launch)

    def _launch(self, launch: Launch) -> Claim:
        document = launch.document
        if launch.flag("debug_rollout_only") is not None:
            return Claim(self, "aside", document, ())
        flags = with_ends_of_paths(document, launch.flags, ("hf_checkpoint",))
        elsewhere = set(map(_file_of, flags.entries.values())) - {""}
        # The command starts one process, which asks Ray for the others.
        scene = launch.blocks[:-1]
        block = MegatronOptions(document, _as_options(document, _here(flags)), SLIME, launch.anchor)
        where = Location(document.source.path, place(launch.program))
        named = (Reference(file, where, SlimeArguments.name) for file in sorted(elsewhere))
        references = (*launch.scene_references, *named)
        return Claim(self, "run", document, (*scene, block), references)


class SlimeArguments(Dialect):
    """A script that another one sources for its arrays of options."""

    name = "slime-arguments"
    suffixes = ()
    meaning = meaning

    def recognise(self, document: Document) -> Iterable[Claim]:
        return ()

    def adopt(self, document: Document) -> Claim | None:
        arrays = document.arrays if isinstance(document, ShellDocument) else ()
        blocks = tuple(
            MegatronOptions(document, _as_options(document, _here(options)), SLIME, options.span)
            for options in arrays
        )
        return Claim(self, "part", document, blocks) if blocks else None


def _is_ours(launch: Launch) -> bool:
    if not launch.is_module and launch.script is None:
        return False
    may_be_more = launch.flags.open_ended and _PROGRAM.fullmatch(launch.stem) is not None
    return is_slimes(launch.flags.entries.keys(), least=2 if may_be_more else 3)


def _file_of(entry: Entry) -> str:
    """The other script that an option stands in, if it does."""
    return entry.file if isinstance(entry, ShellEntry) else ""


def _here(options: Mapping) -> Mapping:
    """The options that stand in the script itself."""
    entries = options.entries.items()
    own = {key: entry for key, entry in entries if not _file_of(entry)}
    return replace(options, entries=own)


def _as_options(document: Document, flags: Mapping) -> Mapping:
    return as_options(document, flags, SWITCHES)
