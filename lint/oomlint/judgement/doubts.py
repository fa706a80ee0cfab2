"""What else a run may be than what its prediction takes it for.

A spread around the prediction (:mod:`oomlint.judgement.risk_model`) covers what differs a little. Some of what is
open makes another run of it: the launcher may shard the model, a library that nobody pins may be older, no sample
may be as long as is allowed, a value that nobody gives may be another. Each is a :class:`Doubt`: a second
estimate with a weight. It works both ways: what else the run may be calms or alarms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from oomlint.judgement.evidence import assumed_otherwise
from oomlint.judgement.launch import SHARDED, sharding_is_open
from oomlint.judgement.lengths import otherwise_long
from oomlint.judgement.severity import Confidence
from oomlint.memory import Estimate
from oomlint.models.architectures import lists_experts, stacks_experts_early
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.plan.library_changes import LibraryChange
from oomlint.runs.run import Run

# How likely it is that a run is the other one. The reports of runs that died or ran (``python -m
# benchmarks.threads.fit``) say day and launch, so that they tell nothing of it: these are our judgement.
_SHARDED = 0.5
_OTHER_RELEASE = 0.3
_OTHER_VALUE = 0.3
# How many samples an evaluation set has of which nobody says it, and how likely. Of twenty that many
# use (by their cards on the Hub), WNLI 71, RTE 277, MRPC 408, SAMSum 818, SST-2 872, CoLA 1,043 and GSM8K
# 1,319 have 690 on the mean, STS-B 1,500, MMLU 1,531, WMT16 ro-en 1,999, WikiText-2 3,760 and QNLI 5,463
# some 2,900, MNLI 9,815, HellaSwag 10,042, SQuAD 10,570, XSum 11,332, SQuAD 2 11,873, CNN/DailyMail
# 13,368, IMDB 25,000 and QQP 40,430 some 16,600.
_EVALUATED = ((690, 7 / 20), (2_900, 5 / 20), (16_600, 8 / 20))
# Of all doubts together: something is left to the prediction itself.
_MOST = 0.9


class Doubt(Struct, frozen=True):
    """What a run may be besides, and the probability that it is. ``words`` go on after an "if":
    ``loading dtype is fp32``."""

    weight: float
    estimate: Estimate
    words: str
    is_of_lengths: bool = False
    """Whether it is that samples are shorter than they may be."""


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
    if run.is_measured:
        return
    if sharding_is_open(run):
        words = "what launches it shards the model"
        yield Doubt(_SHARDED, run.assuming(SHARDED).estimate, words)
    for weight, shorter, words in otherwise_long(run):
        yield Doubt(weight, shorter.estimate, words, is_of_lengths=True)
    if _keeps_unknown_logits(run):
        for samples, weight in _EVALUATED:
            words = f"it evaluates {samples:,} samples"
            yield Doubt(weight, run.assuming({f.eval.samples: samples}).estimate, words)
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


def _across(run: Run, change: LibraryChange) -> str:
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


def _keeps_unknown_logits(run: Run) -> bool:
    """Whether evaluation keeps the logits of a set of which nobody says how large it is; of one that is cut to what
    only running tells the sizes of others say nothing, nor do they where it is not known that logits are kept."""
    settings = run.plan.eval
    if Level.UNREAD in (run.level(f.eval.samples), run.level(f.eval.keeps_logits)):
        return False
    is_evaluated = settings.enabled is not False and settings.strategy != "no"
    return bool(settings.keeps_logits) and is_evaluated and settings.samples is None


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
        and not stacks_experts_early(run.plan.model.arch)
        and not lists_experts(run.plan.model.arch)
        and "transformers" not in run.plan.versions
    )
