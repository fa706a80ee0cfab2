"""What a need at risk is made of: its largest parts, where the files decide on each, and what lowers it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from oomlint.documents.text import Location
from oomlint.judgement.doubts import settled
from oomlint.judgement.peak import Peak
from oomlint.plan import Plan
from oomlint.plan.fields import f
from oomlint.runs.run import Run

# A part below this share of the need explains nothing.
_LEAST_SHARE = 0.08


class Cause(Struct, frozen=True):
    """One part of a need at risk: ``size`` bytes of ``component``, the rule whose business it is, the
    place that decides on it, and what lowers it (``None``: nothing that a config says)."""

    component: str
    size: int
    code: str
    name: str
    at: Location
    line: int | None
    remedy: str | None

    @property
    def words(self) -> str:
        """``optimizer states``"""
        return self.component.replace("_", " ")


class _Part(Struct, frozen=True):
    """Of a component: the rule that speaks of it, the fields that decide on it, the first that a file
    says, and its remedy by the plan."""

    code: str
    name: str
    fields: tuple[Any, ...]
    remedy: Callable[[Plan], str | None]


def causes_of(run: Run, peak: Peak) -> tuple[Cause, ...]:
    """The parts of a peak, the largest first; what is too small to matter is left out."""
    return tuple(sorted(_found(run, peak), key=lambda cause: -cause.size))


def _found(run: Run, peak: Peak) -> Iterator[Cause]:
    probe = settled(run)
    device = probe.estimate.of(peak.resource)
    for component, size in device.by_phase[peak.phase].items():
        part = _part(probe.plan, peak.resource, component)
        if part is None or not size or size < _LEAST_SHARE * peak.predicted:
            continue
        at = run.location(*part.fields)
        remedy = part.remedy(probe.plan)
        yield Cause(component, size, part.code, part.name, at, run.line_of(at), remedy)


def _is_copied(plan: Plan) -> bool:
    """Whether each of several GPUs keeps a whole copy of the weights."""
    parallel = plan.parallel
    if (parallel.world or 1) < 2:
        return False
    return parallel.backend in (None, "ddp", "dp") or (
        parallel.backend == "zero" and parallel.zero.stage in (0, 1, 2)
    )


def _weights(plan: Plan) -> str | None:
    if _is_copied(plan):
        return "share the weights among the GPUs: ZeRO stage 3, or FSDP"
    is_fsdp = plan.parallel.backend in ("fsdp1", "fsdp2")
    if plan.quant.method not in (None, "none") and not is_fsdp:
        # Of a quantized base FSDP alone is documented to keep it in host RAM (PEFT 0.21
        # examples/sft/configs/fsdp_config_qlora.yaml fsdp_offload_params).
        return None
    if plan.trainable.method in ("lora", "qlora"):
        return "keep the frozen base in 4 bit"
    return None if plan.offload.params == "cpu" else "keep the weights in host RAM"


def _states(plan: Plan) -> str | None:
    if plan.offload.optimizer == "cpu":
        return None
    if plan.trainable.method in ("full", "freeze", None):
        return "keep the optimizer in host RAM, its states in 8 bit, or train an adapter"
    return "train fewer parameters"


def _activations(plan: Plan) -> str | None:
    if plan.checkpointing.mode in (None, "none"):
        return "gradient checkpointing"
    if (plan.batch.micro or 1) > 1:
        return "a smaller micro batch with more accumulation"
    return "shorter samples"


def _logits(plan: Plan) -> str | None:
    if plan.loss.logits_materialised == "full":
        return "a fused loss, or fewer tokens a micro batch"
    return "fewer tokens a micro batch"


def _smaller_pool(plan: Plan) -> str | None:
    if plan.objective.rollout.sleep:
        return "a smaller share of the card for the engine"
    return "let the engine sleep while the model trains, or give it a smaller share of the card"


def _nothing(_plan: Plan) -> str | None:
    return None


def _fewer_processes(_plan: Plan) -> str | None:
    return "load the model once a node, or on the meta device"


def _less_offloading(plan: Plan) -> str | None:
    if plan.offload.params == "cpu":
        return "offload the optimizer alone"
    return "keep the optimizer's states in 8 bit, or on the GPUs"


_COPIED = _Part(
    "OOM302",
    "replica-too-big-for-one-gpu",
    (f.parallel.fsdp.strategy, f.parallel.backend, f.quant.method, f.model.id),
    _weights,
)
_COPIED_BY_ZERO = _Part(
    "OOM301", "zero-stage-too-low", (f.parallel.zero.stage, f.model.id), _weights
)
_GPU: Mapping[str, _Part] = {
    "parameters": _Part(
        "OOM105",
        "gpu-states-over-budget",
        (f.quant.method, f.model.id, f.parallel.zero.stage, f.parallel.fsdp.strategy),
        _weights,
    ),
    "gradients": _Part(
        "OOM105",
        "gpu-states-over-budget",
        (f.trainable.method, f.parallel.zero.stage, f.parallel.fsdp.strategy, f.model.id),
        _states,
    ),
    "optimizer_states": _Part(
        "OOM201",
        "adam-fp32-states-dominant",
        (f.optimizer.kind, f.parallel.zero.stage, f.trainable.method, f.model.id),
        _states,
    ),
    "activations": _Part(
        "OOM102",
        "micro-batch-too-large",
        (f.batch.micro, f.seq.max_len, f.checkpointing.mode),
        _activations,
    ),
    "logits": _Part(
        "OOM103",
        "logits-materialized-large-vocab",
        (f.batch.micro, f.seq.max_len, f.loss.logits_materialised),
        _logits,
    ),
    "communication": _Part(
        "OOM306",
        "ds-bucket-oversized",
        (
            f.parallel.zero.allgather_bucket_elems,
            f.parallel.zero.reduce_bucket_elems,
            f.parallel.zero.stage,
            f.parallel.fsdp.wrap,
        ),
        _nothing,
    ),
    "engine": _Part(
        "OOM606",
        "vllm-colocate-utilization",
        (f.objective.rollout.gpu_mem_util, f.objective.rollout.engine),
        _smaller_pool,
    ),
    "temporary": _Part(
        "OOM206", "foreach-optimizer-temp-peak", (f.optimizer.kind, f.save.contents), _nothing
    ),
}
_UNCHECKPOINTED = _Part(
    "OOM101",
    "no-gradient-checkpointing",
    (f.checkpointing.mode, f.batch.micro, f.seq.max_len),
    _activations,
)

_HOST: Mapping[str, _Part] = {
    "model_copies": _Part(
        "OOM404",
        "ranks-times-model-host-load",
        (f.load.low_cpu_mem, f.parallel.backend, f.model.id),
        _fewer_processes,
    ),
    "checkpoint": _Part("OOM512", "resume-optimizer-load-oom", (f.load.resume,), _nothing),
    "offloaded_states": _Part(
        "OOM401",
        "offload-host-ram-exceeded",
        (f.offload.optimizer, f.offload.params),
        _less_offloading,
    ),
    "pinned_rounding": _Part(
        "OOM406",
        "offload-pinned-memory-tight",
        (f.offload.pin_memory, f.offload.optimizer),
        _less_offloading,
    ),
    "gather": _Part(
        "OOM504",
        "zero3-gather16-rank0-ram",
        (f.parallel.zero.gather16_on_save, f.parallel.fsdp.strategy),
        _nothing,
    ),
    "logits": _Part("OOM609", "eval-accumulation-host-ram", (f.eval.accumulation_steps,), _nothing),
    "dataloader": _Part("OOM408", "dataloader-workers-ram", (f.data.workers,), _nothing),
    "dataset": _Part("OOM410", "dataset-fully-in-ram", (f.data.workers,), _nothing),
}


def _part(plan: Plan, resource: str, component: str) -> _Part | None:
    """The part that a component is in this run."""
    if resource == "host":
        return _HOST.get(component)
    if component == "parameters" and _is_copied(plan):
        return _COPIED_BY_ZERO if plan.parallel.backend == "zero" else _COPIED
    if component == "activations" and plan.checkpointing.mode == "none":
        return _UNCHECKPOINTED
    return _GPU.get(component)
