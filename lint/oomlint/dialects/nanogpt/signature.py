"""Whether a script lets a file of overrides change its own globals, as nanoGPT's do, and what it sets before that."""

from __future__ import annotations

import ast
import re

from msgspec.structs import replace

from oomlint.documents.base import Document, Mapping
from oomlint.documents.text import Source

# nanoGPT 3adf61e train.py:76: exec(open('configurator.py').read())
_OVERRIDES = re.compile(
    r"^[ \t]*exec\(open\(['\"][\w./]*configurator\.py['\"]\)\.read\(\)\)", re.MULTILINE
)
_NEEDED = frozenset({"n_layer", "n_head", "n_embd", "block_size", "batch_size"})


def is_configured(document: Document) -> bool:
    """Whether a script trains with globals that a configurator may change; those that only sample do not."""
    text = document.source.text
    return ".backward(" in text and _OVERRIDES.search(text) is not None


def globals_of(document: Document) -> Mapping | None:
    """What a training script of this kind sets before they are changed; ``None`` where no model is among it."""
    from oomlint.documents.python.assignments import settings_of
    from oomlint.documents.python.document import PythonScript

    found = _OVERRIDES.search(document.source.text)
    if not isinstance(document, PythonScript) or found is None:
        return None
    head = document.source.text[: found.start()]
    try:
        ast.parse(head)
    except SyntaxError:
        return None  # in a block of the script's
    settings = settings_of(replace(document, source=Source(document.source.path, head)))
    return settings if settings.entries.keys() >= _NEEDED else None
