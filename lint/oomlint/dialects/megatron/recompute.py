"""How Megatron-core recomputes activations.

Read from Megatron-LM d98e8a64 (2026-08-22) and core_v0.7.0.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.meaning import Meaning
from oomlint.dialects.megatron.fields import mg
from oomlint.plan.fields import f

recomputation = Meaning()

_BLOCK = "Megatron-core transformer/transformer_block.py _checkpointed_forward"

recomputation.always(f.checkpointing.source, "megatron", _BLOCK)
recomputation.always(f.checkpointing.reentrant, True, _BLOCK)
recomputation.always(f.checkpointing.offload, "none", _BLOCK)


def _stage(run: Cells) -> int:
    """Layers of one stage, virtual ones counted apart."""
    virtual = run[f.parallel.vpp] or 1
    return -(-run[mg.layers] // ((run[f.parallel.pp] or 1) * virtual))


@recomputation.override(f.checkpointing.mode, source=_BLOCK)
def partly(run: Cells) -> Any:
    """``block`` recomputes the first layers of each stage only, ``uniform`` all of them."""
    if run[f.checkpointing.mode] != "full" or run[mg.recompute_method] != "block":
        return None
    layers = run[mg.recompute_layers]
    if not (layers and run[mg.layers]):
        return None
    return "block_partial" if layers < _stage(run) else None


@recomputation.derive(f.checkpointing.every_n, source=_BLOCK)
def one_in(run: Cells) -> Any:
    if run[f.checkpointing.mode] != "block_partial":
        return None
    return -(-_stage(run) // run[mg.recompute_layers])
