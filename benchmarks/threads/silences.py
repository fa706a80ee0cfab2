"""Why oomlint is silent before runs that died: each such death of the halves that may be read counts under one cause.

::

    python -m benchmarks.threads.silences

prints the table of ``docs/threads.md``. The first cause that holds counts, in the order of ``Cause``: what no file
says comes before what was not read, and a phase or a kind of run before the nearness of the limit, which says the least.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal, get_args

from benchmarks.threads import READ, Case, cases
from benchmarks.threads.__main__ import Answer, answer

from oomlint.plan.fields import f

Cause = Literal[
    "what no file of a run says",
    "no prediction",
    "what was not read",
    "RAM of the host",
    "saving, or going on from a checkpoint",
    "evaluating",
    "answers while it trains",
    "images of which no file says the size",
    "samples of which no file says the length",
    "near the limit",
    "far below the limit",
]

_ROLLOUTS = frozenset({"grpo", "ppo"})
_SIZES_OF_IMAGES = frozenset({f.model.vision.max_pixels, f.model.vision.max_tiles})


def cause_of(found: Answer) -> Cause:
    """Why there was no alarm before a run that died."""
    case, silence = found.case, found.silence
    if case.undecidable:
        return "what no file of a run says"
    if silence == "no prediction or limit":
        return "no prediction"
    if silence == "what was not read decides":
        return "what was not read"
    return (
        _of_moment(case)
        or _of_data(found)
        or ("near the limit" if silence == "limit within bounds" else "far below the limit")
    )


def _of_moment(case: Case) -> Cause | None:
    """Which memory it was, and what the run did then, where that is not a step of ordinary training."""
    if case.resource == "host":
        return "RAM of the host"
    if case.phase in ("save", "resume"):
        return "saving, or going on from a checkpoint"
    if case.phase == "evaluation":
        return "evaluating"
    return "answers while it trains" if _ROLLOUTS.intersection(case.kinds) else None


def _of_data(found: Answer) -> Cause | None:
    """What the data decide, where the files do not bound them."""
    spoken = None if found.judgement is None else found.judgement.spoken
    if spoken is None:
        return None
    if any(assumed.field in _SIZES_OF_IMAGES for assumed in spoken.assumptions):
        return "images of which no file says the size"
    seq = spoken.plan.seq
    is_open = spoken.is_up_to_data or seq.unbounded or seq.max_len is None
    return "samples of which no file says the length" if is_open else None


def table(answers: Iterable[Answer]) -> str:
    """The silent deaths by cause, and how far below the limit they were predicted, as a table in Markdown."""
    silent = [found for found in answers if found.case.died and not found.alarms]
    causes = Counter(cause_of(found) for found in silent)
    near = Counter(cause_of(found) for found in silent if found.silence == "limit within bounds")
    rows = [
        f"| {cause} | {causes[cause]} | {near[cause]} |"
        for cause in get_args(Cause)
        if causes[cause]
    ]
    head = ("| cause | deaths without an alarm | limit within bounds |", "|---|---:|---:|")
    return "\n".join((*head, *rows, f"| all | {len(silent)} | {near.total()} |"))


def main() -> None:
    print(table(answer(case) for half in READ for case in cases(half) if case.died))


if __name__ == "__main__":
    main()
