"""What else a run may be than what its prediction takes it for.

A spread around the prediction (:mod:`oomlint.judgement.law`) covers what differs a little. Some of what is
open makes another run of it: the launcher may shard the model, a library that nobody pins may be older, no sample
may be as long as is allowed, a value that nobody gives may be another. Each is a :class:`Doubt`: a second
estimate with a weight. It works both ways: what else the run may be calms or alarms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from oomlint.changes import Change
from oomlint.hardware import usual_limit
from oomlint.judgement.evidence import assumed_otherwise
from oomlint.judgement.law import holds
from oomlint.judgement.severity import Confidence
from oomlint.memory import Estimate, state_bytes
from oomlint.memory.allocator import lengths_vary
from oomlint.plan.fields import ZERO_3, f
from oomlint.run import Run

# How likely it is that a run is the other one. Reports of runs that died or ran (``python -m
# benchmarks.threads.fit``) would have ``_SHORT`` at 0: those whose data are short seldom write one. In public
# repositories whose authors trained with what stands there, 11 of 22 warnings that rested on samples as long as is allowed
# were false (benchmarks/strangers); 0.25 is between, and keeps data that nobody saw from making an
# error. The reports say day and launch, so that they tell nothing of the others: these are our judgement.
_SHARDED = 0.5
_OTHER_RELEASE = 0.3
_SHORT = 0.25
_OTHER_VALUE = 0.3
# So many samples that are joined without padding are near their mean: verl's tuning scripts, with
# micro batches of 16 to 128 completions, ran on 80 GB (verl 0.5 docs/perf/device_tuning.rst,
# examples/tuning/*/*grpo*), though with all of them at the limit they would take 81 to 135 GiB.
_MANY_SAMPLES = 16
# How full so many samples are, as a share of the tokens that they may have, and how likely. Of the 30
# data sets with samples of different lengths in ms-swift's tables (benchmarks/accuracy/lengths.py) the
# mean sample has less than an eighth of the longest one's tokens in 9, 0.19 of it on average in 10, 0.35
# in 9 and 0.54 in 2.
_FILLED = ((0.125, 9 / 30), (0.2, 10 / 30), (0.375, 9 / 30), (0.55, 2 / 30))
# Of all doubts together: something is left to the prediction itself.
_MOST = 0.9


class Doubt(Struct, frozen=True):
    """What a run may be besides, and the probability that it is. ``words`` go on after an "if":
    ``load.dtype is fp32``."""

    weight: float
    estimate: Estimate
    words: str


def settled(run: Run) -> Run:
    """The run to compute with: misspelt keys mean what they say, and where nobody says how
    many GPUs there are and it matters, it is one node of eight."""
    return run.intended.placed


def doubts(run: Run) -> tuple[Doubt, ...]:
    """All that a run with known hardware may be besides; the weights add up to less than one."""
    known: tuple[Doubt, ...] | None = run.remembered.get("doubts")
    if known is None:
        known = run.remembered["doubts"] = tuple(_scaled(_found(run)))
    return known


def _found(run: Run) -> Iterator[Doubt]:
    if sharding_is_open(run):
        sharded = {f.parallel.backend: "zero", **ZERO_3}
        words = "what launches it shards the model"
        yield Doubt(_SHARDED, run.assuming(sharded).estimate, words)
    if _joins_many(run):
        for share, weight in _FILLED:
            words = f"samples have {share:.0%} of the tokens that they may have"
            yield Doubt(weight, _filled(run, share).estimate, words)
    else:
        shorter = short_samples(run)
        if shorter is not None:
            yield Doubt(_SHORT, shorter.estimate, f"no sample has more than {_short(run):,} tokens")
    others = run.alternatives
    for changes, other in others:
        weight = _OTHER_RELEASE / len(others)
        yield Doubt(weight, other.estimate, _across(run, changes[0]))
    # What a value is assumed to be may be what another release takes, or follow from another that is
    # assumed: one doubt, not two.
    told = [other.estimate for _, other in others]
    for choices in assumed_otherwise(run):
        for words, estimate in choices:
            if not any(_are_alike(estimate, other) for other in told):
                yield Doubt(_OTHER_VALUE / len(choices), estimate, words)
        told += (estimate for _, estimate in choices)


def _across(run: Run, change: Change) -> str:
    """``transformers is older than 4.46``, the other side of an open change."""
    if run.open[change]:
        return f"{change.package} is older than {change.release}"
    return f"{change.package} is {change.release} or newer"


def _are_alike(one: Estimate, other: Estimate) -> bool:
    """Whether two estimates say the same of the GPU, within a fiftieth."""
    here, there = one.gpu.peak_bytes, other.gpu.peak_bytes
    return here is not None and there is not None and abs(here - there) <= 0.02 * here


def _scaled(found: Iterable[Doubt]) -> Iterator[Doubt]:
    found = tuple(found)
    total = sum(doubt.weight for doubt in found)
    scale = min(1.0, _MOST / total) if total else 1.0
    for doubt in found:
        yield replace(doubt, weight=doubt.weight * scale)


# A quarter of the usual 4,096 tokens: of the 32 data sets whose lengths ms-swift's tables give
# (benchmarks/accuracy/lengths.py has them and their source), 14 have no sample above 1,024;
# alpaca-gpt4-data-en's longest of 52,002 has 607. Limits are often set far above.
_SHORT_SAMPLES = 4
_SHORT_SAMPLE = 1024


def short_samples(run: Run) -> Run | None:
    """The run with no sample of more than a quarter of the tokens that it may have, or 1,024;
    ``None`` where that cannot be, since batches are as long whatever the samples are."""
    seq, batch = run.plan.seq, run.plan.batch
    if seq.max_len is None:
        return None
    short = _short(run)
    shorter: dict[Any, Any] = {f.seq.max_len: short}
    if batch.max_tokens_per_gpu:
        # All samples of a step together may be fewer tokens than one micro batch may have.
        tokens = (batch.micro or 0) * (batch.grad_accum or 0) * short
        if not 0 < tokens < batch.max_tokens_per_gpu:
            return None
        shorter = {f.batch.max_tokens_per_gpu: tokens, f.batch.grad_accum: 1}
    # Samples that are joined without padding make a batch as long as they are together.
    elif seq.packing != "varlen" and not lengths_vary(run.plan):
        return None
    return run.assuming(shorter)


def _short(run: Run) -> int:
    return min((run.plan.seq.max_len or 0) // _SHORT_SAMPLES, _SHORT_SAMPLE)


def _joins_many(run: Run) -> bool:
    """Whether a micro batch joins so many samples without padding that their mean decides."""
    batch, seq = run.plan.batch, run.plan.seq
    are_joined = seq.packing == "varlen" or batch.max_tokens_per_gpu is not None
    return are_joined and (batch.micro or 1) >= _MANY_SAMPLES and seq.max_len is not None


def _filled(run: Run, share: float) -> Run:
    """The run with samples that have a share of the tokens that they may have."""
    plan = run.plan
    filled: dict[Any, Any] = {f.seq.max_len: int((plan.seq.max_len or 0) * share)}
    for field, most in (
        (f.batch.max_tokens_per_gpu, plan.batch.max_tokens_per_gpu),
        (f.objective.rollout.scored_tokens, plan.objective.rollout.scored_tokens),
    ):
        if most is not None:
            filled[field] = int(most * share)
    return run.assuming(filled)


def needs_all_samples_long(run: Run) -> bool:
    """Whether the GPU has room unless several samples of one batch are long.

    Padded to its longest sample, a batch is as long as the limit allows as soon as one sample
    is; joined without padding it is as long as its samples are together.
    """
    probe = settled(run)
    seq, batch = probe.plan.seq, probe.plan.batch
    limit = run.limits.gpu_bytes
    limit = usual_limit() if limit is None else limit
    samples = (batch.micro or 1) * (batch.grad_accum or 1 if batch.max_tokens_per_gpu else 1)
    is_packed = seq.packing not in (None, "none")
    are_joined = (
        seq.packing == "varlen"
        or batch.max_tokens_per_gpu is not None
        or (seq.pad == "none" and not is_packed)
    )
    return are_joined and samples > 1 and fits_with_short_samples(probe, None, limit)


def fits_with_short_samples(run: Run, phase: str | None, limit: int) -> bool:
    """Whether the GPU holds a run without long samples."""
    shorter = short_samples(run)
    return shorter is not None and holds(shorter.estimate, "gpu", limit, phase)


def sharding_is_open(run: Run) -> bool:
    """Whether a launcher or an Accelerate config that is not at hand may shard the model.

    Adapters are mostly trained on whole copies, so that it is open only where there is no room for
    one.
    """
    return (
        run.dialect.launcher_may_shard
        and run.plan.parallel.backend in (None, "ddp")
        and not any(claim.is_launched for claim in run.claims)
        and (run.plan.trainable.method in ("full", "freeze", None) or _is_too_large_to_copy(run))
    )


def _is_too_large_to_copy(run: Run) -> bool:
    """Whether a GPU (an H100-80GB where nobody says which) cannot hold the model's states."""
    states, limit = state_bytes(settled(run).plan), run.limits.gpu_bytes
    limit = usual_limit() if limit is None else limit
    return states is not None and states.total > limit


def confidence(run: Run) -> Confidence:
    """How much of the prediction rests on facts."""
    model = run.model
    if model is None or model.confidence == "guessed" or sharding_is_open(run):
        return "low"
    if run.missing or _experts_are_open(run):
        return "low"
    if (
        run.placed is not run
        or run.estimate.assumptions
        or model.confidence != "verified"
        or run.unreadable
    ):
        return "medium"
    return "high"


def _experts_are_open(run: Run) -> bool:
    """Whether bitsandbytes may or may not have quantized a model's experts.

    It replaces ``nn.Linear`` modules: transformers 5 stacks most models' experts in one
    parameter, which stays in 16 bit, while transformers 4 and many models with code of their own
    have a linear layer for each expert. The difference is a factor of three to four. Which layers
    beside the experts a NVFP4 checkpoint packs, and whether its kernels unpack them whole, differs
    from checkpoint to checkpoint.
    """
    dims, quant = run.plan.model.dims, run.plan.quant
    if quant.method == "nvfp4":
        return dims is not None and dims.moe is not None
    return (
        quant.method in ("bnb4", "bnb8")
        and dims is not None
        and dims.moe is not None
        and not quant.quantises_moe_experts
        and "transformers" not in run.plan.versions
    )
