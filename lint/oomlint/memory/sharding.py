"""What sharding adds around the layers: buckets, gather windows, flat and pinned buffers.

Measured with fake and real process groups on torch 2.13, accelerate 1.15 and DeepSpeed
0.19.8; the formulas name the buffers of the source: torch/distributed/fsdp/_fully_shard
(FSDP2), torch/distributed/fsdp/_flat_param.py (FSDP1), torch/csrc/distributed/c10d/reducer.cpp
(DDP), deepspeed/runtime/zero/stage_1_and_2.py and stage3.py.
"""

from __future__ import annotations

from typing import NamedTuple

from oomlint.memory.facts import Facts
from oomlint.memory.parameters import Skeleton
from oomlint.memory.states import local_trained
from oomlint.memory.step import Point, Stack, logits_of, optimizer_temporaries

# deepspeed/runtime/zero/config.py: reduce_bucket_size, allgather_bucket_size,
# stage3_prefetch_bucket_size, stage3_max_live_parameters, stage3_param_persistence_threshold.
_REDUCE_BUCKET = 500_000_000
_PREFETCH = 50_000_000
_MAX_LIVE = 1_000_000_000
_PERSISTENT = 100_000


class Comm(NamedTuple):
    """Bytes of communication buffers: always there, by phase, and at the end of backward."""

    resident: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    final: float = 0.0
    accumulated: float = 0.0
    resident_at_step: float = 0.0


def persistent_bytes(f: Facts) -> float:
    """Small parameters that ZeRO-3 never partitions, in bytes."""
    m = f.model
    assert m is not None
    limit = f.plan.parallel.zero.persistence_threshold
    limit = _PERSISTENT if limit is None else limit
    norms = sum(b.count * b.norm_numel for b in m.blocks) if m.hidden <= limit else 0
    return float(norms) * 2 / f.pp


def comm_buffers(f: Facts) -> Comm:
    """The buffers of data parallelism, ZeRO and Megatron on one GPU."""
    m = f.model
    assert m is not None
    trained = local_trained(f)
    if f.backend == "ddp" and f.world > 1:
        buckets = trained * f.grad
        if f.plan.parallel.ddp.bucket_view:
            return Comm(resident=buckets, final=-buckets, resident_at_step=0.0)
        return Comm(resident=buckets, resident_at_step=buckets)
    if f.backend == "dp" and f.world > 1:
        # nn.DataParallel: GPU 0 gathers the other replicas' outputs and gradients.
        logits = 4.0 * m.vocab * f.tokens * (f.world - 1)
        return Comm(forward=logits, backward=trained * f.grad)
    if f.backend == "megatron":
        buffer = 2.0 if f.plan.precision.grad == "bf16" else 4.0
        grads = trained * buffer
        return Comm(resident=grads, resident_at_step=grads)
    if f.backend == "zero":
        return _zero_buffers(f, m, trained)
    return Comm()


def _zero_buffers(f: Facts, m: Skeleton, trained: float) -> Comm:
    z = f.plan.parallel.zero
    stage = z.stage or 0
    n = f.shard
    e = 2.0 if f.stream == 2 else 4.0
    bucket = float(z.reduce_bucket_elems if z.reduce_bucket_elems is not None else _REDUCE_BUCKET)
    bucket = min(bucket, trained) if stage < 3 else bucket
    offloaded = f.plan.offload.optimizer in ("cpu", "nvme")
    if stage == 0:
        return Comm()
    if stage < 3:
        double = 2.0 if z.overlap_comm else 1.0
        ipg = e * bucket * double
        owned = 0.0 if offloaded else e * trained / n
        cat = min(e * bucket, e * float(m.largest_tensor))
        if stage == 1:
            return Comm(backward=ipg + owned, accumulated=0.0)
        if offloaded:
            largest = float(m.largest_tensor)
            return Comm(
                resident=2 * e * largest,
                backward=ipg + 8 * largest,
                resident_at_step=2 * e * largest,
            )
        return Comm(backward=ipg + cat, accumulated=owned)
    # Stage 3: the bucket and the gradient partition are always there.
    live = float(z.max_live_params if z.max_live_params is not None else _MAX_LIVE)
    prefetch = float(z.prefetch_elems if z.prefetch_elems is not None else _PREFETCH)
    total = float(m.numel) / f.pp
    block = float(m.largest_block)
    # Parameters come module by module; a module is gathered whole even beyond the limit.
    gathered = min(total, max(live, float(m.largest_tensor)) + prefetch)
    gathered = max(gathered, min(total, block))
    return Comm(
        resident=e * bucket + persistent_bytes(f),
        forward=e * gathered,
        backward=e * gathered + min(e * bucket, e * float(m.largest_tensor)),
        resident_at_step=e * bucket + persistent_bytes(f),
    )


def padded(numel: float, rows: float, ranks: int) -> float:
    """FSDP2 pads dim 0 of every parameter to a multiple of the ranks."""
    if rows <= 0:
        return numel
    return -(-rows // ranks) * ranks * (numel / rows)


class _Units(NamedTuple):
    block: float
    embed: float
    tail: float
    root: float


def _units(f: Facts, m: Skeleton) -> _Units:
    """Elements of FSDP's units: a block, the embedding, the last norm and head, the root."""
    block = float(m.largest_block) / f.tp + _adapter_per_block(f, m)
    embed = float(m.embed_numel + m.position_numel) / f.tp
    tail = float(m.final_norm_numel + m.head_numel) / f.tp
    other = float(m.other_numel + m.vision_numel)
    return _Units(block, embed, tail, embed + tail + other)


def _adapter_per_block(f: Facts, m: Skeleton) -> float:
    return f.adapter_numel / m.layers if f.lora else 0.0


def fsdp2_points(f: Facts) -> dict[str, list[Point]]:
    """fully_shard: per-parameter shards, two-unit windows, reduce-scatter inputs held."""
    m, regime = f.model, f.regime
    assert m is not None
    assert regime is not None
    fsdp = f.plan.parallel.fsdp
    stack = Stack(f)
    tokens, scores = stack.tokens, stack.scores
    n, e = f.shard, f.stream
    master = f.weight if f.weight >= 2 else f.stream
    reduce = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}.get(f.plan.precision.comm or "", e)
    cast = reduce != master
    u = _units(f, m)
    ends = (fsdp.wrap or "ends") == "ends"
    alone = ends and not m.tied  # the tail is a unit of its own
    tail = u.tail if alone else u.root
    reshard = fsdp.reshard_after_forward is not False and fsdp.strategy not in (
        "grad_op",
        "hybrid_grad_op",
    )
    whole = 0.0 if reshard else e * (m.block_numel / f.tp + (u.embed if alone else 0.0))
    offload = bool(fsdp.cpu_offload)
    shard_grad = 0.0 if offload else (master if not f.lora else 0.0)
    trained = local_trained(f)
    head = logits_of(f, tokens)

    base = 16.0 * tokens + 2.0 * f.length * m.head_dim * regime.stream
    before = 0.0
    if f.accumulation > 1:
        if fsdp.sync_every_micro:
            before = 0.0 if offload else f.grad * trained / n
        else:
            # no_sync keeps gradients unsharded, in the reduce dtype if that is wider.
            before = max(e, reduce) * trained
    saved = stack.saved
    hidden = m.hidden * regime.stream * tokens
    root_held = 0.0 if alone else e * u.root
    forward = [
        Point(before, base + max(0.0, saved - stack.kept[-1]) + hidden, 0.0, 3 * e * u.block + root_held + whole, 0.0),
        Point(before, base + saved + head.norm, head.loss,
              e * tail + (e * tail if alone else e * u.block) + whole, 0.0),
    ]  # fmt: skip
    if f.lora:
        forward.append(Point(before, base + saved, 0.0, e * u.block + 2 * e * u.tail + whole, 0.0))
    backward: list[Point] = []
    early_window = e * tail + (0.0 if ends or not reshard else e * u.block) + whole
    for bytes_, _ in head.late or [(max(head.early, head.kept), 0.0)]:
        backward.append(Point(before, base + saved + head.norm, bytes_, early_window, 0.0))
    tail_grad = m.vocab * m.hidden / f.tp if f.head_trained else 0.0
    if alone and tail_grad:
        backward.append(
            Point(
                before + master * u.tail / n, base + saved + hidden, 0.0,
                (e + reduce) * u.tail + (reduce * u.tail / n if cast else 0.0) + e * u.block + whole, 0.0,
            )
        )  # fmt: skip

    # Blocks from the top: own window, the prefetched one, the held reduce-scatter input.
    done = (u.tail if alone and tail_grad else 0.0) * shard_grad / n
    remaining = saved
    checkpointing = stack.checkpoint > 0
    top = True
    groups = list(zip(stack.blocks, stack.profiles, stack.kept, strict=True))
    for (block, count), profile, kept in reversed(groups):
        size = block.numel / f.tp + _adapter_per_block(f, m)
        trains = profile.trained > 0 and not f.lora
        for index in sorted({0.0, 1.0, max(0.0, count - 2), max(0.0, count - 1)}):
            if index > count - 1:
                continue
            below = remaining - kept * index - (0.0 if checkpointing else kept)
            last = index == count - 1
            first = top and index == 0
            held = 0.0
            if not f.lora:
                held = reduce * ((u.tail if alone else 0.0) if first else size)
            prefetched = (e * u.embed if alone else 0.0) if last else e * size
            if not reshard:
                prefetched = 0.0
            gone = 0.0 if reshard else -e * size * index
            window = e * size + prefetched if reshard else whole + gone
            root = root_held + (e * tail_grad if not alone else 0.0)
            sharded = done + shard_grad * (size if trains else 0.0) * index / n
            if not first and trains:
                pass
            for moment in profile.backward:
                own = moment.grads * e if not f.lora else moment.grads * (f.adapter_bytes or e)
                backward.append(
                    Point(
                        before + sharded + own,
                        base + below + moment.token * tokens + moment.score * scores, 0.0,
                        window + held + root, moment.fixed,
                    )
                )  # fmt: skip
        top = False
        remaining -= kept * count
        done += shard_grad * (size if trains else 0.0) * count / n
    grads = 0.0 if offload else f.grad * trained / n
    if not f.lora:
        block_size = u.block
        if alone:
            blocks_done = shard_grad * (m.numel / f.tp - u.embed) / n
            embed = float(m.embed_numel) / f.tp
            backward += [
                Point(before + blocks_done, base + hidden, 0.0, 2 * e * embed + reduce * block_size, 0.0),
                Point(before + blocks_done + shard_grad * embed / n, base, 0.0,
                      (e + reduce) * embed + (reduce * embed / n if cast else 0.0), 0.0),
            ]  # fmt: skip
        else:
            done = shard_grad * m.block_numel / f.tp / n
            copies = (3.0 if m.tied else 2.0) * e * m.embed_numel / f.tp
            backward += [
                Point(before + done, base + hidden, 0.0, e * u.root + copies + reduce * block_size, 0.0),
                Point(before + done + shard_grad * u.root / n, base, 0.0,
                      (e + reduce) * u.root + (reduce * u.root / n if cast else 0.0), 0.0),
            ]  # fmt: skip
    else:
        backward.append(Point(before + grads, base + hidden, 0.0, root_held, 0.0))
    step = Point(grads, 16.0 * tokens, 0.0, 0.0, optimizer_temporaries(f, trained))
    return {"forward": forward, "backward": backward, "optimizer_step": [step]}


def fsdp1_points(f: Facts) -> dict[str, list[Point]]:
    """FullyShardedDataParallel: one flat parameter a unit, its gradients concatenated."""
    m, regime = f.model, f.regime
    assert m is not None
    assert regime is not None
    fsdp = f.plan.parallel.fsdp
    stack = Stack(f)
    tokens, scores = stack.tokens, stack.scores
    n, e = f.shard, f.stream
    master = f.weight if f.weight >= 2 else f.stream
    low = e if master != e else 0.0
    reduce = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}.get(f.plan.precision.comm or "", e)
    u = _units(f, m)
    strategy = fsdp.strategy or "full"
    wrapped = (fsdp.wrap or "transformer") != "none"
    stays = strategy in ("grad_op", "hybrid_grad_op")
    replicated = strategy == "no_shard"
    offload = bool(fsdp.cpu_offload)
    trained = local_trained(f)
    head = logits_of(f, tokens)
    base = 16.0 * tokens + 2.0 * f.length * m.head_dim * regime.stream
    saved = stack.saved
    hidden = m.hidden * regime.stream * tokens
    total = float(m.numel) / f.tp + f.adapter_numel
    root = u.root if wrapped else total
    grad_width = 0.0 if offload else f.grad
    before = 0.0
    if f.accumulation > 1:
        before = (f.grad * trained / n) if fsdp.sync_every_micro else e * trained
    held_root = e * root if (master != e or n > 1) and not (replicated and master == e) else 0.0
    shard_copy = low * u.block / n
    window = e * u.block if wrapped and not replicated else (low * u.block if wrapped else 0.0)
    whole = e * m.block_numel / f.tp if stays and wrapped else 0.0
    prefetch = (fsdp.backward_prefetch or "pre") == "pre"
    forward = [
        Point(before, base + saved, 0.0, held_root + (whole or window) + shard_copy, 0.0),
        Point(before, base + saved + head.norm, head.loss, held_root + (whole or window), 0.0),
    ]
    backward = [
        Point(before, base + saved + (0.0 if head.late else head.norm), bytes_, held_root + whole + (window if prefetch and not whole else 0.0), 0.0)
        for bytes_, _ in head.late or [(max(head.early, head.kept), 0.0)]
    ]  # fmt: skip
    done = 0.0
    head_grad = e * m.vocab * m.hidden / f.tp if f.head_trained else 0.0
    remaining = saved
    checkpointing = stack.checkpoint > 0
    for (block, count), profile, kept in reversed(
        list(zip(stack.blocks, stack.profiles, stack.kept, strict=True))
    ):
        size = block.numel / f.tp + _adapter_per_block(f, m)
        trains = 1.0 if profile.trained else 0.0
        share = trains * (1.0 if not f.lora else _adapter_per_block(f, m) / size)
        for index in sorted({0.0, max(0.0, count - 2), max(0.0, count - 1)}):
            last = index == count - 1
            below = remaining - kept * index - (0.0 if checkpointing else kept)
            here = e * size if wrapped and not replicated else low * size
            ahead = here if prefetch and not last and wrapped else 0.0
            if whole:
                here, ahead = whole - e * size * index, 0.0
            comm = held_root + here + ahead + (head_grad if not wrapped or head_grad else 0.0)
            grads = done + grad_width * size * share * index / n
            if not wrapped:
                grads = e * (profile.trained * index)
                comm = e * total + head_grad
            for moment in profile.backward:
                backward.append(
                    Point(before + grads + moment.grads * e, base + below + moment.token * tokens + moment.score * scores,
                          0.0, comm, moment.fixed)
                )  # fmt: skip
            if wrapped:
                flat = 2 * e * size if reduce == e else (e + reduce + reduce / n) * size
                backward.append(
                    Point(before + grads, base + below + hidden, 0.0, comm + flat * share, 0.0)
                )
        remaining -= kept * count
        done += grad_width * size * share * count / n
    final = e * root + (2 * e * root if reduce == e else (e + reduce + reduce / n) * root)
    if f.lora:
        final = held_root
    tied = e * m.embed_numel / f.tp if m.tied and not f.lora else 0.0
    grads = grad_width * trained / n
    blocks_done = (
        grad_width * (m.block_numel / f.tp if wrapped else 0.0) / n if not f.lora else grads
    )
    backward.append(Point(before + blocks_done, base + hidden, 0.0, final + tied, 0.0))
    step = Point(grads, 16.0 * tokens, 0.0, 0.0, optimizer_temporaries(f, trained))
    return {"forward": forward, "backward": backward, "optimizer_step": [step]}
