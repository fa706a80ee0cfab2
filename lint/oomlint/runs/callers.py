"""Programs of a project that call what trains in a module of it: ``from training.runner import run`` and ``run(config)``.

Nobody starts such a module as it is. It is read with what they give it, and what starts them starts it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from oomlint.documents import PYTHON_SUFFIXES, kind_of
from oomlint.documents.base import Document
from oomlint.documents.python.document import PythonScript, is_of_tests
from oomlint.documents.text import Source
from oomlint.errors import FileError
from oomlint.files.reference_index import texts_below
from oomlint.files.workspace import Workspace

# What more programs call is a library, in which each trains something else.
_MOST_CALLERS = 4
# Names of fewer letters stand in every text.
_SHORTEST = 3
_IMPORTS = rb"^[ \t]*from[ \t]+[\w.]+[ \t]+import[ \t]*(?:\([^)]*?|[^\n#]*?)\b%s\b"
_OF_MODULE = rb"^[ \t]*(?:from[ \t]+[\w.]+[ \t]+)?import[ \t]+[^\n#]*\b%s\b"


def callers_of(workspace: Workspace, name: str, document: Document | None) -> tuple[str, ...]:
    """The programs that call what trains in a module, by path; of a file that trains by itself, or in which so many have
    things trained that each has another, none."""
    if not isinstance(document, PythonScript) or not document.awaits:
        return ()
    found = tuple(_callers(workspace, name, document.awaits))
    return found if len(found) <= _MOST_CALLERS else ()


def _callers(workspace: Workspace, name: str, awaits: frozenset[str]) -> Iterator[str]:
    """The programs that import some of the names, or the module, by path."""
    texts = texts_below(workspace, workspace.project_around(name))
    stem = PurePath(name).stem.encode()
    seen: set[str] = set()
    for wanted in sorted(awaits):
        word = wanted.encode()
        for other, data in texts.holding(word) if len(word) >= _SHORTEST else ():
            if other == name or other in seen or kind_of(other) not in PYTHON_SUFFIXES:
                continue
            imports = re.search(_IMPORTS % re.escape(word), data, re.MULTILINE)
            of_module = re.search(_OF_MODULE % re.escape(stem), data, re.MULTILINE)
            if (imports or of_module) and not _is_test(other, data):
                seen.add(other)
                yield other


def _is_test(name: str, data: bytes) -> bool:
    try:
        return is_of_tests(Source.from_bytes(name, data))
    except FileError:
        return True
