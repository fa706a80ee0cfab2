"""How far a run may lie from its predicted peak: one cause at a time, added in quadrature.

From what torch must have allocated, without slack and CUDA context, to what nvidia-smi may
show at most. Causes that are independent rarely strike together, so their squares are added.
The sizes are half-widths read off published runs, rounded, and the same for every framework.
"""

from __future__ import annotations

from math import hypot

from msgspec import Struct

from oomlint.memory.allocator import lengths_vary
from oomlint.memory.facts import Facts
from oomlint.memory.result import GpuLimits
from oomlint.memory.step import Point
from oomlint.memory.traits import is_read
from oomlint.plan.fields import f as fields

# States are exact but for what library versions keep beside them: buffers, fp32 norms, block
# constants of quantisation, half-filled segments.
_STATES_LESS, _STATES_MORE = 0.03, 0.15
# Activations, buffers and temporaries differ with kernels and versions. Losses are measured alone
# within 5 % (benchmarks/measure/losses.py); a copy may be shifted, cast or kept besides.
_MOVING_LESS, _MOVING_MORE = 0.10, 0.20
_LOGITS_LESS, _LOGITS_MORE = 0.05, 0.10
# Where lengths vary, the longest batch may stay below the limit, and the pile of cached blocks
# depends on the order of the data: "1 to 8 % at 512 tokens, 25 % at 2048 and up to 82 % at
# 8192" between two publishers of the same LoRA runs.
_SHORTER, _PILE = 0.40, 0.60
# The layers of a class that nobody has read are taken for Llama's, a vision tower sees images
# of unknown size. The router sends experts batches of ever new sizes, and with expert parallelism
# a GPU may get far more than its even share: Megatron-SWIFT's packed runs on 4 to 8 ranks of experts
# read 9 to 12 GiB above that, those on 2 ranks 1 to 3.
_UNREAD_LESS, _UNREAD_MORE = 0.35, 0.50
_ROUTED, _ROUTED_TO_RANKS = 0.15, 0.25
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


def bounds(f: Facts, limits: GpuLimits, at: Totals, *, communicates: bool) -> tuple[float, float]:
    """The least and the most that the GPU may show, in bytes.

    The lower one leaves the context out, for torch's own counters do not see it.
    """
    model, point = f.model, at.point
    assert model is not None
    moving = point.activations + point.temporary + point.communication
    own = at.allocated - at.engine
    less = [_STATES_LESS * at.states, _MOVING_LESS * moving, _LOGITS_LESS * point.logits]
    more = [_STATES_MORE * at.states, _MOVING_MORE * moving, _LOGITS_MORE * point.logits]
    more.append(limits.context_high - limits.context)
    if communicates:
        more.append(limits.nccl_high - limits.nccl)
    if not f.plan.model.from_scratch:
        # Weights that are cast on the GPU may pass through fp32 there.
        more.append(0.5 * (4.0 - f.stream) * model.largest_tensor / f.tp)
    if lengths_vary(f.plan):
        less.append(_SHORTER * (point.activations + point.logits))
        more.append(_PILE * (at.reserved - at.fixed))
    if not is_read(model.arch) or model.vision_numel:
        less.append(_UNREAD_LESS * own)
        more.append(_UNREAD_MORE * own)
    if f.plan.precision.fp8_train == "te":
        less.append(_FP8_INPUTS * point.activations)
        more.append(_FP8_WEIGHTS * model.linear_numel / f.tp / f.pp)
    if model.expert_numel:
        more.append((_ROUTED if f.ep == 1 else _ROUTED_TO_RANKS) * own)
    if f.backend == "zero" and f.plan.parallel.zero.stage == 3:
        more.append(_TRACED)
    if at.engine:
        more.append(_GRAPHS)
    context = limits.context + (limits.nccl if communicates else 0)
    low, high = at.allocated - hypot(*less), at.reserved + context + hypot(*more)
    if any(a.field in _GUESSES for a in f.assumptions):
        # A guess is no scatter: it may be wrong by itself, whatever else happens.
        everything = moving + point.logits
        return low - 0.5 * everything, high + everything
    return low, high
