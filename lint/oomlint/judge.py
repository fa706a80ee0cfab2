"""Is a predicted peak a problem, how sure is that, and how to say it.

Every memory rule judges by the same law, so that severities mean the same everywhere:

* the hardware is known: *error* where the peak passes what the card (or the host) gives,
  *warning* from the margin on, silence below it;
* it is unknown: *warning* where no 80 GB card would hold the run, else *info*, and only
  where a change brings the run onto a smaller card.

An error needs a prediction that rests on nothing guessed: a model that is only known by
the size in its name, a peak near the limit whose lower bound is under it, a library of unknown
version with another release of which the run fits, or long samples that the data may not have,
make it a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Literal

from oomlint.errors import CannotEdit
from oomlint.frozen import frozen
from oomlint.hardware import usual_limit
from oomlint.memory import state_bytes
from oomlint.memory.allocator import lengths_vary
from oomlint.plan.fields import f
from oomlint.rule import Confidence, Severity, gib
from oomlint.run import Run

# The share of the peak from which on a change matters, on a known card and on an unknown one.
_WORTH, _WORTH_ANYWHERE = 0.03, 0.25


@frozen
class Judgement:
    """A peak against a limit. ``limit`` is ``None`` where the hardware is unknown, and
    ``card`` is then the smallest common card that holds the run, ``None`` if none does."""

    resource: Literal["gpu", "host"]
    predicted: int
    limit: int | None
    severity: Severity | None
    confidence: Confidence
    phase: str
    card: str | None
    where: str
    """``an A100-80GB``, ``a host with 512 GiB``, or what was assumed."""
    components: Mapping[str, int | None]
    """What is alive at the peak, in bytes."""
    proviso: str = ""
    """On what reading of the files the number rests, for the reader to know."""

    @property
    def worth(self) -> float:
        """Bytes that a change must save to be worth a word."""
        return self.predicted * (_WORTH if self.limit is not None else _WORTH_ANYWHERE)

    def may_gain_by(self, *parts: str) -> bool:
        """Whether a change of nothing but these parts of the peak can save enough: what else is
        alive at that instant stays."""
        gain = sum(self.components.get(part) or 0 for part in parts)
        if self.limit is None and smallest_card(self.predicted - gain) == self.card:
            return False
        return gain >= self.worth

    @property
    def is_problem(self) -> bool:
        return self.severity is not None and self.severity >= Severity.WARNING

    @property
    def sentence(self) -> str:
        """``needs 92.3 GiB in the backward pass; an A100-80GB gives 79.1 GiB``"""
        need = f"needs {gib(self.predicted)} {_PHASES.get(self.phase, 'at the peak')}{self.proviso}"
        if self.limit is not None:
            return f"{need}; {self.where} gives {gib(self.limit)}"
        if self.resource == "host":
            return f"{need} of host RAM a node; the host is unknown"
        if self.card is None:
            return f"{need} on {self.where}: more than any common card has"
        return f"{need} on {self.where}; the smallest common card that holds it is {self.card}"


_PHASES = {
    "load": "while loading",
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "optimizer_step": "in the optimizer step",
    "train": "while training",
    "evaluation": "in evaluation",
    "save": "while saving",
}


def settled(run: Run) -> Run:
    """The run to compute with: misspelt keys mean what they say, and where nobody says how
    many GPUs there are and it matters, it is one node of eight."""
    return run.intended.placed


def judge_gpu(run: Run, *, phase: str | None = None) -> Judgement | None:
    """Judge the GPU peak (of one phase, if named); ``None`` where no number is known."""
    probe = settled(run)
    gpu = probe.estimate.gpu
    peak = gpu.peak_bytes if phase is None else gpu.phases.get(phase)
    if peak is None or gpu.peak_bytes is None:
        return None
    low = peak if gpu.low_bytes is None else int(peak * gpu.low_bytes / gpu.peak_bytes)
    limit = run.limits.gpu_bytes
    card = smallest_card(peak)
    conditions: list[str] = []
    most = usual_limit() if limit is None else limit
    rests_on_length = peak > most and _needs_long_samples(probe, phase, most)
    if rests_on_length:
        conditions.append(f"samples of {probe.plan.seq.max_len:,} tokens")
    if limit is not None:
        severity = Severity.WARNING if rests_on_length else _against(peak, low, limit, run)
        if severity is Severity.ERROR and _may_fit(probe, "gpu", phase, limit):
            severity = Severity.WARNING
        where = _a(run.hardware.gpu.name) if run.hardware else "the card"
    else:
        severity = Severity.INFO if peak <= most else Severity.WARNING
        assumed = run.plan.parallel.world is None and probe.plan.parallel.world is not None
        where = "one node of 8 GPUs" if assumed else "unknown hardware"
    return Judgement(
        "gpu",
        peak,
        limit,
        severity,
        confidence(run),
        phase or gpu.peak_phase or "",
        card,
        where,
        gpu.components,
        proviso(run, conditions),
    )


def judge_host(run: Run, *, phase: str | None = None) -> Judgement | None:
    """Judge a node's host RAM (of one phase, if named); silent where the RAM is unknown."""
    probe = settled(run)
    host = probe.estimate.host
    peak = host.peak_bytes if phase is None else host.phases.get(phase)
    if peak is None or host.peak_bytes is None:
        return None
    low = peak if host.low_bytes is None else int(peak * host.low_bytes / host.peak_bytes)
    limit = run.limits.host_bytes
    severity = None if limit is None else _against(peak, low, limit, run)
    if severity is Severity.ERROR and _may_fit(probe, "host", phase, limit or 0):
        severity = Severity.WARNING
    where = f"a host with {gib(limit)} of RAM" if limit is not None else "an unknown host"
    return Judgement(
        "host",
        peak,
        limit,
        severity,
        confidence(run),
        phase or host.peak_phase or "",
        None,
        where,
        host.components,
        proviso(run),
    )


def proviso(run: Run, conditions: Iterable[str] = ()) -> str:
    """On what condition a prediction holds, in brackets to stand behind it; mostly nothing."""
    meant = run.intended.parts.options.keys() - run.parts.options.keys()
    words = [*conditions]
    for stray in run.stray:
        row = stray.block.table.names.get(stray.nearest[0]) if stray.nearest else None
        if row is not None and row.field in meant:
            words.append(f"{stray.path} read as {stray.nearest[0]}")
    if sharding_is_open(run):
        words.append("a whole copy on each GPU, unless what launches it shards the model")
    return f" (with {', '.join(words)})" if words else ""


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


def _against(peak: int, low: int, limit: int, run: Run) -> Severity | None:
    if peak > limit:
        # A prediction rarely errs by a quarter, even where its own lower bound is wider.
        certain = low > limit or peak > 1.25 * limit
        known = confidence(run) != "low"
        return Severity.ERROR if certain and known else Severity.WARNING
    if peak > run.margin * limit:
        return Severity.WARNING
    return None


def _may_fit(run: Run, resource: Literal["gpu", "host"], phase: str | None, limit: int) -> bool:
    """Whether it fits with another release of a library that nobody pins."""
    for _, other in run.alternatives:
        device = getattr(other.estimate, resource)
        peak = device.peak_bytes if phase is None else device.phases.get(phase)
        if peak is not None and peak <= limit:
            return True
    return False


# A quarter of the usual 4,096 tokens: of the 32 data sets whose lengths ms-swift's tables give
# (benchmarks/accuracy/lengths.py has them and their source), 14 have no sample above 1,024;
# alpaca-gpt4-data-en's longest of 52,002 has 607. Limits are often set far above.
_SHORT_SAMPLES = 4
_SHORT_SAMPLE = 1024


def _needs_long_samples(run: Run, phase: str | None, limit: int) -> bool:
    """Whether it fits if no sample has more than a quarter of the tokens that it may have, or
    1,024."""
    seq, batch = run.plan.seq, run.plan.batch
    if seq.max_len is None:
        return False
    short = min(seq.max_len // _SHORT_SAMPLES, _SHORT_SAMPLE)
    shorter = {f.seq.max_len: short}
    if batch.max_tokens_per_gpu:
        # All samples of a step together may be fewer tokens than one micro batch may have.
        tokens = (batch.micro or 0) * (batch.grad_accum or 0) * short
        if not 0 < tokens < batch.max_tokens_per_gpu:
            return False
        shorter = {f.batch.max_tokens_per_gpu: tokens, f.batch.grad_accum: 1}
    # Samples that are joined without padding make a batch as long as they are together.
    elif seq.packing != "varlen" and not lengths_vary(run.plan):
        return False
    device = run.assuming(shorter).estimate.gpu
    peak = device.peak_bytes if phase is None else device.phases.get(phase)
    return peak is not None and peak <= limit


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
    return are_joined and samples > 1 and _needs_long_samples(probe, None, limit)


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


def smallest_card(peak: int) -> str | None:
    """The smallest common card whose usable memory holds a peak with room to spare."""
    return next((name for name, usable in _common_cards() if usable * 0.95 >= peak), None)


@cache
def _common_cards() -> tuple[tuple[str, int], ...]:
    """Names and usable bytes, the smallest first."""
    from oomlint.hardware import common_cards, usable_bytes

    return tuple((gpu.name, usable_bytes(gpu)) for gpu in common_cards())


def card_holds(name: str, peak: int) -> bool:
    return peak <= _usable(name)


@cache
def _usable(name: str) -> int:
    from oomlint.hardware import parse_hardware, usable_bytes

    return usable_bytes(parse_hardware(name).gpu)


@frozen
class Relief:
    """What a change brings: the judgement now and after, and whether it is worth a word."""

    before: Judgement
    after: Judgement
    changes: Mapping[Any, Any]

    @property
    def saved(self) -> int:
        return self.before.predicted - self.after.predicted

    @property
    def suffices(self) -> bool:
        """The problem is gone afterwards (or a smaller common card holds the run)."""
        if self.before.limit is not None:
            return self.after.predicted <= self.before.limit
        return self.after.card is not None and self.after.card != self.before.card

    @property
    def severity(self) -> Severity | None:
        """How bad it is to leave things as they are; ``None`` where it is no matter."""
        before, after = self.before, self.after
        if before.limit is not None or before.severity is None:
            return before.severity
        if not self.suffices:
            return None
        onto_usual = after.predicted <= usual_limit()
        if before.is_problem and onto_usual and before.confidence != "low":
            return Severity.WARNING
        return Severity.INFO

    @property
    def is_worthwhile(self) -> bool:
        """It lowers the peak by a share that matters, and there is something to solve."""
        return self.severity is not None and self.saved >= self.before.worth

    @property
    def sentence(self) -> str:
        """``the peak falls from 92.3 GiB to 61.0 GiB``, and whether that is enough."""
        text = f"the peak falls from {gib(self.before.predicted)} to {gib(self.after.predicted)}"
        limit = self.before.limit
        if limit is not None and self.after.predicted > limit:
            return f"{text}, still {gib(self.after.predicted - limit)} too much"
        return text


def relief(run: Run, changes: Mapping[Any, Any], *, resource: str = "gpu") -> Relief | None:
    """What ``changes`` bring, or ``None`` where the framework cannot say them or no number is known."""
    judge = judge_host if resource == "host" else judge_gpu
    before = judge(run)
    try:
        after = judge(run.what_if(changes))
    except CannotEdit:
        return None
    if before is None or after is None:
        return None
    return Relief(before, after, changes)


def _a(name: str) -> str:
    """The indefinite article that a GPU's name takes when read aloud."""
    return f"{'an' if name[0] in 'AFHILMNORSX8' and name[:3] != 'Max' else 'a'} {name}"
