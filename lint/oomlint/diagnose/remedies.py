"""Which rules explain a death: those known for its pattern, and what they find in the config."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from oomlint.diagnose.scan import Sign
from oomlint.diagnose.verdict import Verdict
from oomlint.linting.engine import Diagnosis
from oomlint.linting.rule import Rule, Severity

# What kills a run in a phase, the most frequent first. Scopes and the like have keys of their own.
_KNOWN: Mapping[tuple[str, str], str] = {
    ("gpu", "load"): "replica-too-big-for-one-gpu gpu-states-over-budget model-loaded-in-fp32 "
    "device-map-auto-under-launcher rank0-gpu-skew zero3-with-quantized-base "
    "prequantized-dequantized-on-load dpo-ref-model-copy sharding-config-not-applied "
    "resume-optimizer-load-oom merge-export-memory multi-gpu-no-launcher",
    ("gpu", "forward"): "no-gradient-checkpointing logits-materialized-large-vocab "
    "micro-batch-too-large attention-quadratic-fallback long-context-over-budget seq-len-uncapped "
    "preference-pair-doubles-batch dpo-ref-model-copy vlm-pixels-uncapped "
    "packing-without-varlen-attention fsdp-wrap-missing logprob-micro-batch-too-large "
    "fsdp-gc-wrong-layer zero-stage-too-low replica-too-big-for-one-gpu no-mixed-precision",
    ("gpu", "backward"): "no-gradient-checkpointing micro-batch-too-large "
    "logits-materialized-large-vocab zero-stage-too-low gpu-states-over-budget "
    "long-context-over-budget seq-len-uncapped ds-bucket-oversized zero3-live-params-oversized "
    "replica-too-big-for-one-gpu preference-pair-doubles-batch attention-quadratic-fallback "
    "gc-reentrant-frozen-inputs fsdp-limit-all-gathers-off vlm-pixels-uncapped",
    ("gpu", "optimizer_step"): "adam-fp32-states-dominant zero-stage-too-low "
    "gpu-states-over-budget foreach-optimizer-temp-peak replica-too-big-for-one-gpu "
    "full-ft-where-adapter-needed sharding-config-not-applied model-loaded-in-fp32",
    ("gpu", "train"): "no-gradient-checkpointing micro-batch-too-large gpu-states-over-budget "
    "logits-materialized-large-vocab zero-stage-too-low replica-too-big-for-one-gpu "
    "long-context-over-budget",
    ("gpu", "evaluation"): "eval-batch-larger-than-train eval-logits-accumulate "
    "eval-generation-kv logits-materialized-large-vocab eval-train-interleave-fragmentation",
    ("gpu", "save"): "zero3-save-gpu-headroom fsdp-state-dict-on-gpu fsdp-full-state-dict-save "
    "bnb8bit-save-oom save-optimizer-states load-best-reload-oom moe-total-params",
    ("gpu", "rollout"): "vllm-colocate-utilization vllm-max-model-len-unset "
    "rl-colocated-models-over-budget logprob-micro-batch-too-large grpo-batch-semantics",
    ("gpu", "late"): "variable-length-late-peak expandable-segments-unset seq-len-uncapped "
    "eval-train-interleave-fragmentation graph-retention-leak vlm-pixels-uncapped "
    "empty-cache-abuse",
    ("gpu", "fragmented"): "expandable-segments-unset",
    ("gpu", "nccl"): "nccl-headroom",
    ("gpu", "after-evaluation"): "eval-train-interleave-fragmentation",
    ("host", "data"): "preprocess-workers-ram dataset-fully-in-ram streaming-buffer-ram",
    ("host", "load"): "ranks-times-model-host-load fsdp-every-rank-loads "
    "llama-recipes-low-cpu-fsdp zero3-init-after-load offload-host-ram-exceeded "
    "low-cpu-mem-usage-off offload-pinned-memory-tight ray-host-memory resume-optimizer-load-oom "
    "merge-export-memory",
    ("host", "train"): "offload-host-ram-exceeded dataloader-workers-ram "
    "offload-pinned-memory-tight paged-optimizer-host-ram pinned-prefetch-excess "
    "streaming-buffer-ram ray-host-memory dataset-fully-in-ram",
    ("host", "evaluation"): "eval-accumulation-host-ram dataloader-workers-ram",
    ("host", "save"): "zero3-gather16-rank0-ram fsdp-full-state-dict-save async-save-extra-copy "
    "save-optimizer-states zero-to-fp32-ram save-too-frequent load-best-reload-oom",
    ("host", "rollout"): "ray-host-memory rl-colocated-models-over-budget",
    ("host", "job"): "slurm-mem-too-small",
    ("host", "container"): "container-memory-limit-too-small",
    ("host", "pinned"): "offload-pinned-memory-tight memlock-ulimit pinned-prefetch-excess",
    ("host", "address-space"): "vm-overcommit-strict",
    ("shm", ""): "container-shm-too-small dataloader-workers-ram",
    ("disk", ""): "save-optimizer-states save-too-frequent",
    ("settings", ""): "fsdp-int8-flatten fsdp-qlora-storage-dtype-mismatch",
}


class Explanation(Struct, frozen=True, eq=False):
    """A rule that explains a death, and what it says of the config where it found something."""

    rule: type[Rule]
    diagnosis: Diagnosis | None = None


def known(verdict: Verdict) -> tuple[str, ...]:
    """Names of the rules that explain such a death, the most likely first."""
    found = (name for key in _keys(verdict) for name in _KNOWN.get(key, "").split())
    return tuple(dict.fromkeys((*_of_frame(verdict), *found)))


def _of_frame(verdict: Verdict) -> tuple[str, ...]:
    """What the frame of the death speaks for."""
    cause = verdict.cause
    return cause.frame.row.rules if cause is not None and cause.frame is not None else ()


def decided(verdict: Verdict, rules: Iterable[type[Rule]]) -> type[Rule] | None:
    """The rule that the frame of the death is about, whatever the config says."""
    cause = verdict.cause
    if cause is None or cause.frame is None or not cause.frame.row.is_the_rule:
        return None
    return next((rule for rule in rules if rule.name == cause.frame.row.rules[0]), None)


def _keys(verdict: Verdict) -> Iterable[tuple[str, str]]:
    resource, cause = verdict.resource, verdict.cause
    if cause is None or verdict.outcome not in ("memory", "killed", "disk", "settings"):
        return
    if resource is None:
        yield "settings", ""
        return
    if resource in ("shm", "disk"):
        yield resource, ""
        return
    if resource == "host" and verdict.scope in ("job", "container"):
        yield resource, verdict.scope
    yield from _keys_of_message(cause)
    if cause.amid == "evaluation" and verdict.phase != "evaluation":
        yield resource, "after-evaluation"
    if verdict.is_late:
        yield resource, "late"
    phase = verdict.phase or "train"
    in_a_step = phase in ("forward", "backward", "optimizer_step")
    yield resource, "train" if resource == "host" and in_a_step else phase
    if cause.signature.name == "cpu-allocation-failed":
        yield "host", "address-space"


def _keys_of_message(cause: Sign) -> Iterable[tuple[str, str]]:
    if cause.signature.name == "nccl-out-of-memory":
        yield "gpu", "nccl"
    if cause.signature.name == "pinned-memory":
        yield "host", "pinned"
    if cause.memory is not None and cause.memory.is_fragmented:
        yield "gpu", "fragmented"


def usual(verdict: Verdict, rules: Iterable[type[Rule]]) -> tuple[Explanation, ...]:
    """What explains such a death where the config is not at hand."""
    by_name = {rule.name: rule for rule in rules}
    return tuple(Explanation(by_name[name]) for name in known(verdict) if name in by_name)


def found(
    verdict: Verdict, diagnoses: Sequence[Diagnosis], rules: Iterable[type[Rule]]
) -> tuple[Explanation, ...]:
    """The findings in the config that agree with the death, the best agreement first; before them
    the rule that the frame of the death is about, if the config has no finding of it."""
    names = known(verdict)
    scored = [(_score(verdict, names, d), d) for d in diagnoses]
    scored = [pair for pair in scored if pair[0] > 0]
    scored.sort(key=lambda pair: -pair[0])
    first = decided(verdict, rules)
    told = tuple(Explanation(d.rule, d) for _, d in scored)
    if first is None or any(explanation.rule.name == first.name for explanation in told):
        return told
    return (Explanation(first), *told)


def _score(verdict: Verdict, names: Sequence[str], diagnosis: Diagnosis) -> float:
    """How well a finding agrees; 0 where it is about something else."""
    finding = diagnosis.finding
    is_known = finding.rule.name in names
    agrees = finding.resource is not None and finding.resource == verdict.resource
    differs = finding.resource not in (None, verdict.resource)
    if not is_known and (differs or not agrees or finding.severity < Severity.WARNING):
        return 0
    by_frame = _of_frame(verdict)
    decides = (
        len(by_frame) - by_frame.index(finding.rule.name)
        if is_known and finding.rule.name in by_frame
        else 0
    )
    rank = 1 - names.index(finding.rule.name) / len(names) if is_known else 0
    return 8 * decides + 4 * is_known + 2 * agrees - 2 * differs + finding.severity + rank
