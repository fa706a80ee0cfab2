"""One training step under FSDP: gather windows and flat parameters around the layers.

Measured with fake and real process groups on torch 2.13 and accelerate 1.15; the formulas name
the buffers of the source: torch/distributed/fsdp/_fully_shard (FSDP2),
torch/distributed/fsdp/_flat_param.py (FSDP1).
"""

from __future__ import annotations

from typing import TypeAlias

from oomlint.memory.facts import Facts
from oomlint.memory.images import images_of
from oomlint.memory.layers import LayerProfile
from oomlint.memory.logits import logits_of
from oomlint.memory.states import local_trained, trained_padded
from oomlint.memory.step import Point, optimizer_temporaries, stack_of
from oomlint.memory.units import stays_gathered, units_of


def reduce_bytes(f: Facts, default: float) -> float:
    """Bytes an element of reduced gradients."""
    return {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}.get(f.plan.precision.comm or "", default)


Moment: TypeAlias = tuple[float, float, float]
_NO_MOMENT: Moment = (-1.0, 0.0, -1.0)
# Bytes that one layer's backward finds: gradients above it, activations below, windows around, and what was gathered
# ahead on a stream of its own.
Place: TypeAlias = tuple[float, float, float, float]


def _instants(
    profile: LayerProfile, places: list[Place], tokens: float, scores: float, width: float
) -> list[Point]:
    """The instants of backward of equal layers, wherever in the stack they stand, with ``width``
    bytes an element of own gradients.

    A layer's own instants add to what it finds, so that whatever is asked for, of all of both
    only the place and the moment count that have the most of it: of everything, of what moves,
    of gradients, of windows.
    """
    whole, own, moving, late = _highest_moments(profile, tokens, scores, width)
    at, deep, last, around = _highest_places(places)
    pairs = ((at, whole), (deep, own), (deep, moving), (last, late), (around, whole))
    return [
        Point(found + made, below + moves, 0.0, window, fixed, gathered=ahead)
        for (found, below, window, ahead), (moves, fixed, made) in dict.fromkeys(pairs)
    ]


def _highest_moments(
    profile: LayerProfile, tokens: float, scores: float, width: float
) -> tuple[Moment, Moment, Moment, Moment]:
    """A layer's moments that have the most of everything, of what is its own, of what moves, and of gradients: each as
    bytes that move, that are fixed, and of gradients."""
    whole = moving = own = late = _NO_MOMENT
    most = -1.0
    # Comparisons are cheaper here than max() with a key, for every kind of every estimate.
    for token, score, fixed, grads in profile.backward:
        moves, made = token * tokens + score * scores, grads * width
        moment = (moves, fixed, made)
        if moves + fixed + made > most:
            most, whole = moves + fixed + made, moment
        if moves > moving[0]:
            moving = moment
        if moves + fixed > own[0] + own[1]:
            own = moment
        if made > late[2]:
            late = moment
    return whole, own, moving, late


def _highest_places(places: list[Place]) -> tuple[Place, Place, Place, Place]:
    """The places that have the most of everything, of activations, of gradients, and of windows."""
    at = deep = last = around = places[0]
    for place in places[1:]:
        if sum(place) > sum(at):
            at = place
        if place[0] > last[0]:
            last = place
        if place[1] > deep[1]:
            deep = place
        if place[2] + place[3] > around[2] + around[3]:
            around = place
    return at, deep, last, around


def _of_earlier_batches(f: Facts, trained: float, width: float) -> float:
    """Bytes of the gradients of earlier micro batches. Without synchronisation they stay whole, with ``width`` bytes an
    element: in the reduce dtype if that is wider."""
    fsdp = f.plan.parallel.fsdp
    if not fsdp.sync_every_micro:
        return width * trained
    return 0.0 if fsdp.cpu_offload else f.bytes_per.grad * trained / f.ranks.shard


def fsdp2_points(f: Facts) -> dict[str, list[Point]]:
    """fully_shard: per-parameter shards, two-unit windows, reduce-scatter inputs held.

    Forward holds a unit's all-gather output beside its unsharded parameters and, while the
    next is copied out, the previous output too; backward holds the prefetched output, the
    unit, its gradients and the reduce-scatter input of the unit above
    (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, _fsdp_collectives.py).
    """
    ranks, bytes_per = f.ranks, f.bytes_per
    m, _ = f.built
    fsdp = f.plan.parallel.fsdp
    stack = stack_of(f)
    tokens, scores = stack.tokens, stack.scores
    n, e = ranks.shard, bytes_per.stream
    master = bytes_per.weight if bytes_per.weight >= 2 else bytes_per.stream
    reduce = reduce_bytes(f, e)
    cast = reduce != master
    u = units_of(f)
    ends = (fsdp.wrap or "ends") == "ends"
    alone = ends and not m.tied  # the tail is a unit of its own
    tail = u.tail if alone else u.root
    reshard = not stays_gathered(f)
    whole = 0.0 if reshard else e * (stack.walk.sizes + (u.embed if alone else 0.0))
    offload = bool(fsdp.cpu_offload)
    trained = local_trained(f)
    full = not f.trained.lora
    head = logits_of(f, stack.written)
    bare, hidden, saved = stack.bare, stack.hidden, stack.saved
    pictures = images_of(f)
    base = bare + pictures.kept

    # Sharded gradients of the elements reduced so far, beside those of earlier micro batches.
    shard_grad = 0.0 if offload or not full else master / n
    accumulates = f.samples.accumulation > 1
    before = _of_earlier_batches(f, trained, max(e, reduce)) if accumulates else 0.0

    # Bytes that one element's reduction adds to them.
    each = shard_grad
    if before:
        each = 0.0 if fsdp.sync_every_micro or not full else shard_grad - max(e, reduce)

    root_held = 0.0 if alone else e * u.root
    block = u.largest
    copied = (e * block if reshard else 0.0) + root_held + whole
    forward = [
        Point(before, base + max(0.0, saved - stack.kept[stack.walk.order[-1]]) + hidden, 0.0,
              copied, 0.0, gathered=2 * e * block),
        Point(before, bare + pictures.forward, 0.0, copied, 0.0, gathered=2 * e * block),
        Point(before, base + saved + head.norm, head.loss, e * tail + whole, 0.0,
              gathered=e * (tail if alone else block)),
    ]  # fmt: skip
    if f.trained.lora:
        forward.append(
            Point(before, base + saved, 0.0, e * u.tail + whole, 0.0, gathered=e * (block + u.tail))
        )

    early = e * tail + (0.0 if ends or not reshard else e * block) + whole
    backward = [
        Point(before, base + saved + norm, bytes_, early, 0.0)
        for norm, bytes_, _ in head.late or [(head.norm, max(head.early, head.kept), 0.0)]
    ]
    tail_trains = f.trained.head and full
    done = u.tail if alone and tail_trains else 0.0
    if done:
        scatter = (e + reduce) * u.tail + (reduce * u.tail / n if cast else 0.0)
        moved = base + saved + hidden
        backward.append(
            Point(before + each * done, moved, 0.0, scatter + whole, 0.0, gathered=e * block)
        )

    head_grad = e * m.vocab * m.hidden / ranks.tp if not alone and tail_trains else 0.0
    # Own gradients wait whole for what reduces them, unless all of them are there already.
    own = e if full else bytes_per.adapter
    if before and full and not fsdp.sync_every_micro:
        own = 0.0
    places: list[list[Place]] = [[] for _ in stack.walk.kinds]
    last = u.embed if alone else 0.0
    around = root_held + head_grad
    scattered = reduce if full else 0.0
    top = u.tail if alone else 0.0
    for stop, below in zip(stack.walk.stops, stack.below(), strict=True):
        held = scattered * (top if stop.top else stop.size)
        ahead = last if stop.next_size is None else stop.next_size
        window = e * stop.size if reshard else whole - e * stop.size * stop.number
        reduced = before + each * (done + stop.sizes)
        gathered = e * ahead if reshard else 0.0
        places[stop.kind].append((reduced, base + below, window + held + around, gathered))
    done += stack.walk.sizes
    for profile, of_kind in zip(stack.walk.kinds, places, strict=True):
        backward += _instants(profile, of_kind, tokens, scores, own)

    final = 0.0 if offload else bytes_per.grad * trained_padded(f)
    if pictures.backward:
        # The tower's units are small beside the text model's, whose window stands for theirs.
        made = before + each * done + e * pictures.grads / n
        window = 2 * e * block + root_held + head_grad
        backward.append(Point(made, bare + pictures.backward, 0.0, window, 0.0))
    if not full:
        backward.append(Point(max(before, final), bare + hidden, 0.0, root_held, 0.0))
    else:
        unit = u.embed if alone else u.root
        # A tied weight's two gradients and their sum are alive together.
        made = e * unit if alone else (3.0 if m.tied else 2.0) * e * m.embed_numel / ranks.tp
        scatter = (e + reduce) * unit + (reduce * unit / n if cast else 0.0)
        backward += [
            Point(before + each * done, bare + hidden, 0.0, e * unit + made + reduce * block, 0.0),
            Point(before + each * (done + unit), bare, 0.0, scatter, 0.0),
        ]
    step = Point(final, stack.ids, 0.0, 0.0, optimizer_temporaries(f, trained))
    return {
        "forward": forward, "backward": backward, "optimizer_step": [step], "idle": [Point()],
    }  # fmt: skip


def fsdp1_points(f: Facts) -> dict[str, list[Point]]:
    """FullyShardedDataParallel: one flat parameter a unit, its gradients concatenated.

    The gather writes straight into the flat parameter; in backward a unit's parameter
    gradients, their concatenation and the unit itself are alive together, with the next unit
    under BACKWARD_PRE (torch/distributed/fsdp/_flat_param.py, _runtime_utils.py). Where the
    reduction runs in a wider dtype, the unit is gone before the wide copy is made.
    """
    ranks, bytes_per = f.ranks, f.bytes_per
    m, _ = f.built
    fsdp = f.plan.parallel.fsdp
    stack = stack_of(f)
    tokens, scores = stack.tokens, stack.scores
    n, e = ranks.shard, bytes_per.stream
    master = bytes_per.weight if bytes_per.weight >= 2 else bytes_per.stream
    low = e if master != e else 0.0  # a half-precision copy of what is stored wider
    reduce = reduce_bytes(f, e)
    wrapped = (fsdp.wrap or "transformer") != "none"
    stays = stays_gathered(f)
    replicated = fsdp.strategy == "no_shard"
    u = units_of(f)
    total = m.numel / ranks.tp + f.trained.adapter_numel
    # The embedding and the output layer as units of their own (allenai/OLMo ``by_block_and_size``).
    alone = fsdp.wrap == "ends" and not m.tied
    first, tail = (u.embed, u.tail) if alone else (0.0, 0.0)
    root = u.root - first - tail if wrapped else total
    trained = local_trained(f)
    full = not f.trained.lora
    grad_width = 0.0 if fsdp.cpu_offload else bytes_per.grad
    head = logits_of(f, stack.written)
    bare, hidden, saved = stack.bare, stack.hidden, stack.saved
    pictures = images_of(f)
    base = bare + pictures.kept
    before = 0.0
    if f.samples.accumulation > 1:
        before = bytes_per.grad * trained / n if fsdp.sync_every_micro else e * trained

    gathered = low if replicated else e
    held = gathered * root
    unit = gathered * u.largest if wrapped else 0.0
    whole = e * (m.block_numel / ranks.tp + first) if stays and wrapped else 0.0
    prefetch = (fsdp.backward_prefetch or "pre") == "pre"
    forward = [
        Point(before, base + saved, 0.0, held + (whole or unit) + low * u.largest / n, 0.0),
        Point(
            before, base + saved + head.norm, head.loss,
            held + gathered * tail + (whole or (0.0 if alone else unit)), 0.0,
        ),
    ]  # fmt: skip
    early = held + gathered * tail + (whole or (unit if prefetch else 0.0))
    backward = [
        Point(before, base + saved + norm, bytes_, early, 0.0)
        for norm, bytes_, _ in head.late or [(head.norm, max(head.early, head.kept), 0.0)]
    ]
    head_grad = 0.0 if alone or not (f.trained.head and full) else e * m.vocab * m.hidden / ranks.tp
    places: list[list[Place]] = [[] for _ in stack.walk.kinds]
    reductions: list[Moment] = []
    through = grad_width / n if wrapped else e
    # A new shard is added in place to what is there of earlier micro batches and goes, and so does what was not
    # sharded yet (torch/distributed/fsdp/_runtime_utils.py _accumulate_sharded_grad, _reduce_grad).
    each = through
    if before and wrapped:
        each = 0.0 if fsdp.sync_every_micro else through - e
    done = 0.0
    if tail and f.trained.head and full:
        wide = (e + reduce + reduce / n) * tail if reduce != e else 0.0
        moved = held + max(gathered * tail + 2 * e * tail, wide) + (whole or unit)
        backward.append(Point(before + each * tail, base + saved + hidden, 0.0, moved, 0.0))
        done = each * tail
    for stop, below in zip(stack.walk.stops, stack.below(), strict=True):
        below += base
        made = stack.walk.kinds[stop.kind].trained
        wide = (e + reduce + reduce / n) * made if reduce != e else 0.0
        here = gathered * stop.size if wrapped else 0.0
        ahead = here if prefetch and not stop.is_last else 0.0
        if whole:
            here, ahead = whole - e * stop.size * stop.number, 0.0
        around = held + head_grad + ahead
        reduced = before + done + each * stop.trained
        places[stop.kind].append((reduced, below, around + here, 0.0))
        if wrapped:
            reductions.append((reduced, below + hidden, around + max(here + 2 * e * made, wide)))
    done += each * stack.walk.trained
    for profile, of_kind in zip(stack.walk.kinds, places, strict=True):
        backward += _instants(profile, of_kind, tokens, scores, e)
    backward += [Point(grads, alive, 0.0, around, 0.0) for grads, alive, around in reductions]
    if full:
        last = first or root
        wide = (e + reduce + reduce / n) * last if reduce != e else 0.0
        # A tied weight's two gradients are one before the flat one is made, which is all that is left to be reduced
        # (measured on torch 2.13 with fp32 reduction: 8 bytes an element at the sum, whatever it is reduced in).
        twice = e * m.embed_numel / ranks.tp if m.tied else 0.0
        final = max(held + gathered * first + 2 * e * last + twice, wide)
        backward.append(Point(before + (done if wrapped else 0.0), bare + hidden, 0.0, final, 0.0))
    else:
        backward.append(Point(before + done, bare + hidden, 0.0, held, 0.0))
    step = Point(grad_width * trained / n, stack.ids, 0.0, 0.0, optimizer_temporaries(f, trained))
    return {
        "forward": forward, "backward": backward, "optimizer_step": [step], "idle": [Point()],
    }  # fmt: skip
