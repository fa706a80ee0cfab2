"""How far a run may lie from what is predicted of it: one cause at a time, added in quadrature.

Two things are asked, and each has bounds of its own: what torch allocates and what it reserves. The
half-widths are calibrated on published figures of their own kind (``python -m benchmarks.accuracy.held_out``), rounded,
and the same for every framework. Causes that are independent rarely strike together, so their
squares are added.

All that is the scatter of a run that is what its files were read as, and those publishers are known here. Of others, whose
readings were taken before anybody looked at their programs, half lies outside (``python -m
benchmarks.accuracy.first_sight``): something was another than it was read as. What a person is told counts that in.
"""

from __future__ import annotations

from math import hypot
from typing import NamedTuple

from msgspec import Struct

from oomlint.memory.allocator import lengths_vary
from oomlint.memory.facts import Facts
from oomlint.memory.images import images_of
from oomlint.memory.result import GpuLimits
from oomlint.memory.step import Point
from oomlint.memory.traits import is_read
from oomlint.plan.fields import f as fields

# States are exact but for what library versions keep beside them: buffers, fp32 norms, block
# constants of quantisation, half-filled segments.
_STATES_LESS, _STATES_MORE = 0.05, 0.15
# Activations, buffers and temporaries differ with kernels and versions. Losses are measured alone
# within 5 % (benchmarks/measure/losses.py); a copy may be shifted, cast or kept besides.
_MOVING_LESS, _MOVING_MORE = 0.25, 0.25
_LOGITS_LESS, _LOGITS_MORE = 0.10, 0.10
# The holes of one length: replayed traces of real steps leave 0.05 to 0.43 of what comes and goes
# (``python -m benchmarks.allocator``), where the prediction takes 0.12 and 0.25.
_HOLES = 0.60
# Where lengths vary, the longest batch may stay below the limit, and the pile of cached blocks
# depends on the order of the data: "1 to 8 % at 512 tokens, 25 % at 2048 and up to 82 % at
# 8192" between two publishers of the same LoRA runs. It may also never come.
_SHORTER, _PILE = 0.40, 0.60
# Runs on short samples, whose pile is small, read 1.5 to 4 GiB above everything that is alive (docs/accuracy.md).
_SHORT_RUNS = 3.0 * 2**30
# The layers of a class that nobody has read are taken for Llama's. The router sends experts batches of ever new sizes, and with expert parallelism
# a GPU may get far more than its even share: Megatron-SWIFT's packed runs on 4 to 8 ranks of experts
# read 9 to 12 GiB above that, those on 2 ranks 1 to 3.
_UNREAD_LESS, _UNREAD_MORE = 0.35, 0.50
# Images are one a sample and as large as fits, or there are none, or several. Runs of models with a tower scatter by
# more than that: their samples are of unknown lengths, and a tower's blocks of kernels that were not measured.
_IMAGES_LESS, _IMAGES_MORE = 0.35, 0.50
_TOWER_LESS, _TOWER_MORE = 0.27, 0.35
_ROUTED, _ROUTED_TO_RANKS = 0.30, 0.40
# What nvidia-smi counts beside torch and the context of its kernels: handles and workspaces of other libraries,
# other processes. Calibrated on figures that are nvidia-smi's.
_OUTSIDE = 1.5 * 2**30
# The groups in which ZeRO-3 gathers parameters follow the trace of the first steps.
_TRACED = 4.0 * 2**30
# Transformer Engine keeps the inputs of its products in 8 bits, of which the estimate knows
# nothing: at most half of what is alive. For the next micro batch it keeps the weights in 8 bits
# too, and transposed (TransformerEngine fecb10bd transformer_engine/pytorch/module/base.py,
# get_fp8_workspace, with_transpose). torchao is left out: its axis-wise recipe keeps both as they
# came and casts them again (torchao/float8/float8_linear.py); the tensor-wise one keeps casts, and
# was not measured.
_FP8_INPUTS = 0.5
_FP8_WEIGHTS = 2.0
# What CUDA graphs of an engine take beside its pool: "1~3 GiB" (vllm 0.6 worker/model_runner.py
# capture_model). The pool itself is a share of the card, which the engine measures and takes.
_GRAPHS = 2.0 * 2**30
# What comes and goes was read otherwise than it ran: of 287 readings at first sight of 61 publishers, chosen on four of five
# sets, these hold 84% of the fifth's rows and 86% of its publishers' (benchmarks/accuracy/first_sight). Where lengths vary, what
# is added for that holds 84% of the publishers by itself. Of a sixth set, which came after they were chosen, they hold 65% of 46
# rows and 67% of 16 publishers, of a seventh 86% of 42 rows and of 14 publishers. No other class of what is known (objective, method,
# sharding, counter, program or config) does better on sets that it was not chosen on.
MISREAD_LESS, MISREAD_MORE = 0.65, 1.75
_GUESSES = frozenset(
    {fields.seq.max_len, fields.batch.micro, fields.parallel.world, fields.model.dims}
)


class Totals(Struct, frozen=True):
    """What the estimate knows of one GPU, in bytes; ``states`` stays from step to step."""

    allocated: float
    states: float
    point: Point
    fixed: float
    reserved: float
    engine: float


class Interval(NamedTuple):
    """The least and the most, in bytes."""

    low: float
    high: float


class Bounded(NamedTuple):
    """The bounds of what torch allocates, of what it reserves, and of what anybody may read; and of the last, if nobody has
    looked at a run like it before."""

    allocated: Interval
    reserved: Interval
    shown: Interval
    at_first_sight: Interval


def bounds(f: Facts, limits: GpuLimits, at: Totals, *, communicates: bool) -> Bounded:
    """The least and the most that torch allocates and reserves, and that the GPU may show.

    What is shown goes from the least that torch allocates, whose counter does not see the context, to
    the most that nvidia-smi shows: what torch reserves, its context and communicators, and others.
    """
    less, more = _spread(f, at)
    alloc = Interval(at.allocated - hypot(*less), at.allocated + hypot(*more))
    holes = _HOLES * (at.fixed - at.allocated)
    less.append(holes)
    more.append(holes)
    if lengths_vary(f.plan):
        pile = max(0.0, at.reserved - at.fixed)
        less.append(pile)
        more += [_PILE * (at.reserved - at.fixed), _SHORT_RUNS]
    if f.ranks.backend == "zero" and f.plan.parallel.zero.stage == 3:
        more.append(_TRACED)
    held = Interval(max(alloc.low, at.reserved - hypot(*less)), at.reserved + hypot(*more))
    if any(a.field in _GUESSES for a in f.assumptions):
        # A guess is no scatter: it may be wrong by itself, whatever else happens.
        everything = at.point.passing
        alloc = Interval(alloc.low - 0.5 * everything, alloc.high + everything)
        held = Interval(held.low - 0.5 * everything, held.high + everything)
    context = limits.context + (limits.nccl if communicates else 0)
    beside = [_OUTSIDE, limits.context_high - limits.context]
    if communicates:
        beside.append(limits.nccl_high - limits.nccl)
    more_shown = hypot(held.high - at.reserved, *beside)
    shown = Interval(alloc.low, at.reserved + context + more_shown)
    misread = 0.0 if lengths_vary(f.plan) else at.point.passing
    at_first_sight = Interval(
        max(0.0, at.allocated - hypot(at.allocated - alloc.low, MISREAD_LESS * misread)),
        at.reserved + context + hypot(more_shown, MISREAD_MORE * misread),
    )
    return Bounded(alloc, held, shown, at_first_sight)


def _spread(f: Facts, at: Totals) -> tuple[list[float], list[float]]:
    """What may be less and what more of all that is allocated, one cause an entry."""
    ranks = f.ranks
    model, point = f.model, at.point
    assert model is not None
    moving = point.passing - point.logits
    own = at.allocated - at.engine
    less = [_STATES_LESS * at.states, _MOVING_LESS * moving, _LOGITS_LESS * point.logits]
    more = [_STATES_MORE * at.states, _MOVING_MORE * moving, _LOGITS_MORE * point.logits]
    if not f.plan.model.from_scratch:
        # Weights that are cast on the GPU may pass through fp32 there.
        more.append(0.5 * (4.0 - f.bytes_per.stream) * model.largest_tensor / ranks.tp)
    if lengths_vary(f.plan):
        less.append(_SHORTER * (point.activations + point.logits))
    if not is_read(model.arch):
        less.append(_UNREAD_LESS * own)
        more.append(_UNREAD_MORE * own)
    if model.vision_numel:
        pictures = images_of(f)
        images = max(pictures.kept, pictures.backward)
        less += [_TOWER_LESS * own, _IMAGES_LESS * images]
        more += [_TOWER_MORE * own, _IMAGES_MORE * images]
    if f.plan.precision.fp8_train == "te":
        less.append(_FP8_INPUTS * point.activations)
        more.append(_FP8_WEIGHTS * model.linear_numel / ranks.tp / ranks.pp)
    if model.expert_numel:
        more.append((_ROUTED if ranks.ep == 1 else _ROUTED_TO_RANKS) * own)
    if at.engine:
        more.append(_GRAPHS)
    return less, more
