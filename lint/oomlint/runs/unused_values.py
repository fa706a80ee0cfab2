"""Values that a run has no use for: what would refuse them is never made."""

from __future__ import annotations

from typing import Any, Final

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.backend import ADAPTER_METHODS
from oomlint.dialects.omegaconf import OmegaConfBlock, OmegaConfOverrides
from oomlint.dialects.reading import WrongValue
from oomlint.documents.python.nodes import is_of_options
from oomlint.plan.fields import f

_OF_ADAPTERS: Final[frozenset[Any]] = frozenset({f.trainable.r})
"""What nothing but an adapter is made with, which refuses it (peft 0.21.2 tuners/lora/layer.py update_layer)."""


def is_unused(wrong: WrongValue, cells: Cells) -> bool:
    """Whether the value is the default of options in whose place the command gives another, or a parser takes it and
    nothing is made with it: a rank where no adapter is trained; or a word of the command replaces it."""
    if is_of_options(wrong.entry.value) and cells.setting(wrong.field) is not None:
        return True
    if _is_overridden(wrong, cells):
        return True
    if not wrong.is_late or wrong.field not in _OF_ADAPTERS:
        return False
    method = cells[f.trainable.method]
    return method is not None and method not in ADAPTER_METHODS


def _is_overridden(wrong: WrongValue, cells: Cells) -> bool:
    """Whether a word of the command line stands in the place of a value of a YAML: OmegaConf merges them, and only what
    comes of that is read (omegaconf 2.3 omegaconf.py merge; hydra-core 1.3 _internal/config_loader_impl.py
    _apply_overrides_to_config)."""
    said = cells.given.stated.get(wrong.field)
    by = None if said is None else said.origin.block
    is_merged = isinstance(by, OmegaConfOverrides) and isinstance(wrong.block, OmegaConfBlock)
    return is_merged and by is not wrong.block
