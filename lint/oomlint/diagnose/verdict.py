"""Which of all the signs is the cause: what died first, of what, doing what.

Once one rank is dead the others wait, lose their connections and are ended by the launcher; a
launcher's summary repeats what was said above; the kernel's word stands in another log. The
verdict puts them in order and names one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from oomlint.diagnose.phases import Phase
from oomlint.diagnose.scan import Log, Sign
from oomlint.diagnose.signatures import Scope
from oomlint.linting.rule import Confidence, Resource
from oomlint.wording.amounts import gib

Outcome = Literal["memory", "killed", "disk", "settings", "stopped", "hang", "other", "nothing"]
"""``memory``: something ran out, and it is said what; ``killed``: by signal, most likely for
memory; ``disk``; ``settings``: refused before any memory was short; ``stopped`` by a person or a
scheduler; ``hang``: ranks waited for one that says nothing; ``other``: an error that is not about
memory; ``nothing`` that tells of an end."""


class Verdict(Struct, frozen=True, kw_only=True):
    """What killed the run."""

    outcome: Outcome
    cause: Sign | None = None
    confirmed_by: tuple[Sign, ...] = ()
    """Signs of the same death, from the kernel or a scheduler."""
    resource: Resource | None = None
    scope: Scope | None = None
    phase: Phase | None = None
    is_late: bool = False
    """Whether whole steps had gone well before it."""
    confidence: Confidence = "low"
    order: tuple[Sign, ...] = ()
    """The first sign of every process, as they came."""
    survived: tuple[Sign, ...] = ()
    """Failed allocations that the run went on after."""
    notes: tuple[str, ...] = ()
    error: str = ""
    """The last exception, where it is not about memory."""


# Programs that a training run consists of, as the kernel cuts their names (15 characters).
_TRAINING = re.compile(
    r"python|pt_|ray|torchrun|deepspeed|accelerate|llamafactory|axolotl|swift|tune|vllm|sglang|"
    r"megatron|nemo|composer|litgpt|openrlhf|trl|train",
    re.IGNORECASE,
)
_EVIDENCE = frozenset(
    {"kernel-oom-kill", "userspace-oom-kill", "slurm-oom-kill", "slurm-oom-state",
     "kubernetes-oom-kill", "kubernetes-evicted", "ray-oom-kill"}
)  # fmt: skip
_TRAINING_PHASES = frozenset({"forward", "backward", "optimizer_step", "train"})
# The optimizer's states come in the first step, and bars count a step before it is done.
_SETTLED = 3


def judge(logs: Sequence[Log]) -> Verdict:
    """The verdict on the logs of one run."""
    signs = _in_order(logs)
    survived = tuple(sign for sign in signs if _is_survived(sign, logs))
    alive = [sign for sign in signs if sign not in survived]
    causes = [s for s in alive if s.signature.role == "cause" and not _is_echo(s)]
    deaths = [s for s in alive if s.signature.name in ("killed", "bus-error")]
    first = _first(causes, deaths)
    if first is None:
        return replace(_without_cause(alive, logs), survived=survived, order=_order(alive))
    evidence = _evidence(causes, deaths, first)
    cause = _completed(first, evidence, deaths, logs)
    return Verdict(
        outcome=_outcome(cause),
        cause=cause,
        confirmed_by=tuple(s for s in evidence if s is not first),
        resource=cause.signature.resource,
        scope=_scope(cause, evidence),
        phase=cause.phase,
        is_late=_is_late(cause),
        confidence=_confidence(cause, evidence),
        order=_order(alive),
        survived=survived,
        notes=tuple(_notes(cause, alive)),
    )


# -- order -------------------------------------------------------------------------------


def _in_order(logs: Sequence[Log]) -> list[Sign]:
    """The signs of all logs; by time where every log with a sign tells it, else log after log."""
    per_log = [_timed(log.signs) for log in logs if log.signs]
    everything = [pair for pairs in per_log for pair in pairs]
    if len(per_log) > 1 and all(any(time for time, _ in pairs) for pairs in per_log):
        known = [time for time, _ in everything if time is not None]
        start = min(known)
        everything.sort(key=lambda pair: pair[0] or start)
    return [sign for _, sign in everything]


def _timed(signs: Iterable[Sign]) -> list[tuple[datetime | None, Sign]]:
    """Signs with their time, or that of the one before; a summary's times are of the past."""
    found: list[tuple[datetime | None, Sign]] = []
    last: datetime | None = None
    for sign in signs:
        last = sign.time or last
        found.append((last, sign))
    return found


def _order(signs: Sequence[Sign]) -> tuple[Sign, ...]:
    """The first sign of every writer, hints and repetitions left out."""
    seen: dict[tuple[object, ...], Sign] = {}
    for sign in signs:
        origin = sign.origin
        who: object = (origin.node, origin.rank, origin.local_rank)
        if sign.signature.role == "death" and origin.pid is not None:  # summaries repeat them
            who = origin.pid
        key = (sign.signature.name, who)
        if sign.signature.role != "hint":
            seen.setdefault(key, sign)
    return tuple(seen.values())


# -- choosing ----------------------------------------------------------------------------


def _first(causes: Sequence[Sign], deaths: Sequence[Sign]) -> Sign | None:
    """What died first. A sign that leaves no doubt goes before one that does."""
    own = [s for s in causes if not _is_bystander(s)]
    inside = [s for s in own if s.signature.is_sure and s.signature.name not in _EVIDENCE]
    witnesses = [s for s in own if s.signature.name in _EVIDENCE]
    if inside and not (witnesses and _came_before(witnesses[0], inside[0], deaths)):
        return inside[0]
    if witnesses:
        return witnesses[0]
    doubtful = [s for s in own if not s.signature.is_sure]
    return next(iter([*doubtful, *deaths, *causes]), None)


def _came_before(witness: Sign, inside: Sign, deaths: Sequence[Sign]) -> bool:
    """Whether a kill from outside explains more than an error that a process could still tell."""
    if witness.log == inside.log:
        return witness.line < inside.line
    if witness.time is not None and inside.time is not None:
        return witness.time < inside.time and bool(deaths)
    return False


def _is_bystander(sign: Sign) -> bool:
    """Whether the kernel killed something that is no part of a training run."""
    return sign.victim is not None and not _TRAINING.search(sign.victim)


def _is_echo(sign: Sign) -> bool:
    """An allocation of an exabyte: sizes that another rank never sent."""
    return sign.memory is not None and sign.memory.absurd


def _is_survived(sign: Sign, logs: Sequence[Log]) -> bool:
    """Whether training went on after a failed allocation (a batch skipped, a smaller one tried)."""
    if sign.signature.role != "cause" or sign.signature.name in _EVIDENCE or sign.step is None:
        return False
    end = next(log.end.step for log in logs if log.name == sign.log)
    return end is not None and end.done >= sign.step.done + _SETTLED


def _evidence(causes: Sequence[Sign], deaths: Sequence[Sign], first: Sign) -> list[Sign]:
    """What others say of the same death."""
    if first.signature.name not in _EVIDENCE and first.signature.role != "death":
        return []
    found: dict[tuple[str, str | None], Sign] = {}
    for sign in causes:
        if sign.signature.name in _EVIDENCE and not _is_bystander(sign):
            found.setdefault((sign.signature.name, sign.origin.node), sign)
    if first.signature.role != "death":
        for sign in deaths[:1]:
            found.setdefault((sign.signature.name, None), sign)
    return list(found.values())


def _completed(
    first: Sign, evidence: Sequence[Sign], deaths: Sequence[Sign], logs: Sequence[Log]
) -> Sign:
    """The cause with what other logs know: the kernel tells no phase, a launcher no sizes."""
    same = [s for s in deaths if s.origin.pid is not None and s.origin.pid == first.origin.pid]
    twin = next(iter([*same, *deaths]), None) if first.signature.name in _EVIDENCE else None
    if first.phase is None or twin is not None:
        told = twin if twin is not None and twin.phase is not None else None
        where = next((log.end for log in logs if log.end.phase is not None), None)
        if told is not None:
            first = replace(first, phase=told.phase, because=told.because, step=told.step)
        elif where is not None and first.phase is None:
            first = replace(first, phase=where.phase, because=where.because, step=where.step)
    if twin is not None:
        first = replace(first, origin=first.origin.over(twin.origin))
    sizes = [s.figures for s in evidence if s.figures and s.log != first.log]
    if not first.figures and sizes:
        first = replace(first, figures=sizes[0])
    return first


def _outcome(cause: Sign) -> Outcome:
    if cause.signature.role == "death":
        return "killed"
    if cause.signature.resource == "disk":
        return "disk"
    return "settings" if cause.signature.resource is None else "memory"


def _without_cause(signs: Sequence[Sign], logs: Sequence[Log]) -> Verdict:
    """The verdict where nothing ran out: the first of the other ends that a log tells of."""
    # What was said of a failed allocation that the run went on after is no last word.
    errors = (log.last_error for log in logs if log.last_error)
    error = next((text for text in errors if "out of memory" not in text), "")
    phase = next((log.end.phase for log in logs if log.end.phase is not None), None)
    ends: tuple[tuple[Outcome, Sign | None], ...] = (
        ("stopped", next((s for s in signs if s.signature.role == "outside"), None)),
        ("other", next((s for s in signs if s.signature.name == "crashed"), None)),
        ("hang", next((s for s in signs if s.signature.name == "nccl-timeout"), None)),
    )
    for outcome, sign in ends:
        if sign is not None:
            return Verdict(outcome=outcome, cause=sign, phase=sign.phase or phase, error=error)
    if error or any(s.signature.role == "follower" for s in signs):
        return Verdict(outcome="other", phase=phase, error=error)
    return Verdict(outcome="nothing", phase=phase)


# -- what is known of it -------------------------------------------------------------------

_CONTAINERS = re.compile(r"kubepods|docker|containerd|crio|libpod|podman|lxc|garden")


def _scope(cause: Sign, evidence: Sequence[Sign]) -> Scope | None:
    """Whose limit it was: the node's, a job's or a container's."""
    for sign in (cause, *evidence):
        path = sign.scope_path
        if path is not None:
            is_container = "slurm" not in path and _CONTAINERS.search(path)
            return "container" if is_container else "job"
    scopes = [s.signature.scope for s in (cause, *evidence) if s.signature.name in _EVIDENCE]
    narrow = [scope for scope in scopes if scope in ("job", "container")]
    if narrow:
        return narrow[0]
    if "cgroup" in cause.text and cause.signature.name == "kernel-oom-kill":
        return "container"
    return cause.signature.scope


def _is_late(cause: Sign) -> bool:
    step = cause.step
    return cause.phase in _TRAINING_PHASES and step is not None and step.done >= _SETTLED


def _confidence(cause: Sign, evidence: Sequence[Sign]) -> Confidence:
    if cause.signature.is_sure or evidence:
        return "high"
    return "medium" if cause.signature.role == "cause" or cause.phase is not None else "low"


# From this share of a card on, what others hold on it is worth a word.
_NOTABLE = 0.05


def _notes(cause: Sign, signs: Sequence[Sign]) -> Iterable[str]:
    memory = cause.memory
    if memory is not None and memory.total:
        if memory.foreign > _NOTABLE * memory.total:
            who = ", ".join(f"process {pid}" for pid, _ in memory.others[:3]) or "other processes"
            yield (
                f"{gib(memory.foreign)} of this GPU were held by {who}, not by this one: look at "
                "nvidia-smi before changing the config"
            )
        if memory.is_fragmented and memory.unallocated is not None and memory.tried is not None:
            yield (
                f"the allocator had {gib(memory.unallocated)} reserved and not in use when it "
                f"asked for {gib(memory.tried)} more: PYTORCH_CUDA_ALLOC_CONF="
                "expandable_segments:True lets it use them"
            )
        if memory.allowed is not None and memory.allowed < 0.95 * memory.total:
            yield f"the process was allowed {gib(memory.allowed)} of the GPU only"
    if cause.amid == "evaluation" and cause.phase in _TRAINING_PHASES:
        yield "it was the first step after an evaluation, whose blocks the allocator still kept"
    elif _is_late(cause) and cause.signature.resource == "gpu":
        yield (
            "steps before it went well, so that a longer batch, a card that filled up bit by bit "
            "or something kept from step to step comes to mind"
        )
    if any(s.signature.name == "allocator-flushes" for s in signs):
        yield "the allocator had emptied its cache again and again before: the card was full"
    bystanders = [s for s in signs if _is_bystander(s)]
    if bystanders and cause not in bystanders:
        yield f"the kernel killed {bystanders[0].victim}, too, which is no part of a training run"
