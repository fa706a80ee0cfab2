"""Keys that Unsloth adds to TRL's classes of arguments, in scripts that name it nowhere: a module of the project that is
imported along with them does.

Importing it puts its own classes in the place of TRL's (unsloth 2025.6.1 models/llama.py:2810 PatchFastRL, models/rl.py:119;
2025.8.1 the same; 2025.1.5 has none yet). Whether a script takes the class before or after is not followed.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from oomlint.dialects.reading import StrayKey
from oomlint.documents.base import PythonDocument
from oomlint.documents.text import Source
from oomlint.errors import FileError
from oomlint.files.workspace import Workspace
from oomlint.runs.vendored.files import programs_in

_IMPORTS = r"(?m)^[ \t]*(?:from|import)[ \t]+unsloth\b"
# A script's own package, what that imports, and what these do.
_DEEPEST = 2


def patched_by(workspace: Workspace, stray: StrayKey) -> str:
    """What may give TRL's class the key after all, in words; empty where nothing is seen to."""
    document = stray.block.document
    if not isinstance(document, PythonDocument) or not stray.block.table.name.startswith("TRL "):
        return ""
    from oomlint.dialects.unsloth.keys import ADDED  # few scripts have a key of these without it

    if stray.path not in ADDED:
        return ""
    path = workspace.once(_importing, stray.block.path)
    return f"Unsloth, which {path} imports, adds it to TRL's classes" if path else ""


def _importing(workspace: Workspace, script: str) -> str:
    """The file that imports Unsloth among those that a script takes in, or that start it."""
    from oomlint.documents.python.modules import Modules  # which only scripts need

    modules = Modules(partial(_read, workspace, script))
    stem = posixpath.splitext(posixpath.basename(script))[0]
    waiting = [modules.of(stem, 0, script), modules.of("", 1, script)]
    seen: set[str] = set()
    for _ in range(_DEEPEST + 1):
        taken = [each for each in waiting if each is not None and each.source.path not in seen]
        seen.update(each.source.path for each in taken)
        for each in taken:
            if re.search(_IMPORTS, each.source.text):
                return posixpath.basename(each.source.path)
        waiting = [
            modules.of(dotted, level, each.source.path)
            for each in taken
            for module, level, name in each.imports.values()
            for dotted in dict.fromkeys((module, ".".join(filter(None, (module, name)))))
        ]
    return next(_starting(workspace, script, stem), "")


def _read(workspace: Workspace, script: str, reference: str) -> Source | None:
    name = workspace.resolve(reference, script)
    data = None if name is None else workspace.read_or_none(name)
    with suppress(FileError):
        return None if name is None or data is None else Source.from_bytes(name, data)
    return None


def _starting(workspace: Workspace, script: str, stem: str) -> Iterator[str]:
    """Programs of the project that import a script and Unsloth."""
    takes = re.compile(rf"(?m)^[ \t]*(?:from|import)\b.*\b{re.escape(stem)}\b")
    for name in programs_in(workspace, str(workspace.project_around(script))):
        text = (workspace.read_or_none(name) or b"").decode("utf-8", "replace")
        if re.search(_IMPORTS, text) and takes.search(text):
            yield posixpath.basename(name)
