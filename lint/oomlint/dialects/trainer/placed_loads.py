"""Loads that say where the weights go: DeepSpeed's stage 3 parts them itself, and is refused beside them."""

from __future__ import annotations

from oomlint.dialects.cells import Cells
from oomlint.dialects.meaning import Wishes
from oomlint.dialects.setting import Setting
from oomlint.documents.base import Call, Mapping, Scalar
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

# The stage that parts the weights.
_PARTS_WEIGHTS = 3


def check_stage_may_load(wishes: Wishes, run: Cells) -> None:
    """
    Raises:
        CannotEdit: stage 3 is wished for, and the script hands ``from_pretrained`` a device map: transformers stops
            there ("DeepSpeed Zero-3 is not compatible with passing a device_map", transformers 4.57 and 5.23
            modeling_utils.py, integrations/accelerate.py check_and_set_device_map).
    """
    if wishes.get(f.parallel.zero.stage) != _PARTS_WEIGHTS:
        return
    said = run.given.said(f.load.device_map)
    entry = said.origin.entry if isinstance(said, Setting) else None
    value = entry.value if entry is not None else None
    is_call = isinstance(value, Scalar) and isinstance(value.value, Call)
    if isinstance(value, (Scalar, Mapping)) and not is_call:
        raise CannotEdit(
            "the script loads its model with a device_map, with which transformers refuses ZeRO stage 3"
        )
