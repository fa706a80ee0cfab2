"""One training step on one GPU: what is alive in forward, backward and optimizer step.

The layers' symbolic profiles are stacked here, with what the sharding backend adds around
them: gradient buckets, gather windows, flat buffers. The instants that can be the highest
are few; each is a :class:`Point`, and the phases take the maximum.
"""

from __future__ import annotations

from operator import mul
from typing import NamedTuple

from msgspec.structs import replace

from oomlint.memory.buffers import (
    comm_buffers,
    keeps_gathered,
    kept_weights,
    reduced_at_once,
)
from oomlint.memory.facts import Facts, batchless
from oomlint.memory.images import images_of
from oomlint.memory.layers import (
    LayerProfile,
    Regime,
    layer_inputs_profile,
    layer_profile,
    shortened,
    widest,
)
from oomlint.memory.logits import logits_of
from oomlint.memory.parameters import DecoderBlock, DecoderStructure
from oomlint.memory.regimes import checkpointed_share, recomputes_parts
from oomlint.memory.states import local_trained, offloads_gradients
from oomlint.memory.units import units_of
from oomlint.memory.walk import LayerGroup, Walk, walk


class Point(NamedTuple):
    """Bytes alive at one instant on top of the resident states."""

    gradients: float = 0.0
    activations: float = 0.0
    logits: float = 0.0
    communication: float = 0.0
    temporary: float = 0.0
    engine: float = 0.0
    """The pool of an engine that answers are written with."""
    states: float = 0.0
    """Below zero: optimizer states that are elsewhere meanwhile; above, those that are here only now."""
    gathered: float = 0.0
    """What communication brings on a stream of its own, whose blocks serve nothing else."""

    @property
    def passing(self) -> float:
        """What comes and goes within a step, gradients aside."""
        moves = self.activations + self.logits + self.temporary
        return moves + self.communication + self.gathered


def highest(points: list[Point]) -> Point:
    """The instant with the most bytes."""
    if len(points) == 1:
        return points[0]
    return max(points, key=sum, default=Point())


class Stack:
    """The layers of one rank, bottom to top, with their sizes for this batch."""

    __slots__ = (
        "checkpoint",
        "count",
        "f",
        "inputs",
        "kept",
        "saved",
        "scores",
        "spared",
        "tokens",
        "walk",
        "written",
    )

    def __init__(self, f: Facts) -> None:
        model, regime = f.built
        ranks, samples = f.ranks, f.samples
        self.f = f
        self.tokens = samples.tokens
        self.scores = samples.rows * samples.length * samples.length / ranks.cp
        self.walk = walk_of(f)
        self.count = sum(self.walk.totals)
        share = self.checkpoint = checkpointed_share(f.plan)
        sp = ranks.tp if f.plan.parallel.sp and ranks.tp > 1 else 1
        self.inputs = self.walk.kinds[0].input_bytes * self.tokens / sp
        self.written = samples.written
        offloads, selective = offloads_activations(f), is_selective(f)
        # What a layer of each kind keeps until its backward.
        self.kept: list[float] = []
        for profile in self.walk.kinds:
            kept = profile.input_bytes * self.tokens / sp
            if selective:
                kept = selective_bytes(f, profile) * self.tokens
            if offloads:
                kept = 0.0
            self.kept.append(share * kept + (1 - share) * self._whole(profile))
        for kind, block in dict(zip(self.walk.order, model.blocks, strict=True)).items():
            self.kept[kind] += self._weights(block)
        self.spared = self._spared()
        total = 0.0
        for count, kept in zip(self.walk.totals, self.kept, strict=True):
            total += count * kept
        # One checkpoint is on its way; the copies that the hooks let go late are smaller than the logits then are.
        extra = self.inputs if offloads and (share or takes_all_saved(f)) else 0.0
        # Everything kept for backward by all layers at the end of forward.
        self.saved = pipeline_depth(f) * total + extra - self.spared
        if model.layer_input:
            self.saved += layer_inputs_profile(model, regime).saved.token * self.tokens

    @property
    def ids(self) -> float:
        """Bytes of what goes in, which stays for all of a step: inputs and labels, 8 bytes a token each."""
        return 16.0 * self.tokens

    @property
    def bare(self) -> float:
        """Bytes that are there below the first layer: these, and the cosines and sines of rotary positions."""
        model, regime = self.f.built
        return self.ids + 2.0 * self.f.samples.length * model.head_dim * regime.stream

    @property
    def hidden(self) -> float:
        """Bytes of what one layer hands to the next, or back."""
        model, regime = self.f.built
        return model.hidden * regime.stream * self.tokens

    def _weights(self, block: DecoderBlock) -> float:
        """Weights that were gathered, and stay whole until a layer's backward that is not computed again."""
        return (
            (1 - self.checkpoint) * kept_weights(self.f, block) if keeps_gathered(self.f) else 0.0
        )

    def _spared(self) -> float:
        """What the lowest layers keep less than others like them."""
        f = self.f
        model, regime = f.built
        if self.checkpoint:
            return 0.0
        if f.trained.lora and not f.trained.embeddings:
            # Nothing below the first block is trained: it keeps less.
            block = model.blocks[0]
            first = layer_profile(model, block, replace(regime, input_grad=False))
            return self.kept[self.walk.order[0]] - self._whole(first) - self._weights(block)
        return self._unreached(f.trained.below) if f.trained.below and f.ranks.pp == 1 else 0.0

    def _whole(self, profile: LayerProfile) -> float:
        """What a layer that is not computed again keeps on the GPU."""
        if not (offloads_activations(self.f) and takes_all_saved(self.f)):
            return profile.saved.at(self.tokens, self.scores)
        if self.f.plan.offload.keeps_shared:
            return profile.saved_twice.at(self.tokens, self.scores)
        return 0.0

    def _unreached(self, layers: float) -> float:
        """What the lowest layers would keep, which keep nothing where neither they nor what they are given asks for
        gradients (torch 2.9 autograd; the first that is trained still keeps its input)."""
        total = 0.0
        assert self.f.model is not None
        for block, kind in zip(self.f.model.blocks, self.walk.order, strict=True):
            count = min(layers, block.count)
            total += count * self.kept[kind]
            layers -= count
        return total

    def below(self) -> list[float]:
        """For each stop of the walk, the bytes that the layers below it keep, and the layer itself
        where it is not computed again."""
        saved, kept = self.saved, self.kept
        own = [0.0] * len(kept) if self.checkpoint > 0 else kept
        return [
            max(0.0, saved - own[stop.kind] - sum(map(mul, stop.above, kept)))
            for stop in self.walk.stops
        ]


@batchless
def walk_of(f: Facts) -> Walk:
    """The way down the layers of one rank; FSDP's units are counted with them."""
    model, _ = f.built
    sharded = f.ranks.backend in ("fsdp1", "fsdp2")
    units = units_of(f).blocks if sharded else [0.0] * len(model.blocks)
    groups = tuple(
        LayerGroup(block, block.count / f.ranks.pp, profile_of(f, block), size)
        for block, size in zip(model.blocks, units, strict=True)
    )
    return walk(groups, windows=sharded)


def profile_of(f: Facts, block: DecoderBlock) -> LayerProfile:
    """The profile of a block to a token of the sample: a decoder's runs on those of the target."""
    model, regime = f.built
    profile = layer_profile(model, block, regime)
    if not block.crosses or f.samples.target_share == 1:
        return profile
    return shortened(profile, f.samples.target_share, _read_of_encoder(f, model, regime))


def _read_of_encoder(f: Facts, model: DecoderStructure, regime: Regime) -> float:
    """Bytes that a decoder's block keeps for each token that the encoder has read: keys and values, and what it casts the
    encoder's output to, for each of the two and in every block anew."""
    kept = 2.0 * model.kv_heads * model.head_dim * regime.compute / f.ranks.tp
    for role in ("cross_k", "cross_v"):
        if regime.amp and regime.stream > regime.compute and regime.train_base:
            kept += model.hidden * regime.compute
        elif role in regime.targets and regime.adapter != regime.stream and not regime.amp:
            # An adapter takes its input in its own dtype, and hands on as much as its rank (peft lora.Linear).
            kept += (model.hidden + regime.rank) * regime.adapter
    return kept


def stack_of(f: Facts) -> Stack:
    """The stack of a plan's facts, built once for its training and evaluation."""
    found = f.stack
    if not isinstance(found, Stack):
        found = f.stack = Stack(f)
    return found


def offloads_activations(f: Facts) -> bool:
    c = f.plan.checkpointing
    return (c.offload or "none") != "none" or (f.plan.offload.activations or "none") != "none"


def takes_all_saved(f: Facts) -> bool:
    """Whether hooks take away what is not recomputed as well, as those of torchtune and TRL do.

    Megatron's ``cpu_offloading_num_layers`` is a number of layers that a plan does not say; where parts of a block
    are recomputed by name, prime-rl's hooks are on all the rest.
    """
    return f.ranks.backend != "megatron" or recomputes_parts(f.plan)


def is_selective(f: Facts) -> bool:
    return f.plan.checkpointing.mode in ("selective_op", "budget")


def selective_bytes(f: Facts, profile: LayerProfile) -> float:
    """Bytes a token that selective op checkpointing keeps: every second matrix product's
    output and the attention output (torchtitan distributed/activation_checkpoint.py); and where
    experts lie on other ranks, what goes to them and what comes back, so that nothing is sent again
    (torchtitan c4e22911 of 2025-09-06 and later, models/deepseek_v3/infra/parallelize.py
    _op_sac_save_list: all_to_all_single), unless the plan says which of both is kept."""
    model, regime = f.built
    block = model.blocks[-1]
    keeps = f.plan.checkpointing.selective_keeps
    outputs = sum(x.outputs for x in block.linears)
    if keeps is None or "experts" in keeps:
        outputs += 3 * block.topk * block.moe_ffn
    attention = model.heads * model.value_dim * 2 + 4 * model.heads
    is_sent = f.ranks.ep > 1 and (keeps is None or "sent" in keeps)
    sent = 2.0 * block.topk * model.hidden * regime.stream if is_sent else 0.0
    return (outputs * 2 / 2 + attention + sent) / f.ranks.tp + profile.input_bytes


def pipeline_depth(f: Facts) -> float:
    """Micro batches whose activations the first stage holds under one-forward-one-backward
    (arXiv 2104.04473); naive layer placement runs one at a time. All of them where every forward pass
    comes before the first backward pass, on a single stage too (nanotron 2411b022
    parallel/pipeline_parallel/engine.py:182)."""
    ranks = f.ranks
    if f.plan.parallel.pp_schedule == "afab":
        return float(f.samples.accumulation)
    if ranks.pp <= 1 or ranks.backend == "device_map_pp":
        return 1.0
    depth = min(ranks.pp, f.samples.accumulation)
    virtual = f.plan.parallel.vpp or 1
    if virtual > 1:
        return depth * (1 + (ranks.pp - 1) / (ranks.pp * virtual))
    return float(depth)


def last_depth(f: Facts) -> float:
    """Micro batches whose activations the last stage holds: one, or of virtual stages those between
    the forward passes of its first part and the backward pass of its last
    (megatron/core/pipeline_parallel/schedules.py get_pp_rank_microbatches)."""
    if f.plan.parallel.pp_schedule == "afab":
        return pipeline_depth(f)
    virtual = f.plan.parallel.vpp or 1
    if f.ranks.pp <= 1 or virtual == 1:
        return 1.0
    return min(pipeline_depth(f), ((virtual - 1) * f.ranks.pp + 1) / virtual)


class _Pile:
    """Parameter gradients on one rank as backward makes them.

    They are kept whole, kept as the rank's partition (ZeRO-2 and 3), or handed on at once: to
    an optimizer that runs in backward, to the host, into buckets that are there anyway.
    """

    __slots__ = (
        "adds",
        "after",
        "before",
        "biggest",
        "in_forward",
        "kept",
        "share",
        "trained",
        "width",
    )

    def __init__(self, f: Facts, trained: float, *, handed_on: bool) -> None:
        ranks, bytes_per = f.ranks, f.bytes_per
        model, regime = f.built
        stage = (f.plan.parallel.zero.stage or 0) if ranks.backend == "zero" else 0
        offloaded = f.plan.offload.optimizer in ("cpu", "nvme")
        self.width: float = regime.stream if stage >= 1 else bytes_per.grad
        # A partition of stages 2 and 3 has the dtype that gradients add up in, from the first micro batch on (deepspeed
        # 0.15 to 0.19 runtime/zero/stage_1_and_2.py averaged_gradients, stage3.py grad_partitions_flat_buffer; measured
        # with 0.19.8 under stage 2: 4 bytes an element of it).
        is_wide = stage >= 2 and f.plan.precision.grad_accum == "fp32"
        self.kept: float = 4.0 if is_wide else self.width
        self.share = 1.0 / ranks.shard if stage >= 2 else 1.0
        if handed_on or (stage >= 2 and offloads_gradients(f)):
            self.share = 0.0
        self.trained = trained
        self.biggest = float(model.largest_tensor)
        if ranks.backend == "megatron":
            # Each expert is a tensor of its own (Transformer Engine's GroupedLinear), and tensors are
            # split over the tensor-parallel ranks.
            self.biggest = min(self.biggest, float(model.vocab * model.hidden)) / ranks.tp
        # Stage 3 has a half-precision buffer for its partition all the time; otherwise the
        # gradients of earlier micro batches are there from the second one on.
        self.before = 0.0
        # Of one micro batch a step, where they are cleared after the next forward pass.
        self.in_forward = 0.0
        # Before torch 2.0 zero_grad filled them with zeros instead of letting them go
        # (torch/optim/optimizer.py, torch/nn/modules/module.py: set_to_none=False).
        stays = f.samples.accumulation > 1 or f.older("torch", (2,))
        # BF16_Optimizer filled them with zeros, or let them go when the next backward began, before 0.16.5 gave it a
        # zero_grad (deepspeed runtime/bf16_optimizer.py clear_lp_grads).
        stays = stays or (f.sums_whole and f.older("deepspeed", (0, 16, 5)))
        if stage == 3 or (stays and self.share):
            self.before = trained * (self.kept if stage else bytes_per.grad) * self.share
        self.in_forward = self.before
        if f.plan.optimizer.clears_late and stage == 0 and not self.before:
            self.in_forward = trained * bytes_per.grad * self.share
        # Those of one more micro batch are whole before ZeRO-2 adds them to the earlier ones
        # (deepspeed 0.11 to 0.16 stage_1_and_2.py independent_gradient_partition_epilogue; measured with 0.15.4).
        self.adds = stage == 2 and f.samples.accumulation > 1
        # ZeRO-1 and 2 let theirs go when the fp32 copy of the partition is stepped; but where they are copied
        # to one buffer, the gradients of the groups that come later keep all of it alive (deepspeed 0.11 to 0.16
        # runtime/zero/stage_1_and_2.py copy_grads_in_partition, step; measured with 0.15.4 on two ranks:
        # 2 bytes an element of the partition with two groups, none with one).
        self.after = 0.0
        is_shared = (f.plan.optimizer.groups or 1) > 1 and f.plan.parallel.zero.contiguous_grads
        if stage == 0:
            self.after = trained * bytes_per.grad * self.share
        elif f.sums_whole:
            # Those that BF16_Optimizer has added to its sums wait for the end of its step (measured with 0.18.9).
            self.after = trained * self.width * self.share
        elif stage == 3:
            self.after = self.before
        elif f.plan.parallel.zero.keeps_grads and not offloaded:
            self.after = trained * self.width * self.share
        elif is_shared and not offloaded and f.plan.precision.grad_accum != "fp32":
            self.after = trained * self.width / ranks.shard

    def done(self, above: float) -> float:
        """Bytes of the gradients of ``above`` elements in layers that are through, of which some
        may be frozen."""
        if self.before and not self.adds:
            return self.before
        fresh = self.width if self.before else self.kept
        return self.before + min(above, self.trained) * fresh * self.share

    def made(self, own: float) -> float:
        """Bytes of the gradients that the current layer has made, ``own`` elements."""
        if self.share == 1.0:
            return 0.0 if self.before else own * self.width
        return min(own, self.biggest) * self.width


# Bytes an element of the tensor that lomo-optim steps while backward goes on, in place of its gradient: in fp32 the
# gradient and the weights; of AdaLomo the gradient, its square and that with a number added. What is fp32 already is
# not copied (lomo-optim 0.1.1 lomo.py and adalomo.py, fuse_update; measured on Llama-3-8B).
_STEPPED = {"lomo": {2: 8.0, 4: 4.0}, "adalomo": {2: 12.0, 4: 12.0}}


def replicated_points(f: Facts) -> dict[str, list[Point]]:
    """Single GPU, DDP, ZeRO, Megatron: whole layers compute on every rank."""
    ranks = f.ranks
    model, regime = f.built
    optimizer = f.plan.optimizer
    stack = stack_of(f)
    trained = local_trained(f)
    head = logits_of(f, stack.written)
    # Logits of the micro batches that wait for their backward pass with the rest.
    waiting = (last_depth(f) - 1) * head.kept if f.plan.parallel.pp_schedule == "afab" else 0.0
    comm = comm_buffers(f)
    stepped = _STEPPED.get(optimizer.kind or "", {}).get(regime.stream, 0.0)
    in_backward = bool(optimizer.in_backward) or stepped > 0
    pile = _Pile(
        f, trained, handed_on=in_backward or comm.holds_gradients or ranks.backend == "megatron"
    )
    bare = stack.bare
    pictures = images_of(f)
    base = bare + pictures.kept
    saved = stack.saved
    # The head is on the last stage, the images and most micro batches are on the first.
    is_staged = ranks.pp > 1 and ranks.backend != "device_map_pp"
    last = saved * last_depth(f) / pipeline_depth(f) if is_staged else saved
    at_end = (bare if is_staged else base) + last

    cast_cache = _cast_cache(f, stack) if regime.amp and regime.stream == 4 else 0.0
    layer = _widest_layer(stack)
    around = comm.resident + comm.forward
    forward = [
        Point(pile.in_forward, bare + pictures.forward, 0.0, around, 0.0),
        Point(pile.in_forward, base + saved + layer, 0.0, around, cast_cache),
        Point(pile.in_forward, at_end + head.norm, head.loss + waiting, around, cast_cache),
    ]

    around = comm.resident + comm.backward
    late = head.late or [(head.norm, max(head.early, head.kept), 0.0)]
    norm, bytes_, own = max(late, key=lambda each: pile.made(each[2]) + each[0] + each[1])
    grads = pile.done(0.0) + pile.made(own)
    backward = [Point(grads, at_end + norm, bytes_ + waiting, around, 0.0)]
    around += comm.once_reduced

    has_head = bool(model.head_numel) or model.tied
    done = model.vocab * model.hidden / ranks.tp if f.trained.head and has_head else 0.0
    # The gradient that a tied weight has from the head waits for the one from the embedding.
    waits = done * pile.width if in_backward and model.tied and f.trained.embeddings else 0.0
    grads, alive, fixed = _highest_stop(stack, pile, base, done, waits)
    backward.append(Point(grads, alive, 0.0, around, fixed))
    if stepped and done and not model.tied:
        # The head is stepped when the norm below it has its gradient.
        backward.append(Point(0.0, at_end + head.norm, 0.0, around, stepped * done))
    done += stack.walk.trained
    if pictures.backward:
        grads = pile.done(done) + pile.made(pictures.grads)
        backward.append(Point(grads, bare + pictures.backward, 0.0, around, 0.0))

    # The embedding's gradient comes last; a tied one meets the head's.
    embed = model.embed_numel / ranks.tp * pile.width if f.trained.embeddings else 0.0
    extra = embed * _added_beside(f, pile)
    total = pile.done(trained)
    if pile.share < 1.0:
        total += embed
    backward.append(Point(total, bare + stack.inputs, 0.0, around + comm.at_last, extra))
    if stepped and f.trained.embeddings:
        backward.append(Point(0.0, bare, 0.0, around, stepped * model.embed_numel / ranks.tp))

    step = Point(
        pile.after, stack.ids, 0.0, comm.resident_at_step, optimizer_temporaries(f, trained)
    )
    if f.trained.stray_bytes:
        # Each backward makes them anew and adds them to those that nobody clears.
        backward[-1] = backward[-1]._replace(temporary=extra + f.trained.stray_bytes)
    if reduced := reduced_at_once(f):
        backward.append(Point(total, bare, 0.0, around + reduced, 0.0))
    # Between steps gradients are gone, except stage 3's buffer.
    kept_between = (
        pile.after if ranks.backend == "zero" and f.plan.parallel.zero.stage == 3 else 0.0
    )
    idle = Point(kept_between, 0.0, 0.0, comm.resident_at_step, 0.0)
    points = {
        "forward": forward, "backward": backward, "optimizer_step": [step], "idle": [idle],
    }  # fmt: skip
    return with_strays(points, f.trained.stray_bytes) if f.trained.stray_bytes else points


def _cast_cache(f: Facts, stack: Stack) -> float:
    """Bytes of the half-precision weights that autocast caches until the outermost autocast ends.
    Only weights that are trained are cached (aten/src/ATen/autocast_mode.cpp)."""
    model, ranks = f.model, f.ranks
    assert model is not None
    cached = f.trained.adapter_numel if f.trained.lora else model.linear_numel
    return 2.0 * cached * stack.checkpoint / ranks.tp / ranks.pp


def _widest_layer(stack: Stack) -> float:
    """What a layer holds in forward at most, beside what it keeps for backward."""
    tokens, scores = stack.tokens, stack.scores
    if stack.checkpoint:
        each = [widest(profile.inference, tokens, scores) for profile in stack.walk.kinds]
    else:
        both = zip(stack.walk.kinds, stack.kept, strict=True)
        each = [widest(profile.forward, tokens, scores) - kept for profile, kept in both]
    return max([0.0, *each])


def _highest_stop(
    stack: Stack, pile: _Pile, base: float, done: float, waits: float
) -> tuple[float, float, float]:
    """Bytes of gradients, of activations and of fixed size at the highest instant of the layers' backward."""
    best, highest = 0.0, (0.0, 0.0, 0.0)
    tops = [_highest_moment(p, stack.tokens, stack.scores, pile) for p in stack.walk.kinds]
    for stop, below in zip(stack.walk.stops, stack.below(), strict=True):
        made, moving, fixed = tops[stop.kind]
        alive = base + below + moving
        grads = pile.done(done + stop.trained) + made + waits
        if grads + alive + fixed > best:
            best = grads + alive + fixed
            highest = (grads, alive, fixed)
    return highest


def _added_beside(f: Facts, pile: _Pile) -> float:
    """How many times the embedding's gradient stands beside that to which it is added."""
    assert f.model is not None
    if pile.before and pile.share == 1.0:
        return 1.0
    if f.model.tied and f.trained.embeddings and f.trained.head:
        # Half-precision gradients of a tied weight are added into a third tensor.
        return 2.0 if pile.width == 2 else 1.0
    return 0.0


def with_strays(points: dict[str, list[Point]], stray: float) -> dict[str, list[Point]]:
    """The same instants beside ``stray`` bytes of gradients that stay for ever."""
    return {
        name: [p._replace(gradients=p.gradients + stray) for p in found]
        for name, found in points.items()
    }


def _highest_moment(
    profile: LayerProfile, tokens: float, scores: float, pile: _Pile
) -> tuple[float, float, float]:
    """Bytes of gradients, of activations and of fixed size at the highest instant of a layer's
    backward. What the other layers hold adds to all its instants alike."""
    best, found = -1.0, (0.0, 0.0, 0.0)
    for token, score, fixed, own in profile.backward:
        alive = token * tokens + score * scores
        made = pile.made(own)
        if made + alive + fixed > best:
            best, found = made + alive + fixed, (made, alive, fixed)
    return found


# Before, torch takes foreach only where it is told to (torch 1.13.1 optim/adamw.py:207-209).
_FOREACH = (2, 0)
# torch 2.0.1 optim/adamw.py:564-566 makes the root of the second moments, and a second copy with epsilon added,
# which from 2.1.0 on (optim/adamw.py:599-602) is added in place.
_IN_PLACE = (2, 1)


def _copies_of_foreach(f: Facts, kind: str) -> int:
    """Copies of the trained parameters that torch makes in a step of all of them at once."""
    return 2 if kind == "adamw" and f.older("torch", _IN_PLACE) else 1


def optimizer_temporaries(f: Facts, trained: float) -> float:
    """Bytes that the optimizer step needs beside states and gradients on one GPU.

    Measured on torch 2.13 and transformers 5.23 optimizers: fused kernels none, foreach one
    copy of the trained parameters, the loop two of the largest; transformers' Adafactor
    computes in fp32 (16 bytes an element of the largest half-precision tensor, 8 of fp32).
    """
    ranks, bytes_per = f.ranks, f.bytes_per
    model = f.model
    assert model is not None
    if f.plan.offload.optimizer in ("cpu", "nvme") or f.plan.parallel.fsdp.cpu_offload:
        return 0.0
    largest = (
        float(model.largest_tensor)
        if not f.trained.lora
        else float(model.hidden * (f.plan.trainable.r or 8) * 4)
    )
    largest = min(largest, trained)
    shard = ranks.shard
    extra = 0.0
    if ranks.backend == "zero" and bytes_per.master:
        # The fp32 copy of the gradient partition (stage_1_and_2.py, stage3.py step); BF16_Optimizer steps a view of its sums.
        extra = 0.0 if f.sums_whole else 4 * trained / shard
        largest = trained / shard
        if f.plan.parallel.zero.stage == 3:
            # Stage 3 steps sub-group by sub-group (stage3_sub_group_size, 1e9 by default).
            largest = min(largest, float(f.plan.parallel.zero.sub_group_elems or 1_000_000_000))
            extra = 4 * largest
            shard, trained = 1, largest
    trained = largest if f.plan.optimizer.in_backward else trained / shard
    return _temporaries_of_kind(f, trained, largest, extra)


def _width_stepped(f: Facts) -> float:
    """Bytes an element of what the optimizer steps."""
    if f.bytes_per.master:
        return f.bytes_per.master
    if f.trained.lora:
        return f.bytes_per.trained
    return f.bytes_per.weight if f.ranks.backend in ("fsdp1", "fsdp2") else f.bytes_per.stream


def _temporaries_of_kind(f: Facts, trained: float, largest: float, extra: float) -> float:
    """``extra`` and what the kind of optimizer makes beside it, of ``trained`` elements at once or of the ``largest``
    tensor alone."""
    o = f.plan.optimizer
    kind, width = o.kind or "adamw", _width_stepped(f)
    if kind == "adafactor":
        name = (o.name or "").lower()
        if "torch" in name:
            return extra + (trained if o.foreach is not False else largest) * width
        return extra + largest * (16 if width == 2 else 8)
    if kind == "muon":
        # torch.optim.Muon's Newton-Schulz iteration, measured on a 4096 x 14336 matrix.
        return extra + largest * (5.15 + width)
    if kind == "adagrad" and o.foreach is not False and not o.fused:
        return extra + 2 * trained * width
    if kind in ("adamw", "lamb", "schedule_free", "anyprecision_adamw", "rmsprop", "adagrad"):
        if o.fused:
            return extra
        foreach = o.foreach is not False and not f.older("torch", _FOREACH)
        copies = _copies_of_foreach(f, kind) * trained if foreach else 2 * largest
        return extra + copies * width
    if kind == "badam" and width == 2:
        # The block's gradients make way for fp32 copies (badam 1.4 block_optim.py, _grad_to_hp).
        return extra + 2 * trained
    if kind == "galore":
        # The singular value decomposition in fp32, measured on a 11008 x 4096 matrix.
        return extra + largest * (9.4 if width == 2 else 8.4)
    if kind in ("dion", "shampoo", "apollo"):
        # Newton-Schulz (and the projections) run on one matrix at a time, a few copies of it.
        return extra + 4 * largest * 2
    return extra
