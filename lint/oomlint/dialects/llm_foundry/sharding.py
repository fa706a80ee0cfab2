"""What Composer makes of ``fsdp_config``: who holds which part of the model and its activations.

Read from llm-foundry 0.22.0.dev0 (8c8dd48f) and Composer 640518880 (2026-04-29); ``LF`` below
is the package ``llmfoundry``, ``CO`` the package ``composer``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.offloading import to_cpu
from oomlint.dialects.llm_foundry.keys import FSDP_CONFIG, SOURCE, own
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

sharding = Meaning()

_F = f.parallel.fsdp


def has_fsdp(run: Cells) -> bool:
    """Whether the file asks for FSDP."""
    return run[own.fsdp] is True


def _shards(run: Cells) -> bool:
    """One rank gets no FSDP, whatever the file says (LF/command_utils/train.py, "Reverting
    to DDP")."""
    return has_fsdp(run) and run[f.parallel.world] != 1


def check_shards(run: Cells, what: str) -> None:
    """Whether the run uses FSDP.

    Raises:
        CannotEdit: it does not, and ``what`` goes with it.
    """
    if not has_fsdp(run):
        raise CannotEdit(f"{what} is a setting of fsdp_config, which this file does not have")
    if run[f.parallel.backend] in ("none", "ddp"):
        raise CannotEdit(f"{what} comes with FSDP, which LLM Foundry leaves out on one GPU")


@sharding.derive(f.parallel.backend)
def backend(run: Cells) -> Any:
    if _shards(run):
        return "fsdp1"
    ranks = run[f.parallel.world]
    return None if ranks is None else "ddp" if ranks > 1 else "none"


_DEFAULTS = {
    _F.version: 1,
    _F.strategy: "full",
    _F.backward_prefetch: "post",
    _F.forward_prefetch: False,
    _F.limit_all_gathers: True,
    _F.use_orig_params: True,
    _F.state_dict: "full",
}


@sharding.default(*_DEFAULTS, source=FSDP_CONFIG)
def defaults(run: Cells) -> Any:
    return _DEFAULTS if _shards(run) else None


@sharding.written(_F.state_dict)
def _(kind: Any, run: Cells, wishes: Wishes) -> Wishes:
    check_shards(run, "state_dict_type")
    if kind not in ("full", "sharded"):
        raise CannotEdit("state_dict_type is full or sharded")
    return {_F.state_dict: kind}


@sharding.derive(_F.reshard_after_forward)
def reshards(run: Cells) -> Any:
    return run[_F.strategy] in ("full", "hybrid") if _shards(run) else None


@sharding.derive(_F.wrap, source=f"{SOURCE} models/hf/hf_fsdp.py")
def wraps(run: Cells) -> Any:
    return "transformer" if _shards(run) else None


@sharding.derive(_F.sync_every_micro)
def sync_every_micro(run: Cells) -> Any:
    """Only DDP skips the reduction of all but the last micro batch (dist_strategy.py:84)."""
    return True if _shards(run) else None


@sharding.override(_F.sync_module_states)
def first_rank_sends_states(run: Cells) -> Any:
    return True if _shards(run) and run[own.init_device] == "mixed" else None


@sharding.derive(f.parallel.dp_shard)
def sharding_group(run: Cells) -> Any:
    degree = run[own.dp_shard] if _shards(run) else None
    return degree if isinstance(degree, int) and degree > 0 else None


# -- offloading ------------------------------------------------------------------------------------

_REFUSES_OFFLOAD = "Composer refuses FSDP CPU offload"


@sharding.derive(_F.cpu_offload, source=_REFUSES_OFFLOAD)
def never_offloads(run: Cells) -> Any:
    return False if _shards(run) else None


sharding.always(f.offload.params, "none", _REFUSES_OFFLOAD)
sharding.always(f.offload.optimizer, "none", _REFUSES_OFFLOAD)
sharding.cannot_say(
    "Composer refuses to offload FSDP's parameters to the CPU",
    f.offload.params,
    f.offload.optimizer,
    f.offload.pin_memory,
)
sharding.cannot_say(
    "LLM Foundry shards with FSDP (fsdp_config), not with DeepSpeed",
    f.parallel.zero.stage,
    f.load.zero3_init,
)

# -- activations -----------------------------------------------------------------------------------

sharding.always(f.checkpointing.source, "fsdp", "the switches are FSDP's own and go with it")


@sharding.derive(f.checkpointing.mode)
def checkpointing(run: Cells) -> Any:
    return _switched(run, own.checkpointing, "full")


@checkpointing.written
def _(mode: Any, run: Cells, wishes: Wishes) -> Wishes:
    if mode not in ("full", "none"):
        raise CannotEdit("fsdp_config checkpoints every block or none")
    check_shards(run, "activation checkpointing")
    said: dict[Any, Any] = {own.checkpointing: mode == "full"}
    if mode == "full" and run[own.reentrant] is None:
        said[own.reentrant] = False
    return said


def _switched(run: Cells, switch: Any, on: str) -> str | None:
    """What a switch of FSDP's comes to; without FSDP it does nothing."""
    if not has_fsdp(run) or run[f.parallel.backend] in ("none", "ddp"):
        return "none"
    if run.is_unread(switch):
        return None
    return on if run[switch] else "none"


@sharding.derive(f.checkpointing.reentrant, source=FSDP_CONFIG)
def reenters(run: Cells) -> Any:
    return run.get(own.reentrant, True)


@reenters.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    check_shards(run, "activation checkpointing")
    return {own.reentrant: bool(wanted)}


@sharding.derive(f.checkpointing.offload, f.offload.activations)
def activations(run: Cells) -> Any:
    device = _switched(run, own.offload, "cpu")
    return {f.checkpointing.offload: device, f.offload.activations: device}


@activations.written
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    check_shards(run, "offloading activations")
    return {own.offload: to_cpu(device, "LLM Foundry offloads activations")}
