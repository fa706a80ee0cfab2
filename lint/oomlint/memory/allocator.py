"""What torch's caching allocator keeps reserved beyond what is alive.

The law below is read off a replay of c10/cuda/CUDACachingAllocator.cpp over every request and free
of real training steps: ``python -m benchmarks.allocator`` prints both side by side. Three things
make it reserve more. A step of one length leaves the holes between blocks of different sizes. Where
the lengths of batches vary, every new longest batch fits into none of the cached blocks, and their
generations pile up until the GPU is full: only then the allocator gives them back and tries again.
And gradients and what an optimizer step needs for itself come on top of what backward left: the
states have taken the cached blocks by then, or one block is asked for that is larger than any of them.
"""

from __future__ import annotations

from math import log

from oomlint.memory.evaluation import is_evaluated
from oomlint.memory.facts import Facts
from oomlint.memory.step import Point
from oomlint.memory.units import units_of
from oomlint.plan import Plan

# Shares of the bytes that come and go within a step. Replayed steps of Llama-2-7B, Llama-3-8B and Qwen2.5-7B leave,
# with one length, 0.06 to 0.18 of what is no logits and 0.3 to 0.6 of the logits; with varied lengths 0.4 to 0.55
# and 1.4 to 2.8.
_FIXED, _FIXED_LOGITS = 0.12, 0.25
_VARIED, _VARIED_LOGITS = 0.45, 2.4
# Expandable segments grow in place and serve any size (ExpandableSegment in the same file).
_EXPANDABLE = 0.02
# Half-filled 2 MiB and 20 MiB segments of small blocks, a few a stream.
_SEGMENTS = 64 << 20
# ZeRO-3 fetches parameters in groups of many sizes, whose cached blocks no other group fits:
# beyond what stays allocated, runs of 7B to 110B models on 2 to 8 GPUs reserve the whole
# half-precision model or 14 to 15 GiB (ms-swift examples/pytorch/llm/scripts, examples/train;
# Qwen README; PEFT docs accelerate/deepspeed.md). Activations are served from it.
_ZERO3_CACHED = 15.0 * 2**30
# DDP's constructor broadcasts all parameters in buckets of 250 MB, two at a time (torch distributed/utils.py
# _sync_module_states, csrc/distributed/c10d/comm.cpp broadcast_coalesced). Until torch 2.8 NCCL's stream was recorded on each, so
# that none could be used again before the GPU was done with it, and the CPU runs ahead of that (pull requests 76861,
# 150398): runs read the whole weights once more, or 11 to 15 GiB (ms-swift examples/pytorch/llm/scripts, examples/train).
_BROADCAST_CACHED = _ZERO3_CACHED
_BROADCASTS_IN_PLACE = (2, 8)

# Until transformers 5.4 worker threads read tensors to the GPU faster than bitsandbytes packs them:
# of Qwen2.5-7B's 15.2 GB in half precision 13.5 stayed reserved (transformers pull request 44576),
# of Qwen3.5-27B's 51 GiB 47 (Axolotl examples/qwen3.5/README.md).
_UNPACKED = 0.9
_READS_ASIDE, _READS_IN_TURN = (5, 0), (5, 4)


# Generations of blocks that the replica's 60 batches of drawn lengths leave behind: the n-th
# batch is the longest so far with probability 1/n.
_REPLAYED = 60


def left_by_loading(f: Facts) -> float:
    """Bytes of the block that putting weights on the GPU leaves in the cache.

    The largest tensor was there once beside its copy in the width that it keeps
    (transformers modeling_utils.py, accelerate utils/modeling.py set_module_tensor_to_device).
    """
    plan = f.plan
    env = plan.env
    emptied = env.empty_cache_steps or env.no_caching
    if plan.model.from_scratch or env.expandable_segments or emptied:
        return 0.0
    assert f.model is not None
    return f.bytes_per.stream * f.model.largest_tensor / f.ranks.tp


def left_by_packing(f: Facts) -> float:
    """Bytes of the cache that full-precision weights on their way to 4 or 8 bits leave behind.

    Stacked experts are left out: putting them together keeps the workers waiting.
    """
    model, plan = f.model, f.plan
    assert model is not None
    packs = plan.quant.method in ("bnb4", "bnb8") and plan.model.native_quant in (None, "none")
    aside = f.older("transformers", _READS_IN_TURN) and not f.older("transformers", _READS_ASIDE)
    if not packs or not aside or model.expert_numel:
        return 0.0
    return _UNPACKED * f.bytes_per.stream * model.numel / f.ranks.tp


def reserved_by_broadcast(f: Facts, parameters: float) -> float:
    """Bytes reserved when DDP has sent its parameters around; activations are served from that later."""
    env = f.plan.env
    keeps = not env.no_caching and not env.empty_cache_steps
    if f.ranks.backend != "ddp" or not keeps or not f.older("torch", _BROADCASTS_IN_PLACE):
        return 0.0
    return parameters + min(_BROADCAST_CACHED, parameters) + _SEGMENTS


def lengths_vary(plan: Plan) -> bool:
    """Whether batches come in different lengths: neither packed nor padded to one length."""
    packed = plan.seq.packing not in (None, "none")
    return not packed and plan.seq.pad != "max_len" and not plan.batch.max_tokens_per_gpu


def _generations(plan: Plan) -> float:
    """How much of the pile comes together before the cache is emptied, at most all of it."""
    steps = plan.env.empty_cache_steps
    return min(1.0, log(steps) / log(_REPLAYED)) if steps else 1.0


def reserved_above(
    f: Facts, points: dict[str, list[Point]], resident: float
) -> tuple[float, float]:
    """Bytes reserved at the highest instants on top of nothing: with one length, as planned.

    ``resident`` is what stays allocated from step to step. The two differ where lengths vary.
    Of PYTORCH_ALLOC_CONF only expandable segments count here: max_split_size_mb keeps large
    blocks whole, but gives none back before the GPU is full, and garbage_collection_threshold
    works only under torch.cuda.set_per_process_memory_fraction (CUDACachingAllocator.cpp,
    ``set_fraction &&``).
    """
    ranks, env = f.ranks, f.plan.env
    # Without a cache every block goes back to the driver at once: holes do not outlive it.
    expandable = bool(env.expandable_segments or env.no_caching)
    # FSDP gathers and reduces on streams of their own, and blocks never change their pool: what
    # gradients and windows reach at any time stays reserved for them
    # (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, _flat_param.py). A segment that grows is of one stream
    # too (PyTorch 001074d2 c10/cuda/CUDACachingAllocator.cpp, try_allocate_expandable_block).
    apart = ranks.backend in ("fsdp1", "fsdp2") and not env.no_caching
    share = _EXPANDABLE if expandable else _FIXED
    # Of one rank nothing is gathered: what a unit is computed with lies apart, where that is another dtype than what is stored.
    is_alone = f.plan.parallel.world == 1
    by_unit = apart and (ranks.backend == "fsdp1" or is_alone)
    one, moving = _one_length(points, expandable=expandable, apart=apart, by_unit=by_unit)
    many = _many_lengths(f, points, apart=apart, by_unit=by_unit) if not expandable else 0.0
    pooled, windows = _pools(points) if apart else (0.0, 0.0)
    if ranks.backend == "fsdp2" and apart and not is_alone:
        windows = _gathered_by_fsdp2(f, grows=expandable)
    elif ranks.backend == "fsdp1" and apart:
        # The CPU runs ahead of the GPU: up to two further units are gathered before the memory
        # of those behind is free (_runtime_utils.py, _FreeEventQueue's maximum in flight).
        windows += 2 * f.bytes_per.stream * units_of(f).largest
    base = resident + _SEGMENTS + pooled + (1 + share) * windows
    gathered = 0.0
    if ranks.backend == "zero" and f.plan.parallel.zero.stage == 3 and not expandable:
        assert f.model is not None
        gathered = min(_ZERO3_CACHED, f.bytes_per.stream * float(f.model.numel))
    stepped = 0.0
    if not (expandable or env.empty_cache_steps):
        stepped = _stepped(f, points["optimizer_step"], moving, apart=apart)
    return base + one, base + left_by_loading(f) + max(one, many, gathered, stepped)


# The loops below run for every instant of every estimate: comparisons are cheaper than max().


def reserved_in_evaluation(
    f: Facts, points: dict[str, list[Point]], evaluation: Point, resident: float
) -> float:
    """Bytes reserved once batches larger than those of training were evaluated, most of whose blocks fit into none that
    a step left (replayed, ``tests/memory/test_memory_evaluation.py``); 0 where evaluated batches are no larger."""
    env = f.plan.env
    gives_back = env.expandable_segments or env.no_caching or env.empty_cache_steps
    if gives_back or f.samples.eval_rows <= f.samples.rows or not is_evaluated(f):
        return 0.0
    if f.ranks.backend in ("fsdp1", "fsdp2") or lengths_vary(f.plan):
        return 0.0
    left = max(p.activations + p.logits for some in points.values() for p in some)
    _, activations, logits, communication, temporary, *_ = evaluation
    return resident + evaluation.gradients + left + activations + logits + communication + temporary


def _one_length(
    points: dict[str, list[Point]], *, expandable: bool, apart: bool, by_unit: bool
) -> tuple[float, float]:
    """Bytes reserved at the highest instant where all batches have one length, and those that move at most. ``apart``:
    gradients have a pool of their own, and ``by_unit``, so has all that communication brings."""
    one = moving = 0.0
    share, logit_share = (_EXPANDABLE, _EXPANDABLE) if expandable else (_FIXED, _FIXED_LOGITS)
    for some in points.values():
        for gradients, activations, logits, communication, temporary, *_ in some:
            moves = activations if by_unit else activations + communication
            if moves + logits > moving:
                moving = moves + logits
            here = (1 + share) * (moves + temporary) + (1 + logit_share) * logits
            if not apart:
                here += gradients
            if here > one:
                one = here
    return one, moving


def _many_lengths(f: Facts, points: dict[str, list[Point]], *, apart: bool, by_unit: bool) -> float:
    """The same where lengths vary; 0 where they do not."""
    if not lengths_vary(f.plan):
        return 0.0
    many, generations = 0.0, _generations(f.plan)
    # Chunks of logits are of one size whatever the length.
    chunked = f.plan.loss.logits_materialised == "chunked"
    pile = _FIXED_LOGITS if chunked else _VARIED_LOGITS * generations
    spread = _VARIED * generations
    for some in points.values():
        for gradients, activations, logits, communication, temporary, *_ in some:
            # A longer batch's activations are cut from the blocks that the logits of shorter
            # ones left, so that only the larger of the two piles counts.
            more = pile * logits
            if spread * activations > more:
                more = spread * activations
            here = activations + temporary + logits + more
            if not by_unit:
                here += communication
            if not apart:
                here += gradients
            if here > many:
                many = here
    return many


def _pools(points: dict[str, list[Point]]) -> tuple[float, float]:
    """What gradients and windows reach at any time, in bytes."""
    pooled = windows = 0.0
    for some in points.values():
        for gradients, _, _, communication, *_ in some:
            if gradients > pooled:
                pooled = gradients
            if communication > windows:
                windows = communication
    return pooled, windows


def _gathered_by_fsdp2(f: Facts, *, grows: bool) -> float:
    """Bytes of the pool that FSDP2 gathers into; ``grows``: of segments that do.

    What a unit's ranks gathered is copied to the forward pass's stream, and goes when the next unit was gathered
    (_fsdp_param_group.py wait_for_unshard), so that two lie there at once. A layer's is cut from what the embedding
    left, where that is a unit, so that the head finds no block unless the segment grows. Shards that are stored wider
    than they are computed with are copied into the pool first (_fsdp_collectives.py _get_param_all_gather_inputs).
    """
    units, e = units_of(f), f.bytes_per.stream
    alone = (f.plan.parallel.fsdp.wrap or "ends") == "ends" and not f.built[0].tied
    ends = (units.embed, units.tail) if alone else (units.root,)
    largest = max(units.largest, *ends)
    first = max(largest, 0.0 if grows else sum(ends))
    cast = largest / f.ranks.shard if f.bytes_per.weight > e else 0.0
    return e * (first + units.largest + cast)


def _stepped(f: Facts, steps: list[Point], moving: float, *, apart: bool) -> float:
    """Bytes reserved once the optimizer has stepped, beside those that moved before.

    Gradients, and what the step needs beside them, find no block that backward left: the first
    step makes the states out of those, and logits fit into no block of a gradient. A loop over the
    parameters finds a block for one of them. In a cache that was emptied blocks of
    backward come first, and the step's are cut from them.
    """
    optimizer = f.plan.optimizer
    loops = optimizer.foreach is False and not optimizer.fused and f.ranks.backend != "zero"
    held = [
        (0.0 if apart else point.gradients) + (0.0 if loops else point.temporary) for point in steps
    ]
    return moving + max(held)


def reserved_for_loading(parameters: float, loading: Point) -> float:
    """Bytes reserved while the weights are loaded, where that takes windows of its own."""
    return parameters + (1 + _FIXED) * sum(loading) + _SEGMENTS
