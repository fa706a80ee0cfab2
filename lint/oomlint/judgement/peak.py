"""A predicted peak against a limit: how likely it passes it, and how to say it.

Every memory rule judges by the same law, so that severities mean the same everywhere:

* the hardware is known: by the risk that the peak passes what the card (or the host) gives
  (:mod:`oomlint.judgement.severity`), silence where it fits;
* it is unknown: *warning* where no 80 GB card would hold the run, else *info*, and only
  where a change brings the run onto a smaller card.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from oomlint.hardware import usual_limit
from oomlint.judgement.batches import lives_with_least_batch
from oomlint.judgement.cards import smallest_card
from oomlint.judgement.doubts import confidence, doubts, settled
from oomlint.judgement.evidence import rests_on, weakest_of_claims
from oomlint.judgement.launch import sharding_is_open, why_not_to_start
from oomlint.judgement.lengths import (
    as_short_as_any,
    fits_with_short_samples,
    too_many_each,
)
from oomlint.judgement.measured import measured_words, starts_from_measured
from oomlint.judgement.risk_model import has_room, holds, risk_in, risk_of_need
from oomlint.judgement.severity import EVEN, TIGHT, Confidence, Severity, bound, severity_at
from oomlint.judgement.words import when
from oomlint.memory import DeviceEstimate, HostEstimate
from oomlint.memory.lengths import longest_sample
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib

# The share of the peak from which on a change matters, on a known card and on an unknown one.
_WORTH, _WORTH_ANYWHERE = 0.03, 0.25

# A need that is less by so much, if the run is another than it is taken for, is another number to its reader.
_APART = 0.1

# The one report of a death by a request for one block beside what training keeps tells of so much
# (https://github.com/hiyouga/LLaMA-Factory/issues/7532); smaller ones found room among what training had freed
# wherever somebody looked (benchmarks/strangers).
_SEEN_TO_FAIL = 3.4 * 2**30

# How far a project is believed that says on which machine a script ran (Laplace's rule of succession): of the
# seven such scripts that rather died by the prediction, the cards as large as those that are named, none was found to
# die (benchmarks/strangers: six of verl's docs/perf/device_tuning.rst, one of examples/sglang_multiturn).
_BELIEVED = 8 / 9


class Otherwise(Struct, frozen=True):
    """What the need is if the run is another than it is taken for; ``words`` go on after an "if"."""

    need: int
    words: str


class Peak(Struct, frozen=True):
    """A peak against a limit. ``limit`` and ``risk`` are ``None`` where the hardware is unknown, and
    ``card`` is then the smallest common card that holds the run, ``None`` if none does."""

    resource: Literal["gpu", "host"]
    predicted: int
    limit: int | None
    risk: float | None
    severity: Severity | None
    confidence: Confidence
    phase: str
    card: str | None
    where: str
    """``an A100-80GB``, ``a host with 512 GiB``, or what was assumed."""
    components: Mapping[str, int | None]
    """What is alive at the peak, in bytes."""
    holds: bool = False
    """Whether the run rather lives than dies by the prediction itself, what else it may be aside; ``False``
    where the hardware is unknown."""
    conditions: tuple[str, ...] = ()
    """On what reading of the files the number rests, for the reader to know."""
    upper: int | None = None
    """The upper bound of what is predicted, in bytes."""
    otherwise: Otherwise | None = None
    """Where the prediction itself fits: the reading of the run by which it is at risk."""
    least: Otherwise | None = None
    """Where the run needs more than there is whatever it is taken for: the reading by which it needs least, if that is
    much less than what is predicted."""
    is_up_to_data: bool = False
    """Whether no file says how long samples are, and it would rather live with short ones."""
    is_up_to_code: bool = False
    """Whether a program of the project's own makes the batches, and it would rather live with the least ones."""
    is_problem: bool = False
    """Whether the run rather dies of it than not, and that hangs neither on its data, nor on how its program makes
    batches, nor on what was not read; on unknown hardware, whether it is worth a warning."""

    @property
    def urgency(self) -> Severity | None:
        """How bad it is to leave things as they are; ``None`` where no change is worth a word. On a known card one is
        where the run needs more than there is, or rather dies than lives: that it is near the limit is said of the run,
        not of each thing that takes part of it."""
        fits = self.limit is not None and self.holds and not self.overflows
        return None if fits else self.severity

    @property
    def worth(self) -> float:
        """Bytes that a change must save to be worth a word."""
        return self.predicted * (_WORTH if self.limit is not None else _WORTH_ANYWHERE)

    def may_gain_by(self, *parts: str) -> bool:
        """Whether a change of nothing but these parts of the peak can save enough: what else is
        alive at that instant stays."""
        gain = self.share_of(parts)
        if self.limit is None and smallest_card(self.predicted - gain) == self.card:
            return False
        return gain >= self.worth

    def share_of(self, parts: Iterable[str]) -> int:
        """Bytes of the peak that these components take together."""
        return sum(self.components.get(part) or 0 for part in parts)

    @property
    def overflows(self) -> bool:
        """Whether more is needed than there is, however sure that is."""
        return self.limit is not None and self.predicted > self.limit

    @property
    def proviso(self) -> str:
        """``conditions`` in brackets, to stand behind the number; mostly nothing."""
        return f" (with {', '.join(self.conditions)})" if self.conditions else ""

    @property
    def context(self) -> tuple[str, ...]:
        """What a finding about one part of the need has to say of all of it, as details: the need itself
        where no limit is known, for then no headline says it, and on what it rests."""
        rests = tuple(reckoned_with(each) for each in self.conditions)
        if self.limit is not None:
            return rests
        return (f"the run {self._need}{self._place}", self._holder, *rests)

    @property
    def sentence(self) -> str:
        """``needs 92.3 GiB in the backward pass; an A100-80GB gives 79.1 GiB``"""
        return f"{self._need}{self.proviso}{self._place}; {self._holder}"

    @property
    def _need(self) -> str:
        return f"needs {gib(self.predicted)} {when(self.phase)}"

    @property
    def _place(self) -> str:
        """Where that is needed, of which nobody says how much it has."""
        if self.limit is not None:
            return ""
        return " of host RAM a node" if self.resource == "host" else f" on {self.where}"

    @property
    def _holder(self) -> str:
        """What there is, or what would be enough."""
        if self.limit is not None:
            return f"{self.where} gives {gib(self.limit)}"
        if self.resource == "host":
            return "the host is unknown"
        if self.card is None:
            return "that is more than any common card has"
        return f"the smallest common card that holds it is {self.card}"


def predicted_peak(run: Run, resource: Literal["gpu", "host"]) -> int | None:
    """The bytes that a peak would be judged by; ``None`` where no number is known."""
    estimate = settled(run).estimate
    return estimate.host.peak_bytes if resource == "host" else estimate.gpu.peak_bytes


def holds_as_predicted(run: Run, resource: Literal["gpu", "host"]) -> bool:
    """What the peak of a run says of itself as ``holds``, without what else the run may be."""
    limit = run.limits.of(resource)
    return limit is not None and holds(settled(run).estimate, resource, limit)


def judge_gpu(run: Run, *, phase: str | None = None) -> Peak | None:
    """Judge the GPU peak (of one phase, if named), once; ``None`` where no number is known."""
    key = f"peak of gpu {phase}"
    if key not in run.remembered:
        run.remembered[key] = _judge_gpu(run, phase)
    known: Peak | None = run.remembered[key]
    return known


def _judge_gpu(run: Run, phase: str | None) -> Peak | None:
    probe = settled(run)
    gpu = probe.estimate.gpu
    peak = gpu.peak_bytes if phase is None else gpu.phases.get(phase)
    if peak is None or gpu.peak_bytes is None:
        return None
    limit = run.limits.gpu_bytes
    conditions: list[str] = []
    most = usual_limit() if limit is None else limit
    fits = holds(probe.estimate, "gpu", most, phase)
    if not fits and fits_with_short_samples(probe, phase, most):
        conditions.append(_lengths_in_words(probe, phase, most))
    risk = risk_of(run.intended, "gpu", phase)
    otherwise = _otherwise(run.intended, "gpu", phase)
    least = _least(run.intended, "gpu", phase, peak)
    severity = None if risk is None else severity_at(risk)
    is_weighty = peak > most if risk is None else severity is not None
    is_up_to_data = is_weighty and lives_with_short_samples(probe, most, phase)
    is_up_to_code = risk is not None and is_weighty and lives_with_least_batch(probe, most, phase)
    if risk is not None:
        is_open = severity is None or is_up_to_data or is_up_to_code
        worst = Severity.INFO if is_open else most_severe(run, "gpu")
        is_problem = risk >= EVEN and worst > Severity.INFO
        severity = None if severity is None else min(severity, worst)
        where = _a(run.hardware.gpu.name) if run.hardware else "the card"
    else:
        is_problem = peak > most and not is_up_to_data
        severity = Severity.WARNING if is_problem else Severity.INFO
        assumed = run.plan.parallel.world is None and probe.plan.parallel.world is not None
        where = "one node of 8 GPUs" if assumed else "unknown hardware"
    return Peak(
        resource="gpu",
        predicted=peak,
        limit=limit,
        risk=risk,
        severity=severity,
        confidence=confidence(run),
        phase=phase or gpu.peak_phase or "",
        card=smallest_card(peak),
        where=where,
        components=gpu.components,
        holds=limit is not None and fits,
        conditions=(*conditions, *conditions_of(run)),
        upper=_upper(gpu, peak),
        otherwise=otherwise,
        least=least,
        is_up_to_data=is_up_to_data,
        is_up_to_code=is_up_to_code,
        is_problem=is_problem,
    )


def _lengths_in_words(run: Run, phase: str | None, limit: int) -> str:
    """With samples how long a need is predicted that shorter ones would not have."""
    known = "" if run.plan.seq.longest is None else ", the longest of its data"
    words = f"samples of {longest_sample(run.plan):,} tokens{known}"
    mean = too_many_each(run, phase, limit)
    if mean is None:
        return words
    return f"{run.plan.batch.micro} {words} at once, where some {mean:,} each are too many"


def judge_host(run: Run, *, phase: str | None = None) -> Peak | None:
    """Judge a node's host RAM (of one phase, if named); silent where the RAM is unknown."""
    host = settled(run).estimate.host
    peak = host.peak_bytes if phase is None else host.phases.get(phase)
    if peak is None or host.peak_bytes is None:
        return None
    limit = run.limits.host_bytes
    risk = risk_of(run.intended, "host", phase)
    otherwise = _otherwise(run.intended, "host", phase)
    severity = None if risk is None else severity_at(risk)
    worst = Severity.INFO if severity is None else most_severe(run, "host")
    return Peak(
        resource="host",
        predicted=peak,
        limit=limit,
        risk=risk,
        severity=None if severity is None else min(severity, worst),
        confidence=confidence(run),
        phase=phase or host.peak_phase or "",
        card=None,
        where=f"a host with {gib(limit)} of RAM" if limit is not None else "an unknown host",
        components=host.components,
        holds=limit is not None and holds(settled(run).estimate, "host", limit, phase),
        conditions=conditions_of(run),
        upper=_upper(host, peak),
        otherwise=otherwise,
        least=_least(run.intended, "host", phase, peak),
        is_problem=risk is not None and risk >= EVEN and worst > Severity.INFO,
    )


def _upper(device: DeviceEstimate | HostEstimate, need: int) -> int | None:
    """The upper bound of a need, whose own is that of the peak in proportion."""
    high, peak = device.high_bytes, device.peak_bytes
    return None if high is None or not peak else round(high * need / peak)


def _otherwise(run: Run, resource: Literal["gpu", "host"], phase: str | None) -> Otherwise | None:
    """The doubt that puts a run at risk whose prediction does not, the weightiest."""
    limit = run.limits.of(resource)
    risk = risk_of(run, resource, phase)
    if limit is None or risk is None or risk < TIGHT:
        return None
    base = risk_in(run.placed.estimate, resource, limit, phase)
    if base is None or base >= TIGHT:
        return None
    found: list[tuple[float, Otherwise]] = []
    for doubt in doubts(run.placed):
        other = risk_in(doubt.estimate, resource, limit, phase)
        device = doubt.estimate.of(resource)
        need = device.peak_bytes if phase is None else device.phases.get(phase)
        if other is not None and other > base:
            assert need is not None, "nothing is at risk of no need"
            found.append((doubt.weight * (other - base), Otherwise(need, doubt.words)))
    return max(found, key=lambda pair: pair[0])[1] if found else None


def _least(
    run: Run, resource: Literal["gpu", "host"], phase: str | None, predicted: int
) -> Otherwise | None:
    """Of a run that dies by each of its readings, samples as short as any included, the one by which it needs least:
    who knows the run and finds less than is predicted is told a number that holds all the same."""
    limit = run.limits.of(resource)
    if limit is None or predicted <= limit:
        return None
    others = [(each.estimate, each.words) for each in doubts(run.placed)]
    shorter = as_short_as_any(run.placed)
    if shorter is not None:
        others.append((shorter.estimate, "its samples are like those of short data sets"))
    found: list[Otherwise] = []
    for estimate, words in others:
        device = estimate.of(resource)
        need = device.peak_bytes if phase is None else device.phases.get(phase)
        if need is not None:
            found.append(Otherwise(need, words))
    for basis in rests_on(run) if phase is None else ():
        if resource in basis.otherwise:
            words = f"{basis.key} is not what it is taken for"
            found.append(Otherwise(basis.otherwise[resource][0], words))
    least = min(found, key=lambda each: each.need, default=None)
    if least is None or not limit < least.need < predicted * (1 - _APART):
        return None
    return least


def most_severe(run: Run, resource: Literal["gpu", "host"]) -> Severity:
    """The most that a need can be, by what it rests on, and by whether the run starts on that machine at all."""
    if why_not_to_start(run):
        return Severity.INFO
    return bound(Severity.ERROR, weakest_of_claims(run.intended, resource)[0])


def unfounded(run: Run) -> str:
    """Why the need of a run that is at risk says nothing of this project on this machine, in words; mostly nothing."""
    return why_not_to_start(run) or run.parts.why_unused(run)


def is_up_to_data(run: Run) -> bool:
    """Whether a GPU rather holds the run with short samples, and no file says how long its are."""
    limit = run.limits.gpu_bytes
    return limit is not None and lives_with_short_samples(settled(run), limit)


def is_up_to_code(run: Run) -> bool:
    """Whether a GPU rather holds the run with the least batches, and a program of the project's own makes its."""
    limit = run.limits.gpu_bytes
    return limit is not None and lives_with_least_batch(settled(run), limit)


def lives_with_short_samples(run: Run, limit: int, phase: str | None = None) -> bool:
    """Whether a GPU with so many bytes rather holds a run whose samples are like those of short data sets.

    A remark is enough then where no file says how long samples are: of the findings on strangers' repositories that
    rested on samples as long as their limit allows hardly one was true of the data that the run has
    (benchmarks/strangers).
    """
    shorter = as_short_as_any(run)
    return shorter is not None and holds(shorter.estimate, "gpu", limit, phase)


def risk_of(run: Run, resource: Literal["gpu", "host"], phase: str | None = None) -> float | None:
    """The probability that a run as it is written dies of a resource (in one phase, if named), all its doubts
    counted; ``None`` where the limit or the need is unknown."""
    key = f"risk of {resource} {phase}"
    if key not in run.remembered:
        run.remembered[key] = _risk_of(run, resource, phase)
    known: float | None = run.remembered[key]
    return known


def _risk_of(run: Run, resource: Literal["gpu", "host"], phase: str | None) -> float | None:
    limit = run.limits.of(resource)
    if limit is None:
        return None
    risk = _predicted_risk(run, resource, limit, phase)
    if risk is not None and resource == "gpu" and risk >= TIGHT and run.attested is not None:
        return risk * (1 - _BELIEVED)
    return risk


def counts_as_run(run: Run) -> str:
    """What the project says of the machine that a run ran on, where that makes it fit; mostly nothing."""
    limit = run.limits.gpu_bytes
    if limit is None:
        return ""
    risk = _predicted_risk(run, "gpu", limit, None)
    is_at_risk = risk is not None and risk >= TIGHT
    return run.attested.words if is_at_risk and run.attested is not None else ""


def _predicted_risk(
    run: Run, resource: Literal["gpu", "host"], limit: int, phase: str | None
) -> float | None:
    """The same by the prediction alone, whatever the project says of it."""
    probe = run.placed
    base = risk_in(probe.estimate, resource, limit, phase)
    if base is None:
        return None
    risk, rest = 0.0, 1.0
    for doubt in doubts(probe):
        other = risk_in(doubt.estimate, resource, limit, phase)
        if other is not None:
            risk += doubt.weight * other
            rest -= doubt.weight
    return risk + rest * base


def severity_of_need(run: Run, resource: Literal["gpu", "host"], need: float) -> Severity | None:
    """How bad it is that a run needs so many bytes of a resource at one instant; ``None`` where it has
    them, or the limit is unknown. It is no peak of the run, whose verdict and block say nothing of it: what is
    more than there is by the prediction itself is warned of here or nowhere."""
    limit = run.limits.of(resource)
    estimate = settled(run).estimate
    device = estimate.of(resource)
    risk = None if limit is None else risk_of_need(device, need, limit)
    severity = None if risk is None else severity_at(risk)
    if severity is None or limit is None:
        return None
    return max(severity, Severity.WARNING) if need > limit else severity


def severity_of_block(run: Run, block: float) -> Severity | None:
    """How bad it is that a run asks its GPU for one block of so many bytes beside its peak: what training has freed lies
    in pieces, into which a small one fits and a large one may not. ``None`` where it has them, or either is unknown."""
    peak = settled(run).estimate.gpu.peak_bytes
    severity = None if peak is None else severity_of_need(run, "gpu", peak + block)
    if severity is None or block >= _SEEN_TO_FAIL:
        return severity
    return min(severity, Severity.INFO)


def exceeds(run: Run, resource: Literal["gpu", "host"], need: float) -> bool:
    """Whether a run rather dies than not of needing so many bytes of a resource at one instant; where
    the limit is unknown nothing is said to be more."""
    limit = run.limits.of(resource)
    return limit is not None and not has_room(settled(run).estimate, resource, need, limit)


def reckoned_with(condition: str) -> str:
    """The detail of a finding for a condition of its number."""
    return f"reckoned with {condition}"


def conditions_of(run: Run) -> tuple[str, ...]:
    """On what condition every prediction of a run holds; mostly on none."""
    found = read_as(run)
    if why := why_not_to_start(run):
        found = (*found, why)
    if starts_from_measured(run.intended):
        found = (*found, measured_words(run.intended))
    if sharding_is_open(run) and not settled(run).is_measured:
        return (*found, "a whole copy on each GPU, unless what launches it shards the model")
    return found


def read_as(run: Run) -> tuple[str, ...]:
    """``sequence_length read as sequence_len``, of each key that is taken for another."""
    return tuple(each.reading for each in run.misspelt)


def _a(name: str) -> str:
    """The indefinite article that a GPU's name takes when read aloud."""
    return f"{'an' if name[0] in 'AFHILMNORSX8' and name[:3] != 'Max' else 'a'} {name}"
