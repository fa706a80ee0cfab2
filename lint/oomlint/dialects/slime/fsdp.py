"""slime's backend of FSDP2, which releases 0.2 to 0.2.3 had beside Megatron.

Read from THUDM/slime e4faf633^ (2026-03-04), the last revision that has it; ``SF`` below is its
``slime/backends/fsdp_utils``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.fields import DTYPES
from oomlint.dialects.meaning import Meaning, Sourced
from oomlint.dialects.slime.keys import own
from oomlint.plan.fields import f

fsdp = Meaning()

_ACTOR = "slime e4faf633^ slime/backends/fsdp_utils/actor.py"
_F, _P = f.parallel.fsdp, f.precision


def is_fsdp(run: Cells) -> bool:
    return run[own.backend] == "fsdp"


@fsdp.derive(
    f.parallel.backend, _F.version, _F.wrap, _F.reshard_after_forward, _F.strategy, _F.state_dict,
    _F.sync_every_micro, _F.cpu_offload, f.offload.params, f.offload.optimizer,
    source=f"{_ACTOR}:933 apply_fsdp2",
)  # fmt: skip
def sharded(run: Cells) -> Any:
    if not is_fsdp(run):
        return None
    device = "cpu" if run[own.fsdp_on_cpu] else "none"
    return {
        f.parallel.backend: "fsdp2",
        _F.version: 2,
        _F.wrap: "transformer",
        _F.reshard_after_forward: True,
        _F.strategy: "full",
        _F.state_dict: "sharded",
        _F.sync_every_micro: True,
        _F.cpu_offload: device == "cpu",
        f.offload.params: device,
        f.offload.optimizer: device,
    }


_LOADS = "transformers before 5 loads fp32 where nobody says a dtype, and this code says none"


@fsdp.derive(f.load.dtype)
def loads(run: Cells) -> Any:
    return Sourced("fp32", _LOADS, is_assumed=True) if is_fsdp(run) else None


@fsdp.derive(*DTYPES, source=f"{_ACTOR}:961")
def dtypes(run: Cells) -> Any:
    if not is_fsdp(run):
        return None
    stored = run[f.load.dtype]
    return {
        _P.param: stored, _P.grad: stored, _P.master: "none", _P.optim_state: stored,
        _P.compute: "bf16", _P.comm: "fp32", _P.logits: "bf16", _P.autocast: False,
    }  # fmt: skip


@fsdp.derive(f.checkpointing.mode, source=f"{_ACTOR}:111")
def checkpointing(run: Cells) -> Any:
    if not is_fsdp(run):
        return None
    return "full" if run[own.gc] else "none"


@fsdp.derive(
    f.optimizer.fused, f.optimizer.foreach, f.checkpointing.source, f.checkpointing.reentrant,
    f.loss.logits_materialised, f.loss.upcast_fp32, f.model.attn_impl,
    source=_ACTOR,
)  # fmt: skip
def modules(run: Cells) -> Any:
    if not is_fsdp(run):
        return None
    return {
        f.optimizer.fused: False,
        f.optimizer.foreach: True,
        f.checkpointing.source: "framework",
        f.checkpointing.reentrant: True,
        f.loss.logits_materialised: "full",
        f.loss.upcast_fp32: False,
        f.model.attn_impl: "flash2",
    }
