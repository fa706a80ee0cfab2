"""Wishes about sharding and offloading as the names of the DeepSpeed configs that ms-swift ships.

Read from ms-swift 3602360a (4.6.0.dev0) ``swift/config/*.json`` and ``llm/ds_config`` of 2.x.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import ref
from oomlint.dialects.deepspeed.presets import SWIFT_PRESETS
from oomlint.dialects.meaning import Wishes
from oomlint.dialects.ms_swift.keys import own
from oomlint.errors import CannotEdit
from oomlint.plan.fields import below, f

_STAGE = f.parallel.zero.stage
_OF_DEEPSPEED = frozenset({*below(f.parallel.zero), *below(f.offload)} - {f.offload.activations})
_SAID_BY_PRESETS = frozenset(
    {_STAGE, f.parallel.zero.gather16_on_save, f.offload.optimizer, f.offload.params}
)

# Stage, optimizer and parameters offloaded.
_PRESETS: dict[Any, str] = {
    (0, False, False): "zero0",
    (1, False, False): "zero1",
    (2, False, False): "zero2",
    (2, True, False): "zero2_offload",
    (3, False, False): "zero3",
    (3, True, True): "zero3_offload",
    (3, True, False): "zero3_offload",
}
_OLD_PRESETS = {
    "zero2": "default-zero2",
    "zero3": "default-zero3",
    "zero2_offload": "zero2-offload",
    "zero3_offload": "zero3-offload",
}


def name_preset(wishes: Wishes, run: Cells) -> dict[Any, Any]:
    """Wishes of which a shipped config says all that is wanted of DeepSpeed: a preset makes way for
    its neighbour, and plain data parallelism for a preset.

    Raises:
        CannotEdit: the release that runs ships no such config.
    """
    own_wishes = dict(wishes)
    wanted = own_wishes.keys() & _OF_DEEPSPEED
    backend, named = run[f.parallel.backend], run[ref.deepspeed]
    is_shipped = backend == "zero" and str(named) in SWIFT_PRESETS
    if not wanted or not wanted <= _SAID_BY_PRESETS or not (is_shipped or backend == "ddp"):
        return own_wishes
    if backend == "ddp" and named is None and _STAGE not in own_wishes:
        own_wishes[_STAGE] = 3 if own_wishes.get(f.offload.params) == "cpu" else 2
    optimizer, params, stage = (
        own_wishes.get(field, run[field])
        for field in (f.offload.optimizer, f.offload.params, _STAGE)
    )
    has_params = params == "cpu"
    name = _PRESETS.get((stage, optimizer == "cpu" or has_params, has_params))
    if name is None:
        return own_wishes
    kept = {field: value for field, value in own_wishes.items() if field not in _SAID_BY_PRESETS}
    return {**kept, ref.deepspeed: _in_force(name, run)}


def _in_force(name: str, run: Cells) -> str:
    """The name of a preset in the release that runs."""
    if not run[own.is_old]:
        return name
    if name not in _OLD_PRESETS:
        raise CannotEdit(f"ms-swift 2.x ships no DeepSpeed config like {name}")
    return _OLD_PRESETS[name]
