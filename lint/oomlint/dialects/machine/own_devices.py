"""The GPUs that a script leaves itself: ``os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"``."""

from __future__ import annotations

from collections.abc import Iterator

from oomlint.dialects.block import Block
from oomlint.dialects.machine.launcher_keys import ENVIRONMENT
from oomlint.documents.base import Document, Entry, Mapping, Scalar

_KEY = "CUDA_VISIBLE_DEVICES"
_LOCKED = "it is set by a statement of the script"


def devices_of_script(document: Document) -> Iterator[Block]:
    """As part of the environment, which a command that says it, too, is taken to mean."""
    for fact in document.facts:
        if fact.kind == "shows-devices":
            span = fact.location.span
            value = Scalar(span, fact.detail["devices"], locked=_LOCKED)
            mapping = Mapping(span, {_KEY: Entry(_KEY, span, value, span)}, locked=_LOCKED)
            yield Block(document, mapping, ENVIRONMENT, span, locked=_LOCKED)
