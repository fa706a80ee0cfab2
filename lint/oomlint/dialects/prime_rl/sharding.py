"""How prime-rl shards what it trains, and what it keeps in RAM.

Read from PrimeIntellect-ai/prime-rl 559b4477 (2026-08-21); ``PT`` below is its ``src/prime_rl/trainer``.
"""

from __future__ import annotations

from typing import Any

from oomlint.dialects.cells import Cells
from oomlint.dialects.common.offloading import to_cpu
from oomlint.dialects.meaning import Meaning, Wishes
from oomlint.dialects.prime_rl.keys import SOURCE, own
from oomlint.dialects.prime_rl.sections import steps_on_cpu
from oomlint.errors import CannotEdit
from oomlint.plan.fields import f

sharding = Meaning()

_CODE = f"{SOURCE} src/prime_rl/trainer"
_MODEL = f"{_CODE}/model.py"

_F = f.parallel.fsdp
sharding.always(f.parallel.backend, "fsdp2", f"{_MODEL}:823 setup_fsdp")
sharding.always(_F.version, 2, _MODEL)
sharding.always(_F.wrap, "ends", f"{_MODEL}:883: the embedding, and the head with the last norm")
sharding.always(_F.state_dict, "sharded", f"{_CODE}/ckpt.py: DCP")
sharding.always(_F.sync_every_micro, True, _MODEL)
sharding.cannot_say("prime-rl always saves sharded", _F.state_dict)
sharding.cannot_say("prime-rl knows no DeepSpeed; it shards with FSDP2", f.parallel.zero.stage)
sharding.cannot_say("prime-rl knows no DeepSpeed", f.load.zero3_init)
sharding.cannot_say("prime-rl pins what it offloads", f.offload.pin_memory)


@sharding.derive(_F.strategy, source=f"{_MODEL}:833")
def strategy(run: Cells) -> Any:
    return "hybrid" if (run[f.parallel.dp_replicate] or 1) > 1 else "full"


@strategy.written
def _(wanted: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wanted != "full":
        raise CannotEdit("dp_replicate says over how many groups of ranks prime-rl shards")
    return {f.parallel.dp_replicate: 1}


@sharding.derive(
    _F.cpu_offload, f.offload.params, f.offload.optimizer, f.offload.grads, f.offload.between_steps,
    f.optimizer.in_backward, source=f"{_MODEL}:824, {_CODE}/optim/state_offload.py, {_CODE}/optim/offload.py",
)  # fmt: skip
def offloading(run: Cells) -> Any:
    """``optim_cpu_offload`` brings states to the GPU for the step; with ``full_offload`` fp32 weights, states
    and sums of gradients are in RAM, where each part is stepped as soon as its gradients are there."""
    whole, steps = bool(run[own.fsdp_offload]), steps_on_cpu(run)
    visits = bool(run[own.optim_offload]) and not (whole or steps)
    return {
        _F.cpu_offload: whole,
        f.offload.params: "cpu" if whole else "none",
        f.offload.optimizer: "cpu" if whole or steps else "none",
        f.offload.grads: "cpu" if whole or steps else "none",
        f.offload.between_steps: "cpu" if visits else "none",
        f.optimizer.in_backward: steps,
    }


_ALL = (own.fsdp_offload, own.optim_offload, own.full_offload)


@sharding.written(f.offload.params, _F.cpu_offload)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    """They exclude one another (PR/trainer.py cpu_offload_mutual_exclusion)."""
    wanted = device if isinstance(device, bool) else to_cpu(device, "prime-rl offloads")
    if not wanted:
        return {own.fsdp_offload: False}
    if run[f.optimizer.kind] == "muon":
        raise CannotEdit("Muon does not step what FSDP offloads")
    return _only(run, own.fsdp_offload)


def _only(run: Cells, key: Any) -> Wishes:
    """One way of offloading, the others off where they are on."""
    said: dict[Any, Any] = {key: {} if key is own.full_offload else True}
    if key is not own.full_offload and steps_on_cpu(run):
        said[own.full_offload] = "None"
    for other in (own.fsdp_offload, own.optim_offload):
        if other is not key and (run[other] or other is own.optim_offload):
            said[other] = False
    return said


@sharding.written(f.offload.optimizer)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if wishes.get(f.offload.params) == "cpu":
        return _only(run, own.fsdp_offload)
    if not to_cpu(device, "prime-rl offloads"):
        return {own.full_offload: "None"} if steps_on_cpu(run) else {}
    if run[f.optimizer.kind] not in ("adamw", "sgd"):
        raise CannotEdit("full_offload steps AdamW and sign_sgd alone")
    return _only(run, own.full_offload)


@sharding.written(f.offload.between_steps)
def _(device: Any, run: Cells, wishes: Wishes) -> Wishes:
    if not to_cpu(device, "prime-rl offloads"):
        return {own.optim_offload: False}
    return _only(run, own.optim_offload)


sharding.follows(f.offload.grads, f.optimizer.in_backward)
