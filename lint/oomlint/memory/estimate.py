"""Puts the parts together: phases, components and bounds."""

from __future__ import annotations

from oomlint.memory.allocator import (
    left_by_packing,
    lengths_vary,
    reserved_above,
    reserved_by_broadcast,
    reserved_for_loading,
    reserved_in_evaluation,
)
from oomlint.memory.beside import asked_on_gpu, critic_beside
from oomlint.memory.bounds import Totals, bounds
from oomlint.memory.checkpoint import SavePeaks, save_peaks_of
from oomlint.memory.evaluation import evaluation_point
from oomlint.memory.facts import Facts, facts_of
from oomlint.memory.host import bounds_of, host_phases
from oomlint.memory.logits import logits_of
from oomlint.memory.reload import beside_on_gpu_of
from oomlint.memory.result import (
    GPU_PHASES,
    HOST_PHASES,
    Bounds,
    DeviceEstimate,
    Estimate,
    GpuLimits,
    HostEstimate,
    unknown_estimate,
    whole_bytes,
)
from oomlint.memory.rollout import engine_pool, rollout_points
from oomlint.memory.sharding import fsdp1_points, fsdp2_points
from oomlint.memory.states import (
    frozen_weight_bytes,
    state_bytes_of,
    states_of_only_step,
    trained_storage,
    visiting_states,
)
from oomlint.memory.step import Point, highest, replicated_points
from oomlint.plan import Plan
from oomlint.plan.fields import f as fields
from oomlint.plan.model import BYTES_PER_ELEMENT

_UNKNOWN_GPU = GpuLimits()


def estimate(plan: Plan, gpu: GpuLimits | None = None) -> Estimate:
    """Predict the memory of the run that ``plan`` describes, in bytes.

    ``gpu`` adds the CUDA context, NCCL and cuBLAS sizes of a known card; without it typical
    ones are used. A plan whose model has no known dimensions has no numbers, and
    ``Estimate.unknown`` names what is missing. Never raises on a well-typed plan.
    """
    try:
        return _estimate(plan, gpu or _UNKNOWN_GPU)
    except OverflowError:
        # Sizes of hundreds of digits, which a file may hold, have no floats.
        return unknown_estimate(("sizes that no machine has",), ())


def _estimate(plan: Plan, limits: GpuLimits) -> Estimate:
    f = facts_of(plan)
    if f.model is None:
        return unknown_estimate((fields.model.dims,), tuple(f.assumptions))
    states = state_bytes_of(f)
    save = save_peaks_of(f)
    points = training_points(f)
    # What comes for the step alone, and for saving, is elsewhere otherwise.
    late = states_of_only_step(f)
    comes = visiting_states(f) + late
    idle = highest(points["idle"])
    critic = critic_beside(f, idle.gradients)
    optimizer = states.master + states.optimizer - comes + critic.master + critic.optimizer
    points["optimizer_step"] = [p._replace(states=comes) for p in points["optimizer_step"]]
    moments = {
        "load": load_point(f),
        # Under reinforcement learning a step begins with the forward passes that write its answers.
        "forward": highest([*points["forward"], *rollout_points(f, idle, limits)]),
        "backward": highest(points["backward"]),
        "optimizer_step": highest(points["optimizer_step"]),
        "evaluation": evaluation_point(f, idle)._replace(states=late),
        "save": idle._replace(temporary=save.gpu, states=comes),
    }
    parameters = states.parameters + asked_on_gpu(f) + critic.parameters
    workspace = float(limits.cublas_workspace)
    communicates = f.ranks.world > 1 and f.ranks.backend not in ("none", "dp", "device_map_pp")
    context = limits.context + (limits.nccl if communicates else 0)
    pool = colocated_pool(f, limits)

    parts = {
        name: {
            "parameters": parameters,
            "gradients": point.gradients + critic.gradients,
            "optimizer_states": optimizer + point.states,
            "activations": point.activations,
            "logits": point.logits,
            "communication": point.communication + point.gathered,
            "temporary": point.temporary + workspace,
            "engine": point.engine + pool,
            "context": context,
        }
        for name, point in moments.items()
    }
    # Optimizer states and cuBLAS workspaces come with the first step, or states with a checkpoint.
    read = (optimizer, beside_on_gpu_of(f)) if plan.load.resume else (0.0, 0.0)
    loading = moments["load"].temporary + read[1]
    loaded = parameters + cast_bytes(f)
    parts["load"] |= {
        "parameters": loaded,
        "gradients": 0.0,
        "optimizer_states": read[0],
        "temporary": loading,
    }
    totals = {name: sum(found.values()) for name, found in parts.items()}
    peak_phase = max(GPU_PHASES, key=totals.__getitem__)
    peak, point = whole_bytes(parts[peak_phase]), moments[peak_phase]
    allocated = peak - context
    engine = parts[peak_phase]["engine"]
    held = allocated - engine - point.passing
    lasting = parameters + critic.gradients + optimizer + workspace + pool
    fixed, varied = reserved_above(f, points, lasting)
    fixed = max(fixed, allocated, reserved_for_loading(loaded, moments["load"]))
    varied = max(varied, left_by_packing(f))
    varied = max(varied, reserved_in_evaluation(f, points, moments["evaluation"], lasting))
    begun = reserved_by_broadcast(f, parameters)
    if limits.usable is not None:
        # A full GPU makes the allocator give its cached blocks back.
        varied = min(varied, limits.usable - context)
        begun = begun if begun <= limits.usable - context else 0.0
    varied = max(varied, begun)
    reserved = max(fixed, varied)
    found = bounds(
        f,
        limits,
        Totals(allocated, held, point, fixed, reserved, engine),
        communicates=communicates,
    )
    device = DeviceEstimate(
        peak_bytes=peak,
        low_bytes=round(min(found.shown.low, peak)),
        high_bytes=round(max(found.shown.high, peak)),
        reserved_bytes=round(reserved),
        peak_phase=peak_phase,
        parts=parts,
        least_reserved_bytes=round(fixed),
        allocated=Bounds(round(found.allocated.low), round(found.allocated.high)),
        reserved=Bounds(round(found.reserved.low), round(found.reserved.high)),
        at_first_sight=Bounds(
            round(min(found.at_first_sight.low, peak)), round(max(found.at_first_sight.high, peak))
        ),
        lengths_vary=lengths_vary(plan),
    )
    return Estimate(
        gpu=device,
        host=_host(f, save),
        disk_checkpoint_bytes=round(save.disk),
        assumptions=tuple(f.assumptions),
        unknown=(),
    )


def _host(f: Facts, save: SavePeaks) -> HostEstimate:
    parts = host_phases(f, save)
    totals = {phase: sum(found.values()) for phase, found in parts.items()}
    peak_phase = max(HOST_PHASES, key=totals.__getitem__)
    peak = whole_bytes(parts[peak_phase])
    low, high = bounds_of(f, peak)
    return HostEstimate(
        peak_bytes=peak,
        low_bytes=round(low),
        high_bytes=round(high),
        peak_phase=peak_phase,
        parts=parts,
    )


def training_points(f: Facts) -> dict[str, list[Point]]:
    """The instants of forward, backward and optimizer step, and between steps (``idle``)."""
    makers = {"fsdp2": fsdp2_points, "fsdp1": fsdp1_points}
    points = makers.get(f.ranks.backend, replicated_points)(f)
    # A loop's name for the model's outputs holds them from the loss on, whatever backward is at.
    outputs = logits_of(f, f.samples.written).outputs
    # It may hold them until the next forward pass is through, which gives the name to others.
    held = ("forward", "backward", "optimizer_step") if f.plan.loss.outputs_last else ("backward",)
    for phase in held if outputs else ():
        points[phase] = [each._replace(logits=each.logits + outputs) for each in points[phase]]
    return points


def load_point(f: Facts) -> Point:
    """What loading needs beside the parameters.

    Fabric's FSDP unshards the model for it (lightning fabric/strategies/fsdp.py
    _load_raw_module_state, summon_full_params). Packed weights lie whole on every GPU, and each
    goes when its shard is there: 58.5 GiB of Llama-4-Scout's 57 on four GPUs. Stacked experts that
    are packed on the way stay until all are sharded: 43.0 GiB of GLM-4.7-Flash's 28.7 on two
    (Axolotl examples/llama-4, examples/glm47-flash).
    """
    ranks = f.ranks
    if ranks.loads_whole:
        return Point(communication=frozen_weight_bytes(f) + trained_storage(f))
    if ranks.loads_early and not ranks.packs_whole:
        whole = frozen_weight_bytes(f) + trained_storage(f)
        return Point(communication=whole * (1 - 1 / ranks.shard))
    if not ranks.packs_whole:
        return Point()
    assert f.model is not None
    stays = bool(f.model.expert_numel) and f.plan.model.native_quant in (None, "none")
    # What is made wide for training (prepare_model_for_kbit_training) is so after loading.
    packed = facts_of(f.plan.with_values({fields.quant.prepares_kbit: False}))
    whole, kept = frozen_weight_bytes(packed), frozen_weight_bytes(f) / ranks.shard
    return Point(communication=whole if stays else max(0.0, whole - kept))


def cast_bytes(f: Facts) -> float:
    """What parameters on the GPU take there beyond what an engine leaves of them that comes after:
    DeepSpeed casts the module when it is made (runtime/engine.py _configure_distributed_model)."""
    load = f.plan.load
    if f.ranks.backend != "zero" or load.device_map != "single" or load.cast is None:
        return 0.0
    return max(0.0, BYTES_PER_ELEMENT[load.cast] - f.bytes_per.weight) * f.trained.numel


def colocated_pool(f: Facts, limits: GpuLimits) -> float:
    """The pool that a colocated engine takes at start and keeps, unless it sleeps meanwhile."""
    return 0.0 if f.plan.objective.rollout.sleep else engine_pool(f, limits)
