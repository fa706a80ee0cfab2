"""Puts the parts together: phases, components, bounds and the verdict."""

from __future__ import annotations

from typing import Literal

from oomlint.memory.allocator import reserved_above, reserved_for_loading
from oomlint.memory.checkpoint import SavePeaks, save_peaks_of
from oomlint.memory.facts import Facts
from oomlint.memory.host import host_phases, overhead_bounds
from oomlint.memory.layers import widest
from oomlint.memory.result import (
    GPU_COMPONENTS,
    GPU_PHASES,
    HOST_COMPONENTS,
    HOST_PHASES,
    DeviceEstimate,
    Estimate,
    GpuLimits,
    HostEstimate,
    unknown_estimate,
)
from oomlint.memory.sharding import comm_buffers, units_of
from oomlint.memory.states import frozen_weight_bytes, state_bytes_of, trained_storage
from oomlint.memory.step import Point, highest, logits_of, stack_of, training_points
from oomlint.plan import Plan

Verdict = Literal["fits", "tight", "does_not_fit", "unknown"]

_UNKNOWN_GPU = GpuLimits()


def estimate(plan: Plan, gpu: GpuLimits | None = None) -> Estimate:
    """Predict the memory of the run that ``plan`` describes, in bytes.

    ``gpu`` adds the CUDA context, NCCL and cuBLAS sizes of a known card; without it typical
    ones are used. A plan whose model has no known dimensions has no numbers, and
    ``Estimate.unknown`` names what is missing. Never raises on a well-typed plan.
    """
    f = Facts(plan)
    if f.model is None:
        return unknown_estimate(("model.dims",), tuple(f.assumptions))
    limits = gpu or _UNKNOWN_GPU
    states = state_bytes_of(f)
    save = save_peaks_of(f)
    resident_params, resident_optim = states.parameters, states.master + states.optimizer
    reference = reference_model(f)
    resident_params += reference

    points = training_points(f)
    phases: dict[str, Point] = {name: highest(points[name]) for name in points}
    phases["load"] = load_point(f)
    idle = phases.pop("idle")
    phases["evaluation"] = evaluation_point(f, idle)
    phases["save"] = idle._replace(temporary=save.gpu)
    workspace = float(limits.cublas_workspace)
    nccl = (
        float(limits.nccl)
        if f.world > 1 and f.backend not in ("none", "dp", "device_map_pp")
        else 0.0
    )
    context = limits.context + nccl
    pool = colocated_pool(f, limits)

    totals: dict[str, float] = {}
    for name in GPU_PHASES:
        point = phases[name]
        optim = 0.0 if name == "load" else resident_optim
        work = 0.0 if name == "load" else workspace
        totals[name] = resident_params + optim + sum(point) + work + pool + context
    peak_phase = max(GPU_PHASES, key=totals.__getitem__)
    point = phases[peak_phase]
    components = {
        "parameters": resident_params,
        "gradients": point.gradients,
        "optimizer_states": 0.0 if peak_phase == "load" else resident_optim,
        "activations": point.activations,
        "logits": point.logits,
        "communication": point.communication,
        "temporary": point.temporary + (0.0 if peak_phase == "load" else workspace) + pool,
        "context": context,
    }
    rounded = {name: round(components[name]) for name in GPU_COMPONENTS}
    peak = sum(rounded.values())
    allocated = peak - rounded["context"]
    held = allocated - point.activations - point.logits - point.temporary - point.communication
    fixed, varied = reserved_above(f, points, resident_params + resident_optim + workspace + pool)
    fixed = max(fixed, allocated, reserved_for_loading(resident_params, phases["load"]))
    if limits.usable is not None:
        # A full GPU makes the allocator give its cached blocks back.
        varied = min(varied, limits.usable - context)
    reserved = max(fixed, varied)
    less, more = uncertainty(f, held, point)
    # The lower bound leaves the context out: torch's own counters do not see it.
    low = allocated - less
    high = reserved + more + limits.context_high + (limits.nccl_high if nccl else 0.0)
    device = DeviceEstimate(
        peak_bytes=peak,
        low_bytes=round(min(low, peak)),
        high_bytes=round(max(high, peak)),
        reserved_bytes=round(reserved),
        peak_phase=peak_phase,
        phases={name: peak if name == peak_phase else round(totals[name]) for name in GPU_PHASES},
        components=rounded,
        least_reserved_bytes=round(fixed),
    )
    return Estimate(
        gpu=device,
        host=_host(f, save),
        disk_checkpoint_bytes=round(save.disk),
        assumptions=tuple(f.assumptions),
        unknown=tuple(f.unknown),
    )


def _host(f: Facts, save: SavePeaks) -> HostEstimate:
    by_phase = host_phases(f, save)
    totals = {phase: sum(by_phase[phase].values()) for phase in HOST_PHASES}
    peak_phase = max(HOST_PHASES, key=totals.__getitem__)
    parts = by_phase[peak_phase]
    components = {name: round(parts.get(name, 0.0)) for name in HOST_COMPONENTS}
    peak = sum(components.values())
    less, more = overhead_bounds(f)
    return HostEstimate(
        peak_bytes=peak,
        low_bytes=round(max(0.0, peak - less)),
        high_bytes=round(peak + more),
        peak_phase=peak_phase,
        phases={p: peak if p == peak_phase else round(totals[p]) for p in HOST_PHASES},
        components=components,
    )


def load_point(f: Facts) -> Point:
    """What loading needs beside the parameters: Fabric's FSDP unshards the model for it
    (lightning fabric/strategies/fsdp.py _load_raw_module_state, summon_full_params)."""
    whole = frozen_weight_bytes(f) + trained_storage(f) if f.loads_whole else 0.0
    return Point(communication=whole)


def evaluation_point(f: Facts, idle: Point) -> Point:
    """A forward pass without gradients: one layer's tensors, the logits and their loss."""
    plan = f.plan
    if plan.eval.enabled is False or plan.eval.strategy == "no":
        return idle
    model = f.model
    assert model is not None
    stack = stack_of(f)
    share = f.eval_rows / f.rows if f.rows else 1.0
    tokens = f.tokens * share
    layer = max(widest(p.inference, tokens, stack.scores * share) for p in stack.profiles)
    head = logits_of(f, tokens)
    kept = 0.0
    if plan.eval.keeps_logits:
        # evaluation_loop gathers the fp32 logits of eval_accumulation_steps batches on the GPU;
        # without that setting of the whole evaluation set, whose size is not known.
        kept = 4.0 * model.vocab * tokens * (plan.eval.accumulation_steps or 16)
    window = 0.0
    if f.backend in ("fsdp1", "fsdp2"):
        window = 3.0 * f.stream * units_of(f).largest
    elif f.backend == "zero":
        window = comm_buffers(f).forward
    return Point(
        idle.gradients, max(layer, head.norm), head.loss + kept, idle.communication + window, 0.0
    )


def reference_model(f: Facts) -> float:
    """Bytes of models beside the trained one: reference, reward, teacher, and a critic, which
    is trained too."""
    o = f.plan.objective
    model = f.model
    assert model is not None
    width = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}.get(o.ref_dtype or "", max(2.0, f.stream))
    shard = f.shard if f.backend in ("fsdp1", "fsdp2") or (
        f.backend == "zero" and (f.plan.parallel.zero.stage or 0) == 3
    ) else 1  # fmt: skip
    each = model.numel * width / shard / f.tp / f.pp
    total = each if o.ref_model == "copy" else 0.0
    for role, name in (("reward_model", o.reward_model), ("teacher", o.teacher)):
        if name and name != "none":
            f.assume(f"objective.{role}", name, "taken to be as large as the trained model")
            total += each
    if o.critic and o.critic != "none":
        f.assume("objective.critic", o.critic, "taken to be as large as the trained model")
        total += state_bytes_of(f).total
    return total


def colocated_pool(f: Facts, limits: GpuLimits) -> float:
    """The pool that a colocated vLLM takes at start: utilisation x the whole card."""
    r = f.plan.objective.rollout
    if r.engine not in ("vllm_colocate", "sglang") or r.sleep:
        return 0.0
    card = limits.usable or f.plan.device.mem_bytes
    if card is None:
        return 0.0
    return (0.3 if r.gpu_mem_util is None else r.gpu_mem_util) * card


# Half-widths of the bounds: states are exact but for what library versions keep beside them
# (buffers, fp32 norms, block constants), activations and logits differ with kernels.
_STATES_LESS, _STATES_MORE = 0.03, 0.08
_MOVING_LESS, _MOVING_MORE = 0.12, 0.05
# ZeRO-3 fetches parameters in groups of many sizes, whose cached blocks serve no others: ms-swift's
# own ZeRO-3 scripts, from 7B to 72B on 2 and 4 GPUs, reserve the whole half-precision model or
# 14 to 15 GiB beyond what is alive (examples/pytorch/llm/scripts, examples/train).
_ZERO3_CACHED = 15.0 * 2**30
_GUESSES = frozenset({"seq.max_len", "batch.micro", "parallel.world", "model.dims"})


def uncertainty(f: Facts, states: float, point: Point) -> tuple[float, float]:
    """How much less and more than predicted torch may allocate, in bytes."""
    moving = point.activations + point.logits + point.temporary + point.communication
    model = f.model
    assert model is not None
    less = _STATES_LESS * states + _MOVING_LESS * moving
    # Loading leaves the largest tensor's fp32 copy in the cache where it is cast on the GPU.
    more = _STATES_MORE * states + _MOVING_MORE * moving + 4.0 * model.largest_tensor / f.tp
    if f.backend == "zero" and f.plan.parallel.zero.stage == 3:
        more += min(_ZERO3_CACHED, f.stream * float(model.numel))
    if any(a.field in _GUESSES for a in f.assumptions):
        return less + 0.5 * moving, more + moving
    return less, more


def verdict(
    estimate: Estimate,
    usable_gpu_bytes: int | None,
    usable_host_bytes: int | None = None,
    margin: float = 0.85,
) -> Verdict:
    """Whether the run fits.

    ``does_not_fit`` when a predicted peak, the holes that the allocator cannot fill included,
    passes its limit, ``tight`` when it is above
    ``margin`` of it or its upper bound passes it, ``unknown`` when the GPU's memory or the
    prediction is not known. Real failures begin at about 85 % of a card's memory.
    """
    peak, high = estimate.gpu.peak_bytes, estimate.gpu.high_bytes
    if peak is None or usable_gpu_bytes is None or high is None:
        return "unknown"
    least = (estimate.gpu.least_reserved_bytes or 0) + (estimate.gpu.components["context"] or 0)
    if max(peak, least) > usable_gpu_bytes:
        return "does_not_fit"
    host = estimate.host.peak_bytes
    if usable_host_bytes is not None and host is not None and host > usable_host_bytes:
        return "does_not_fit"
    if peak > margin * usable_gpu_bytes or high > usable_gpu_bytes:
        return "tight"
    if usable_host_bytes is not None and host is not None and host > margin * usable_host_bytes:
        return "tight"
    return "fits"
