"""Models that commands write which train nothing: what merges an adapter into the model that it was trained on, converts
a checkpoint or exports one.

Nothing is known of the program but what its command calls: a model that it starts from, and a folder that it writes.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from oomlint.dialects.machine.launches import launches
from oomlint.documents.base import Document, Mapping, Scalar
from oomlint.models.facts import ModelFacts

# ``--output_dir`` (MedicalGPT, peft's examples), ``--export_dir`` (LLaMA-Factory), ``--target_dir`` (verl 0.5
# model_merger), ``--merged_path``, ``--save_path``.
_WRITES: Final = r"(?i)(?:output|out|export|save|saved|merged|target|dst|dest)(?:_\w+)?"
# Of a checkpoint that the model itself is made of: verl's ``--local_dir``.
_STARTS: Final = frozenset(
    {"base", "local_dir", "checkpoint", "checkpoint_dir", "ckpt_dir", "input_dir"}
)


class Saved(Struct, frozen=True, eq=False):
    """What a run leaves behind: ``run`` is its name, ``start`` the model that it starts from."""

    run: str
    folder: str
    start: str
    facts: ModelFacts | None


def saved_by_commands(document: Document) -> Iterator[Saved]:
    """What the commands of a document write of which each names one folder, and one model that it starts from."""
    from oomlint.documents.python.model_names import calls_model  # few projects merge anything

    path = document.source.path
    for launch in launches(document):
        texts = dict(_texts(launch.flags))
        written = {text for key, text in texts.items() if re.fullmatch(_WRITES, key)}
        named = {text for key, text in texts.items() if calls_model((key,))}
        starts = named or {text for key, text in texts.items() if key in _STARTS}
        if len(written) == 1 and len(starts) == 1:
            folder, start = plain_folder(written.pop()), starts.pop()
            yield Saved(path, folder, start, derived_facts(path, start, is_adapter=False))


def _texts(flags: Mapping) -> Iterator[tuple[str, str]]:
    for key, entry in flags.entries.items():
        if isinstance(entry.value, Scalar) and isinstance(entry.value.value, str):
            yield key.replace("-", "_"), entry.value.value


def derived_facts(program: str, start: str, *, is_adapter: bool) -> ModelFacts | None:
    """The facts of what a program saves, where those of the model that it starts from are known."""
    from oomlint.models.resolve import copied, lookup

    base = lookup(start) or copied(start)
    if base is None:
        return None
    source = f"{program} saves it, and starts from {base.id}: {base.source}"
    return replace(
        base, confidence="assumed", source=source, saved_by=program, is_adapter=is_adapter
    )


def plain_folder(path: str) -> str:
    """A path as it is compared with others: with slashes, and without what leads back."""
    return posixpath.normpath(path.replace("\\", "/"))
