"""One training step on one GPU: what is alive in forward, backward and optimizer step.

The layers' symbolic profiles are stacked here, with what the sharding backend adds around
them: gradient buckets, gather windows, flat buffers. The instants that can be the highest
are few; each is a :class:`Point`, and the phases take the maximum.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from oomlint.memory.facts import Facts
from oomlint.memory.layers import LayerProfile, head_profile, layer_profile, widest
from oomlint.memory.parameters import Block
from oomlint.memory.states import local_trained


class Point(NamedTuple):
    """Bytes alive at one instant on top of the resident states."""

    gradients: float = 0.0
    activations: float = 0.0
    logits: float = 0.0
    communication: float = 0.0
    temporary: float = 0.0

    @property
    def total(self) -> float:
        return sum(self)


def highest(points: list[Point]) -> Point:
    """The instant with the most bytes."""
    return max(points, key=sum, default=Point())


class Stack:
    """The layers of one rank, bottom to top, with their sizes for this batch."""

    __slots__ = (
        "backward_at",
        "blocks",
        "checkpoint",
        "count",
        "f",
        "inputs",
        "kept",
        "profiles",
        "scores",
        "spared",
        "tokens",
    )

    def __init__(self, f: Facts) -> None:
        model, regime = f.model, f.regime
        assert model is not None
        assert regime is not None
        self.f = f
        self.tokens = f.tokens
        self.scores = f.rows * f.length * f.length / f.cp
        self.blocks: list[tuple[Block, float]] = [(b, b.count / f.pp) for b in model.blocks]
        self.profiles: list[LayerProfile] = [layer_profile(model, b, regime) for b in model.blocks]
        self.count = sum(n for _, n in self.blocks)
        self.checkpoint = checkpointed_share(f)
        sp = f.tp if f.plan.parallel.sp and f.tp > 1 else 1
        self.inputs = model.hidden * regime.stream * self.tokens / sp
        self.kept: list[float] = []
        for profile in self.profiles:
            full = profile.saved.at(self.tokens, self.scores)
            share = self.checkpoint
            kept = selective_bytes(f, profile) * self.tokens if is_selective(f) else self.inputs
            if offloads_activations(f):
                kept = 0.0
            self.kept.append(share * kept + (1 - share) * full)
        self.spared = 0.0
        if f.lora and not f.embed_trained and self.checkpoint == 0:
            # Nothing below the first block is trained: it keeps less.
            first = layer_profile(model, model.blocks[0], replace(regime, input_grad=False))
            self.spared = self.kept[0] - first.saved.at(self.tokens, self.scores)

    @property
    def saved(self) -> float:
        """Everything kept for backward by all layers at the end of forward."""
        in_flight = pipeline_depth(self.f)
        extra = 2 * self.inputs if offloads_activations(self.f) and self.checkpoint else 0.0
        total = sum(n * k for (_, n), k in zip(self.blocks, self.kept, strict=True))
        return in_flight * total + extra - self.spared


def offloads_activations(f: Facts) -> bool:
    c = f.plan.checkpointing
    return (c.offload or "none") != "none" or (f.plan.offload.activations or "none") != "none"


def is_selective(f: Facts) -> bool:
    return f.plan.checkpointing.mode in ("selective_op", "budget")


def checkpointed_share(f: Facts) -> float:
    """The share of the layers whose activations are recomputed."""
    c = f.plan.checkpointing
    mode = c.mode or "none"
    if mode in ("full", "selective_op", "budget"):
        if mode == "selective_op" and c.source == "megatron":
            return 0.0  # only core attention, which flash attention never keeps
        return 1.0
    if mode in ("every_n", "selective_layers", "block_partial"):
        return 1.0 / max(1, c.every_n or 2)
    return 0.0


def selective_bytes(f: Facts, profile: LayerProfile) -> float:
    """Bytes a token that selective op checkpointing keeps: every second matrix product's
    output and the attention output (torchtitan distributed/activation_checkpoint.py)."""
    model, regime = f.model, f.regime
    assert model is not None
    assert regime is not None
    block = model.blocks[-1]
    outputs = sum(x.outputs for x in block.linears) + 3 * block.topk * block.moe_ffn
    attention = model.heads * model.value_dim * 2 + 4 * model.heads
    return (outputs * 2 / 2 + attention) / f.tp + profile.input_bytes


def pipeline_depth(f: Facts) -> float:
    """Micro batches whose activations the first stage holds under one-forward-one-backward
    (arXiv 2104.04473); naive layer placement runs one at a time."""
    if f.pp <= 1 or f.backend == "device_map_pp":
        return 1.0
    depth = min(f.pp, f.accumulation)
    virtual = f.plan.parallel.vpp or 1
    if virtual > 1:
        return depth * (1 + (f.pp - 1) / (f.pp * virtual))
    return float(depth)


class Logits(NamedTuple):
    """The head's bytes: alive at the loss, left for backward, and the highest of backward."""

    kept: float
    loss: float
    early: float
    norm: float
    late: list[tuple[float, float]]


def logits_of(f: Facts, tokens: float, *, training: bool = True) -> Logits:
    """What the output projection and the loss hold for ``tokens`` tokens."""
    model, regime = f.model, f.regime
    assert model is not None
    assert regime is not None
    loss = f.plan.loss
    vocab = model.vocab / f.tp
    mode = loss.logits_materialised or "full"
    if loss.cut_ce or loss.liger.flce:
        mode = "fused"
    if f.plan.objective.kind in ("rm", "embedding"):
        return Logits(0.0, 0.0, 0.0, 0.0, [])
    e = regime.compute
    upcast = loss.upcast_fp32 is not False
    wide = 4.0 if upcast or regime.amp else float(e)
    norm = (8 * model.hidden + 4) * tokens if f.stream == 2 else (10 * model.hidden + 4) * tokens
    if mode == "fused":
        # Liger's fused linear cross entropy works on chunks of the next power of two of
        # tokens / ceil(vocab / hidden) and makes the gradients in forward
        # (liger_kernel/ops/fused_linear_cross_entropy.py).
        parts = -(-vocab // model.hidden)
        chunk = 1
        while chunk < tokens / parts:
            chunk *= 2
        work = min(chunk, tokens) * vocab * (e + (4 if loss.cut_ce is None and wide == 4 else 0))
        made = tokens * model.hidden * e
        if f.head_trained:
            made += vocab * model.hidden * e
        if loss.cut_ce:
            work = 0.0
        return Logits(made, made + work, made, norm, [])
    if mode == "chunked":
        n = max(1, loss.chunks or 8)
        kept = wide * vocab * tokens
        return Logits(
            kept, kept + (e + wide / n) * vocab * tokens,
            kept + (e + 2 * wide / n) * vocab * tokens, norm, [],
        )  # fmt: skip
    profile = head_profile(model, regime, f.head_trained, upcast, bool(loss.label_smoothing))
    saved = profile.saved.at(tokens, 0)
    held = e * vocab * tokens
    copy = 4 * vocab * tokens if wide > e else 0.0
    outputs = held if loss.outputs_kept else 0.0
    if loss.outputs_kept and regime.amp and copy:
        outputs = held
    late = [(m.token * tokens + m.fixed + outputs, m.grads) for m in profile.backward]
    # The last norm's output is a local of forward even where nothing keeps it for backward.
    local = 0.0 if f.head_trained else model.hidden * e * tokens
    return Logits(saved + outputs, saved + held + copy + local, 0.0, 0.0, late)


def training_points(f: Facts) -> dict[str, list[Point]]:
    """The instants of forward, backward and optimizer step, by phase."""
    if f.backend == "fsdp2":
        from oomlint.memory.sharding import fsdp2_points

        return fsdp2_points(f)
    if f.backend == "fsdp1":
        from oomlint.memory.sharding import fsdp1_points

        return fsdp1_points(f)
    return replicated_points(f)


def replicated_points(f: Facts) -> dict[str, list[Point]]:
    """Single GPU, DDP, ZeRO, Megatron: whole layers compute on every rank."""
    model, regime = f.model, f.regime
    assert model is not None
    assert regime is not None
    plan = f.plan
    stack = Stack(f)
    tokens, scores = stack.tokens, stack.scores
    trained = local_trained(f)
    zero_stage = (plan.parallel.zero.stage or 0) if f.backend == "zero" else 0
    in_backward = bool(plan.optimizer.in_backward) or plan.optimizer.kind in ("lomo", "adalomo")
    head = logits_of(f, tokens)
    from oomlint.memory.sharding import comm_buffers

    comm = comm_buffers(f)

    # Gradients as they pile up: kept whole, or reduced away bucket by bucket.
    per_grad = f.grad
    kept_share = 1.0
    if zero_stage >= 2:
        per_grad, kept_share = regime.stream, 1.0 / f.shard
    elif zero_stage == 1:
        per_grad = regime.stream
    elif f.backend == "megatron":
        per_grad, kept_share = 0.0, 0.0  # in the main gradient buffer, always there
    if in_backward or comm.holds_gradients:
        kept_share = 0.0
    start = comm.resident
    if f.accumulation > 1 and not in_backward:
        start += comm.accumulated
    grads_before = (
        trained * f.grad if f.accumulation > 1 and kept_share == 1.0 and not in_backward else 0.0
    )

    base = 16.0 * tokens + 2.0 * f.length * model.head_dim * regime.stream
    saved = stack.saved
    forward: list[Point] = []
    backward: list[Point] = []

    cast_cache = 0.0
    if regime.amp and regime.stream == 4 and stack.checkpoint:
        # Autocast caches the half-precision weights until the outermost autocast ends.
        # Only weights that are trained are cached (aten/src/ATen/autocast_mode.cpp).
        cached = f.adapter_numel if f.lora else model.linear_numel
        cast_cache = 2.0 * cached * stack.checkpoint / f.tp / f.pp
    layer_forward = max(
        (
            widest(p.inference if stack.checkpoint else p.forward, tokens, scores)
            - (0.0 if stack.checkpoint else k)
            for p, k in zip(stack.profiles, stack.kept, strict=True)
        ),
        default=0.0,
    )
    window = comm.forward
    forward.append(
        Point(grads_before, base + saved + max(0.0, layer_forward), 0.0, start + window, cast_cache)
    )
    forward.append(
        Point(grads_before, base + saved + head.norm, head.loss, start + window, cast_cache)
    )

    # The loss and the head.
    done = 0.0
    window = comm.backward
    if head.late:
        for bytes_, grads in head.late:
            made = grads * per_grad
            backward.append(
                Point(
                    grads_before + made * _fresh(grads_before),
                    base + saved,
                    bytes_,
                    start + window,
                    0.0,
                )
            )
    else:
        backward.append(
            Point(
                grads_before,
                base + saved + head.norm,
                max(head.early, head.kept),
                start + window,
                0.0,
            )
        )
    if f.head_trained and not f.lora:
        done += model.vocab * model.hidden / f.tp
    elif f.head_trained:
        done += model.vocab * model.hidden

    # The layers, from the top; the value is linear in the layer's number, so the first and
    # the last of a group of equal layers are enough.
    remaining = saved
    biggest = model.largest_tensor if zero_stage >= 2 else 0.0
    checkpointing = stack.checkpoint > 0
    for (_block, n), profile, kept in zip(
        reversed(stack.blocks), reversed(stack.profiles), reversed(stack.kept), strict=True
    ):
        if n <= 0:
            continue
        trained_here = profile.trained
        for index in (0.0, n - 1) if n > 1 else (0.0,):
            below = remaining - kept * index - (0.0 if checkpointing else kept)
            grads_above = done + trained_here * index
            for m in profile.backward:
                elements = (grads_above * kept_share) + (
                    m.grads if kept_share else min(m.grads, biggest or m.grads)
                )
                if in_backward or comm.holds_gradients:
                    elements = min(m.grads, float(_block.largest_tensor))
                gradients = grads_before if grads_before else elements * per_grad
                backward.append(
                    Point(
                        gradients, base + below + m.token * tokens + m.score * scores, 0.0,
                        start + window, m.fixed,
                    )
                )  # fmt: skip
        remaining -= kept * n
        done += trained_here * n

    # The embedding's gradient comes last; a tied one meets the head's.
    embed_grad = model.embed_numel / f.tp * per_grad if f.embed_trained else 0.0
    total_grads = (
        trained * (f.grad if kept_share == 1 or zero_stage == 0 else per_grad) * kept_share
    )
    if in_backward:
        total_grads = embed_grad
    if comm.holds_gradients:
        total_grads = 0.0
    tied = 0.0
    if model.tied and f.embed_trained and f.head_trained:
        tied = embed_grad * (2.0 if f.grad == 2 and not grads_before else 1.0)
    elif grads_before:
        tied = embed_grad
    backward.append(
        Point(
            max(total_grads, grads_before),
            base + stack.inputs,
            0.0,
            comm.resident + window,
            tied,
        )
    )

    step = Point(
        0.0 if in_backward else total_grads, 16.0 * tokens, 0.0, comm.resident_at_step,
        optimizer_temporaries(f, trained),
    )  # fmt: skip
    return {"forward": forward, "backward": backward, "optimizer_step": [step]}


def _fresh(grads_before: float) -> float:
    """With gradients of an earlier micro batch alive, new ones are added into them."""
    return 0.0 if grads_before else 1.0


def optimizer_temporaries(f: Facts, trained: float) -> float:
    """Bytes that the optimizer step needs beside states and gradients on one GPU.

    Measured on torch 2.13 and transformers 5.23 optimizers: fused kernels none, foreach one
    copy of the trained parameters, the loop two of the largest; transformers' Adafactor
    computes in fp32 (16 bytes an element of the largest half-precision tensor, 8 of fp32).
    """
    model = f.model
    assert model is not None
    o = f.plan.optimizer
    kind = o.kind or "adamw"
    width = f.adapter_bytes if f.lora else f.stream
    if f.backend in ("fsdp1", "fsdp2"):
        width = f.weight if not f.lora else f.adapter_bytes
    if f.master:
        width = f.master
    if f.plan.offload.optimizer in ("cpu", "nvme") or f.plan.parallel.fsdp.cpu_offload:
        return 0.0
    largest = (
        float(model.largest_tensor)
        if not f.lora
        else float(model.hidden * (f.plan.trainable.r or 8) * 4)
    )
    largest = min(largest, trained)
    shard = f.shard
    extra = 0.0
    if f.backend == "zero" and (f.plan.parallel.zero.stage or 0) >= 1:
        # The fp32 copy of the gradient partition (stage_1_and_2.py, stage3.py step).
        extra = 4 * trained / shard
        largest = trained / shard
        if f.plan.parallel.zero.stage == 3:
            # Stage 3 steps sub-group by sub-group (stage3_sub_group_size, 1e9 by default).
            largest = min(largest, float(f.plan.parallel.zero.sub_group_elems or 1_000_000_000))
            extra = 4 * largest
            shard, trained = 1, largest
    trained = trained / shard
    if o.in_backward:
        trained = largest
    if kind == "adafactor":
        name = (o.name or "").lower()
        if "torch" in name:
            return extra + (trained if o.foreach is not False else largest) * width
        return extra + largest * (16 if width == 2 else 8)
    if kind in ("adamw", "lamb", "schedule_free", "anyprecision_adamw"):
        if o.fused:
            return extra
        if o.foreach is not False:
            return extra + trained * width
        return extra + 2 * largest * width
    if kind in ("muon", "dion", "shampoo", "galore", "apollo"):
        # Newton-Schulz (and the projections) run on one matrix at a time, a few copies of it.
        return extra + 4 * largest * 2
    return extra
