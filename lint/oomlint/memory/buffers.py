"""The communication buffers of data parallelism, ZeRO and Megatron around the layers.

Measured with real process groups on torch 2.13 and DeepSpeed 0.19.8; the formulas name the
buffers of the source: torch/csrc/distributed/c10d/reducer.cpp (DDP),
deepspeed/runtime/zero/stage_1_and_2.py and stage3.py.
"""

from __future__ import annotations

from msgspec import Struct

from oomlint.memory.facts import Facts, batchless
from oomlint.memory.parameters import DecoderBlock
from oomlint.memory.regimes import checkpointed_share
from oomlint.memory.states import (
    IN_BUFFERS,
    frozen_weight_bytes,
    largest_trained,
    local_trained,
    quantised_bytes,
)

# deepspeed/runtime/zero/config.py: reduce_bucket_size, allgather_bucket_size,
# stage3_prefetch_bucket_size, stage3_max_live_parameters, stage3_param_persistence_threshold.
_REDUCE_BUCKET = 500_000_000
_PREFETCH = 50_000_000
_MAX_LIVE = 1_000_000_000
_PERSISTENT = 100_000
# deepspeed 0.8 to 0.19 runtime/engine.py, MEMORY_OPT_ALLREDUCE_SIZE.
_REDUCED_AT_ONCE = 500_000_000


class Comm(Struct, frozen=True):
    """Bytes of communication buffers: always there, and by phase.

    ``once_reduced`` joins ``backward`` when the first gradients of weights are reduced, ``at_last`` when all are there.
    ``holds_gradients`` says that the parameters' gradients are views of the buffers.
    """

    resident: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    resident_at_step: float = 0.0
    holds_gradients: bool = False
    once_reduced: float = 0.0
    at_last: float = 0.0


def persistent_bytes(f: Facts) -> float:
    """Small parameters that ZeRO-3 never partitions, in bytes."""
    m = f.model
    assert m is not None
    limit = f.plan.parallel.zero.persistence_threshold
    limit = _PERSISTENT if limit is None else limit
    norms = sum(b.count * b.norm_numel for b in m.blocks) if m.hidden <= limit else 0
    return float(norms) * 2 / f.ranks.pp


def comm_buffers(f: Facts) -> Comm:
    """The buffers of data parallelism, ZeRO and Megatron on one GPU."""
    ranks, bytes_per = f.ranks, f.bytes_per
    m = f.model
    assert m is not None
    trained = local_trained(f)
    wide = 4.0 * trained if f.plan.precision.grad_accum == "fp32" and bytes_per.grad == 2 else 0.0
    if ranks.backend == "ddp" and ranks.world > 1:
        # Sums in fp32 have a buffer of their own beside DDP's (nanotron optim/gradient_accumulator.py).
        buckets = trained * bytes_per.grad + wide
        if f.plan.parallel.ddp.bucket_view:
            return Comm(resident=buckets, resident_at_step=buckets, holds_gradients=True)
        return Comm(resident=buckets, resident_at_step=buckets)
    if ranks.backend == "none" and wide:
        return Comm(resident=wide, resident_at_step=wide)
    if ranks.backend == "dp" and ranks.world > 1:
        # nn.DataParallel: GPU 0 gathers the other replicas' outputs and gradients.
        logits = 4.0 * m.vocab * f.samples.tokens * (ranks.world - 1)
        backward, zeros = trained * bytes_per.grad, _gradients_of_frozen(f)
        if f.plan.checkpointing.mode not in (None, "none") and f.plan.checkpointing.reentrant:
            # Each recomputed part runs a backward pass of its own, down to the copying of all weights.
            return Comm(forward=logits, backward=backward, once_reduced=zeros)
        return Comm(forward=logits, backward=backward, at_last=zeros)
    if ranks.backend == "megatron":
        buffer = 2.0 if f.plan.precision.grad == "bf16" else 4.0
        grads = trained * buffer
        return Comm(resident=grads, resident_at_step=grads)
    if ranks.backend == "zero":
        return zero_buffers(f)
    return Comm()


def _gradients_of_frozen(f: Facts) -> float:
    """What nn.DataParallel makes for weights that nobody trains: zeros on each GPU, and their sum on GPU 0.

    One function copies all weights to the replicas. The outputs of it that need no gradient are marked so, for which
    autograd hands its backward whole tensors of zeros, and that adds up all that it is handed (torch 2.13
    nn/parallel/_functions.py Broadcast.backward, ReduceAddCoalesced.forward, nn/parallel/comm.py reduce_add;
    autograd/function.py mark_non_differentiable; tried with such a function on the CPU). Of LoRA on 15 GiB of Llama-3-8B
    one card of 40 GB dies where each alone trains (https://github.com/hiyouga/LLaMA-Factory/issues/4263).
    """
    m = f.model
    assert m is not None
    if f.plan.quant.method in IN_BUFFERS:
        return 0.0  # buffers are copied without a way back
    share = 1.0 if f.trained.lora else max(0.0, 1.0 - f.trained.numel / m.numel)
    return 2.0 * share * frozen_weight_bytes(f)


def keeps_gathered(f: Facts) -> bool:
    """Whether backward holds on to weights that ZeRO-3 has gathered and let go.

    torch's linear layers save a view of their weight, whose storage is the gathered one. zero.Init puts one that saves the
    parameter itself in their place, and leaves it there; a model that was not built inside has torch's (deepspeed 0.9 to
    0.18 runtime/zero/partition_parameters.py InsertPostInitMethodToModuleSubClasses.__enter__, __exit__). Eight ranks with
    Llama-3-8B read 14 GiB more without recomputation, all weights but the embedding's; eight with Qwen3-32B, built inside,
    nothing more (DeepSpeed edaa7221 examples/sdma_allgather/train_qwen3_zero3.py).
    """
    plan = f.plan
    is_gathered = f.ranks.backend == "zero" and plan.parallel.zero.stage == 3 and f.ranks.shard > 1
    return is_gathered and plan.load.zero3_init is False


def kept_weights(f: Facts, block: DecoderBlock) -> float:
    """Bytes of a block's linear weights as they are gathered: packed ones stay packed (bitsandbytes
    autograd/_functions.py MatMul4Bit.forward, ctx.tensors). Of experts nothing was read."""
    width = quantised_bytes(f.plan.quant) or f.bytes_per.stream
    return width * block.linear_numel / f.ranks.tp


@batchless
def zero_buffers(f: Facts) -> Comm:
    """The buffers of DeepSpeed's ZeRO."""
    m, trained = f.model, local_trained(f)
    assert m is not None
    z = f.plan.parallel.zero
    stage = z.stage or 0
    n = f.ranks.shard
    e = 2.0 if f.bytes_per.stream == 2 else 4.0
    bucket = float(z.reduce_bucket_elems if z.reduce_bucket_elems is not None else _REDUCE_BUCKET)
    if stage < 3 and z.contiguous_grads is False:
        # Gradients are put together as they come. Else the whole bucket is there from the start of
        # backward, however little is trained (stage_1_and_2.py setup_buckets).
        bucket = min(bucket, trained)
    offloaded = f.plan.offload.optimizer in ("cpu", "nvme")
    if stage == 0:
        return Comm()
    if stage < 3:
        double = 2.0 if z.overlap_comm else 1.0
        ipg = e * bucket * double
        owned = 0.0 if offloaded else e * trained / n
        largest = largest_trained(f)
        cat = min(e * bucket, e * largest)
        if stage == 1:
            # Sums in another dtype are whole (stage_1_and_2.py fill_grad_accum_attribute; BF16_Optimizer's in runtime/
            # bf16_optimizer.py, which fills no bucket: see reduced_at_once).
            wide = 4.0 * trained if f.plan.precision.grad_accum == "fp32" and e == 2 else 0.0
            if f.sums_whole:
                return Comm(resident=wide, resident_at_step=wide)
            # The partition's gradients get their place when the first bucket is full (copy_grads_in_partition).
            late = owned if bucket < trained else 0.0
            waits = 0.0 if bucket < trained else owned
            return Comm(
                resident=wide, backward=ipg + late, resident_at_step=wide, once_reduced=waits
            )
        if offloaded:
            # Buffers of the largest parameter in a group of the optimizer (stage_1_and_2.py
            # largest_param_numel).
            return Comm(
                resident=2 * e * largest,
                backward=ipg + 8 * largest,
                resident_at_step=2 * e * largest,
            )
        return Comm(backward=ipg + cat)
    # Stage 3: the bucket and the gradient partition are always there.
    live = float(z.max_live_params if z.max_live_params is not None else _MAX_LIVE)
    prefetch = float(z.prefetch_elems if z.prefetch_elems is not None else _PREFETCH)
    total = float(m.numel) / f.ranks.pp
    block = float(m.largest_block)
    # Parameters come module by module; a module is gathered whole even beyond the limit.
    gathered = min(total, max(live, float(m.largest_tensor)) + prefetch)
    gathered = max(gathered, min(total, block))
    # The head's weight is kept from its product on, and those of a block that is computed again.
    held = 0.0
    if keeps_gathered(f):
        held = e * float(m.head_numel or m.embed_numel)
        held += checkpointed_share(f.plan) * max(kept_weights(f, b) for b in m.blocks)
    return Comm(
        resident=e * bucket + persistent_bytes(f),
        forward=e * gathered + held,
        backward=e * gathered + held + min(e * bucket, e * float(m.largest_tensor)),
        resident_at_step=e * bucket + persistent_bytes(f),
    )


def reduced_at_once(f: Facts) -> float:
    """Bytes of what BF16_Optimizer reduces after the last backward of a step: a half-precision copy of the sums of a
    parameter group, and the sums of several put together where all of them are no more than a bucket (deepspeed 0.18.9
    runtime/engine.py allreduce_no_retain, allreduce_bucket; measured on two ranks: 2 bytes an element of one group)."""
    if not f.sums_whole:
        return 0.0
    trained = local_trained(f)
    is_joined = (f.plan.optimizer.groups or 1) > 1 and trained <= _REDUCED_AT_ONCE
    return (6.0 if is_joined else 2.0) * trained
