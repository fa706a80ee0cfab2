"""A verdict in plain English: what died, of what, doing what, and what to do."""

from __future__ import annotations

from collections.abc import Iterator

from oomlint.diagnose.phases import PHASE_WORDS
from oomlint.diagnose.scan import Sign
from oomlint.diagnose.verdict import Verdict
from oomlint.wording.amounts import gib


def headline(verdict: Verdict) -> str:
    """``GPU 5 (79.3 GiB) ran out of memory in the backward pass, after step 9 of 352 (rank 1)``"""
    cause = verdict.cause
    if verdict.outcome == "nothing":
        return "nothing in these logs tells of a death"
    if verdict.outcome == "other" and cause is None:
        return f"no sign of memory running out; the last error is {verdict.error or 'not told'}"
    if cause is None:
        return "the run ended, and nothing says why"
    if verdict.outcome == "hang":
        return (
            f"{cause.origin.words or 'ranks'} waited for another until NCCL gave up; why that one "
            "was late or gone is not in these logs"
        )
    if verdict.outcome in ("stopped", "other"):
        return f"{cause.signature.title}{_moment(verdict, cause)}"
    return f"{_what(verdict, cause)}{_moment(verdict, cause)}{_who(cause)}"


def resource(verdict: Verdict, cause: Sign) -> str:
    """What ran out, by name."""
    node = f" of {cause.origin.node}" if cause.origin.node else ""
    if verdict.resource == "gpu":
        total = cause.memory.total if cause.memory is not None else None
        size = f" ({gib(total)})" if total is not None else ""
        return f"GPU {cause.origin.gpu}{size}" if cause.origin.gpu is not None else f"a GPU{size}"
    if verdict.resource == "host":
        limit = cause.figures.get("limit_bytes")
        size = f" ({gib(limit)})" if limit is not None else ""
        if verdict.scope == "container":
            return f"the container's memory limit{size}"
        if verdict.scope == "job":
            return f"the job's memory limit{size}"
        return f"the host's RAM{node}{size}"
    return {"shm": "/dev/shm", "disk": "the disk"}.get(verdict.resource or "", "")


def _what(verdict: Verdict, cause: Sign) -> str:
    name = cause.signature.name
    if name == "gpu-out-of-memory":
        return f"{resource(verdict, cause)} ran out of memory"
    if verdict.resource == "host" and name in _KILLS:
        who = cause.victim or "a process"
        held = cause.figures.get("process_bytes")
        size = f", which held {gib(held)}," if held is not None else ""
        return f"{resource(verdict, cause)} ran out, and {who}{size} was killed"
    if name == "killed":
        return (
            "a process was killed (signal 9) without a word: most likely the host, container or "
            "job was out of RAM"
        )
    return cause.signature.title


_KILLS = frozenset(
    {"kernel-oom-kill", "userspace-oom-kill", "slurm-oom-kill", "slurm-oom-state",
     "kubernetes-oom-kill", "kubernetes-evicted", "ray-oom-kill"}
)  # fmt: skip


def _moment(verdict: Verdict, cause: Sign) -> str:
    parts = []
    if verdict.phase is not None:
        where = f", where {cause.frame.row.words}" if cause.frame is not None else ""
        parts.append(PHASE_WORDS[verdict.phase] + where)
    if cause.step is not None and verdict.phase not in ("data", "load"):
        parts.append(cause.step.words)
    return f" {', '.join(parts)}" if parts else ""


def _who(cause: Sign) -> str:
    return f" ({cause.origin.words})" if cause.origin.words else ""


def figures(cause: Sign) -> str:
    """The message's amounts in one sentence (``2.0 GiB more were asked for while 78.1 GiB of the
    card's 79.1 GiB were in use``); empty where it has none."""
    memory = cause.memory
    if memory is None:
        return _other_figures(cause)
    if memory.absurd or memory.tried is None:
        return ""
    asked = f"{gib(memory.tried)} more were asked for"
    used = memory.in_use if memory.in_use is not None else memory.allocated
    if used is None:
        return asked
    whole = f" of the card's {gib(memory.total)}" if memory.total is not None else ""
    return f"{asked} while {gib(used)}{whole} were in use"


def _other_figures(cause: Sign) -> str:
    words = {
        "process_bytes": "the process held {}",
        "used_bytes": "{} were in use",
        "limit_bytes": "the limit is {}",
        "tried_bytes": "{} were asked for",
        "needed_bytes": "{} were needed",
        "available_bytes": "{} were there",
    }
    found = (text.format(gib(cause.figures[n])) for n, text in words.items() if n in cause.figures)
    return ", ".join(found)


def advice(verdict: Verdict) -> Iterator[str]:
    """What to do, beside what the rules say."""
    cause = verdict.cause
    if cause is None:
        return
    if cause.signature.advice:
        yield cause.signature.advice
    if verdict.outcome == "hang":
        yield (
            "look at the logs and the kernel's messages of every node: a rank that was killed "
            "there is what the others waited for"
        )
    if verdict.resource == "host" and verdict.scope == "container":
        yield "raise the container's memory limit, if the node has the RAM"
    if verdict.resource == "host" and verdict.scope == "job":
        yield "ask Slurm for more (--mem, or --mem=0 for all of the node)"
