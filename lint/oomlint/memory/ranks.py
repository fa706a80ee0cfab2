"""Who shares the work of a run: its ranks, in groups."""

from __future__ import annotations

from msgspec import Struct

from oomlint.memory.result import Assume
from oomlint.plan import Plan
from oomlint.plan.fields import f as fields

_SHARDED_BY_MODULE = ("fsdp1", "fsdp2", "fabric_fsdp")


class Ranks(Struct, frozen=True, gc=False):
    """How many ranks each group has, and how a model reaches them."""

    backend: str
    """What exchanges gradients: ``none``, ``ddp``, ``zero``, ``fsdp1``, ``fsdp2``, ``megatron`` …"""
    world: int
    per_node: int
    processes: int
    """Of a node: one drives all the GPUs that it spreads a model or a batch over."""
    tp: int
    pp: int
    cp: int
    """Ranks of a sequence, by rings or pipes and by DeepSpeed's way."""
    ep: int
    dp: int
    shard: int
    """Ranks over which parameters, or what belongs to them, are divided."""
    packs_whole: bool
    """The model is quantised whole on each GPU before it is sharded."""
    loads_early: bool
    """The model is whole on each GPU before it is sharded."""
    loads_whole: bool
    """The sharded model takes a checkpoint as one whole state dict."""


def ranks_of(plan: Plan, assume: Assume) -> Ranks:
    """The ranks of a plan; a number of GPUs that nobody says is assumed."""
    p = plan.parallel
    said = p.backend or "none"
    nodes = p.nodes or 1
    world = p.world or (nodes * p.gpus_per_node if p.gpus_per_node else None)
    if world is None:
        if said in ("none", "device_map_pp"):
            world = 1
        else:
            why = "the number of GPUs is not known; a node usually has 8"
            world = assume(fields.parallel.world, 8, why)
    world = max(1, world)
    per_node = max(1, p.gpus_per_node or -(-world // max(1, nodes)))
    tp, pp = max(1, p.tp or 1), max(1, p.pp or 1)
    context, ulysses = max(1, p.cp or 1), max(1, p.ulysses or 1)
    if said == "device_map_pp":
        # device_map spreads the layers of one process over its GPUs, which an explicit
        # number of stages says where several processes do so.
        pp = pp if pp > 1 else world
    dp = max(1, p.dp or world // (tp * pp * context))
    one_model = tp * pp
    if said in _SHARDED_BY_MODULE:
        # The ranks of a sequence are ranks of FSDP's mesh too (verl workers/fsdp_workers.py
        # create_device_mesh over the world, beside ulysses_device_mesh).
        joined = ulysses if dp * one_model * context * ulysses <= world else 1
        shard = _of_fsdp(plan, per_node, dp, joined, context)
    else:
        shard = _of_the_rest(plan, world, per_node, one_model, dp, context * ulysses)
    backend = "zero" if said == "mics" else said
    # Lightning Fabric loads a checkpoint into the sharded model as one whole state dict.
    loads_whole = (said == "fabric_fsdp" and not plan.model.from_scratch) or bool(
        plan.load.unshards
    )
    return Ranks(
        backend="fsdp1" if said == "fabric_fsdp" else backend,
        world=world,
        per_node=per_node,
        processes=1 if said in ("device_map_pp", "dp") else min(per_node, world),
        tp=tp,
        pp=pp,
        cp=context * ulysses,
        ep=max(1, p.ep or 1),
        dp=dp,
        shard=max(1, shard),
        packs_whole=_packs_whole(plan, backend),
        loads_early=_loads_early(plan, backend),
        loads_whole=loads_whole,
    )


def _of_fsdp(plan: Plan, per_node: int, dp: int, joined: int, context: int) -> int:
    """Ranks that FSDP shards over; ``joined``, ranks of a sequence that are in its mesh by themselves."""
    p = plan.parallel
    strategy = p.fsdp.strategy or "full"
    if strategy == "no_shard":
        return 1
    if p.dp_shard:
        shard = p.dp_shard
    elif strategy.startswith("hybrid"):
        shard = min(dp, per_node)
    else:
        shard = dp * joined
    # torchtitan and accelerate shard over context parallel ranks too.
    return shard * context


def _of_the_rest(
    plan: Plan, world: int, per_node: int, one_model: int, dp: int, sequence: int
) -> int:
    """Ranks that ZeRO, MiCS and Megatron divide by; ``one_model``, ranks that hold one model between them."""
    p = plan.parallel
    backend = p.backend or "none"
    if backend == "mics":
        return p.zero.mics or per_node
    if backend == "zero":
        if p.zero.mics and p.zero.mics > 0:
            return p.zero.mics
        if dp * one_model < world:
            # ZeRO shards over the ranks of a sequence too: over all whose parameters are the same where
            # deepspeed.initialize is given no groups, as for rings of a framework's own (OpenRLHF 0.8 to 0.11
            # utils/deepspeed/deepspeed.py _ds_init_train_model), else deepspeed/utils/groups.py
            # _get_sequence_data_parallel_group.
            return min(dp * sequence, world // one_model)
    return 1 if backend in ("none", "ddp", "dp", "device_map_pp") else dp


def _packs_whole(plan: Plan, backend: str) -> bool:
    """transformers packs bitsandbytes weights on every rank's GPU before FSDP shards them, where rank 0 does not load
    for all, and always before ZeRO-3 does, since what is quantized is not built inside zero.Init (4.48 to 5.23
    modeling_utils.py get_init_context, quantizers/quantizer_bnb_4bit.py update_device_map)."""
    if plan.quant.method not in ("bnb4", "bnb8"):
        return False
    if backend in ("fsdp1", "fsdp2"):
        return plan.load.cpu_ram_efficient is False
    return backend == "zero" and plan.parallel.zero.stage == 3


def _loads_early(plan: Plan, backend: str) -> bool:
    """A model that was not built inside zero.Init goes to each rank's GPU whole before ZeRO-3 shards it, also where its
    parameters are offloaded (DeepSpeed 0.9.5 to 0.16.4 runtime/engine.py _configure_distributed_model); before FSDP2
    does only one that was loaded onto it."""
    load = plan.load
    if backend == "zero":
        return plan.parallel.zero.stage == 3 and load.zero3_init is False
    return (
        backend == "fsdp2"
        and load.cpu_ram_efficient is False
        and load.device_map == "single"
        and not plan.model.from_scratch
    )
