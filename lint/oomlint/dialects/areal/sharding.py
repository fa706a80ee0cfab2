"""How AReaL shards what it trains, with FSDP2 or Megatron, and what it keeps in RAM.

Read from inclusionAI/AReaL 4aef98d8 (2026-05-21); ``AR`` below is its ``areal`` package.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.areal.keys import ARGS, SOURCE, own
from oomlint.dialects.areal.roles import is_megatron, is_rl, shares_cards
from oomlint.dialects.cells import Cells
from oomlint.dialects.common.offloading import to_cpu
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

sharding = Meaning()

_FSDP = f"{SOURCE} areal/engine/fsdp_engine.py"
_MEGATRON = f"{SOURCE} areal/engine/megatron_engine.py"
_RL = f"{SOURCE} areal/trainer/rl_trainer.py"

_F = f.parallel.fsdp


@sharding.derive(
    f.parallel.backend, _F.version, _F.wrap, _F.strategy, _F.state_dict, _F.reshard_after_forward,
    _F.sync_every_micro, source=f"{SOURCE} areal/engine/fsdp_utils/parallel.py:384, {_FSDP}",
)  # fmt: skip
def backend(run: Cells) -> Any:
    if is_megatron(run):
        return {f.parallel.backend: "megatron"}
    return {
        f.parallel.backend: "fsdp2", _F.version: 2, _F.wrap: "transformer", _F.strategy: "full",
        _F.state_dict: "full", _F.reshard_after_forward: True, _F.sync_every_micro: True,
    }  # fmt: skip


@sharding.override(f.parallel.megatron.dist_optimizer, source=f"{_MEGATRON}:1273")
def adapters_are_not_shared_out(run: Cells) -> Any:
    return False if run[own.lora] else None


@sharding.derive(
    _F.cpu_offload, f.offload.params, f.offload.optimizer, source=f"{_FSDP}:472, {ARGS}:421-444"
)
def offloading(run: Cells) -> Any:
    """FSDP's states go with the weights, or alone where they are stepped layer by layer."""
    if is_megatron(run):
        return {f.offload.params: "none", f.offload.optimizer: "none"}
    params = bool(run[own.offloads_params])
    states = params or bool(run[own.streams])
    return {
        _F.cpu_offload: params,
        f.offload.params: "cpu" if params else "none",
        f.offload.optimizer: "cpu" if states else "none",
    }


@offloading.written
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if is_megatron(run):
        raise CannotEdit("AReaL's Megatron keeps its optimizer's states on the GPU")
    place = "cpu" if device is True else "none" if device is False else device
    on_cpu = to_cpu(place, "AReaL's FSDP offloads")
    if f.offload.params in wishes or _F.cpu_offload in wishes:
        return {own.offloads_params: on_cpu}
    if on_cpu and str(run[own.optimizer]) != "adam":
        raise CannotEdit("per_layer_optim_step is for adam alone")
    return {own.streams: on_cpu}


sharding.cannot_say(
    "AReaL shards with FSDP2 or Megatron, not with DeepSpeed",
    f.parallel.zero.stage,
    f.load.zero3_init,
)
sharding.cannot_say(
    "AReaL's FSDP shards over all ranks", _F.strategy, _F.state_dict, _F.reshard_after_forward
)
sharding.cannot_say("AReaL pins what it offloads", f.offload.pin_memory)
sharding.always(f.quant.method, "none", f"{_FSDP}:1098")
sharding.cannot_say("AReaL trains no quantized weights", f.quant.method)


@sharding.derive(f.offload.idle, source=f"{_FSDP}:901, {_RL}:1208")
def leaves(run: Cells) -> Any:
    """The whole role, while answers are written on its cards."""
    away = run[own.offloads] and (run[own.role_offload] or shares_cards(run))
    return "cpu" if is_rl(run) and away else "none"


@leaves.written
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    wanted = to_cpu(device, "a role leaves its GPU")
    return {own.role_offload: wanted, own.offloads: True} if wanted else {own.role_offload: False}
