"""Keeping what a log measured, for later predictions of runs like it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import TYPE_CHECKING

from oomlint.diagnose.measured import Kind, MeasuredPeak
from oomlint.diagnose.scan import Log
from oomlint.errors import UsageError
from oomlint.plan import plan_to_dict
from oomlint.runs.measurements import Kept
from oomlint.wording.amounts import gib

if TYPE_CHECKING:
    from oomlint.diagnose import Examination
    from oomlint.runs.run import Run


def kept_of(examination: Examination, run: Run) -> Kept:
    """The line to keep of a run that went through.

    Raises:
        UsageError: the logs do not tell what it took, or nothing tells on what, with the reason.
    """
    if examination.verdict.outcome in ("memory", "killed"):
        raise UsageError("the run died before it came to its peak")
    if run.hardware is None:
        raise UsageError("no file says which GPU this was: name it with --hardware")
    found = dict(_highest(examination.logs, run))
    if not found:
        raise UsageError(
            "the logs print no peak of the training that oomlint knows, as torchtune, torchtitan, ms-swift, "
            "Axolotl, litgpt, Megatron-LM, verl and transformers (skip_memory_metrics: false) do"
        )
    best, log = next(iter(found.values()))
    _check(best, run)
    return Kept(
        run=run.name,
        date=date.today().isoformat(),
        hardware=run.hardware.name,
        source=f"{best.framework}: {best.key}, {log.name}:{best.line}",
        plan=plan_to_dict(run.placed.plan),
        **{kind: peak.size for kind, (peak, _) in found.items()},
    )


# A log that has so many times what the config's run needs, or so little, is of another run.
_OF_ANOTHER_RUN = 2.0


def _check(peak: MeasuredPeak, run: Run) -> None:
    """That a figure can be of a run.

    Raises:
        UsageError: it cannot.
    """
    estimate = run.estimate.host if peak.kind == "host" else run.estimate.gpu
    predicted = estimate.peak_bytes
    if predicted is None:
        raise UsageError(f"nothing is predicted for {run.name} that it could be held against")
    if not 1 / _OF_ANOTHER_RUN < peak.size / predicted < _OF_ANOTHER_RUN:
        raise UsageError(
            f"the log has {gib(peak.size)} where {run.name} needs some {gib(predicted)}: "
            "it seems to be of another run"
        )


def run_of(examination: Examination) -> Run:
    """The run that the logs are of.

    Raises:
        UsageError: the config describes none, or several.
    """
    runs = examination.report.runs if examination.report is not None else []
    if len(runs) != 1:
        names = ", ".join(run.name for run in runs[:3])
        many = f"{len(runs)} runs ({names}{', …' if len(runs) > 3 else ''})" if runs else "no run"
        raise UsageError(f"the log is of one run, and the config describes {many}: name its file")
    return runs[0]


# In which order what was measured of a GPU counts, and under which name it is kept.
_NAMES: dict[Kind, str] = {
    "allocated": "allocated",
    "active": "allocated",
    "reserved": "reserved",
    "device": "device",
    "host": "host",
}


def _highest(logs: Sequence[Log], run: Run) -> Iterator[tuple[str, tuple[MeasuredPeak, Log]]]:
    """The highest figure of each kind over all logs (of ranks, the one that takes most)."""
    found: dict[str, tuple[MeasuredPeak, Log]] = {}
    for log in logs:
        for peak in log.peaks:
            name = _NAMES[peak.kind]
            is_more = name not in found or peak.size > found[name][0].size
            if peak.is_of_training and _is_whole(peak, run) and is_more:
                found[name] = (peak, log)
    for name in dict.fromkeys(_NAMES.values()):
        if name in found:
            yield name, found[name]


def _is_whole(peak: MeasuredPeak, run: Run) -> bool:
    """Whether a figure of the host is of a node, not of one process of several."""
    per_node = run.placed.plan.parallel.gpus_per_node or 1
    return peak.kind != "host" or peak.is_whole_node or per_node == 1
