"""Values that a run has no use for: what would refuse them is never made."""

from __future__ import annotations

from typing import Any, Final

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import ADAPTER_METHODS
from oomlint.dialects.reading import WrongValue
from oomlint.documents.python.nodes import is_of_options
from oomlint.plan.fields import f

_OF_ADAPTERS: Final[frozenset[Any]] = frozenset({f.trainable.r})
"""What nothing but an adapter is made with, which refuses it (peft 0.21.2 tuners/lora/layer.py update_layer)."""


def is_unused(wrong: WrongValue, cells: Cells) -> bool:
    """Whether the value is the default of options in whose place the command gives another, or a parser takes it and
    nothing is made with it: a rank where no adapter is trained."""
    if is_of_options(wrong.entry.value) and cells.setting(wrong.field) is not None:
        return True
    if not wrong.is_late or wrong.field not in _OF_ADAPTERS:
        return False
    method = cells[f.trainable.method]
    return method is not None and method not in ADAPTER_METHODS
