"""What was measured of a run, or of one like it, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from oomlint.plan import Plan
from oomlint.plan.fields import below, f
from oomlint.runs.run import Run
from oomlint.wording.amounts import gib

if TYPE_CHECKING:
    from oomlint.memory.measured import Measurement

# Of the settings that were others when it was measured, people read so many.
_MOST_NAMED = 2


def measured_words(run: Run) -> str:
    """``61.2 GiB measured with micro_batch_size 2 (.oomlint-measured.jsonl:3)``; empty where nothing near was
    measured."""
    nearest = run.placed.nearest_measured
    if nearest is None:
        return ""
    measurement = nearest.measurement
    others = list(_otherwise(run, measurement.plan, nearest.differing))
    like = " of this very run" if nearest.is_same else f" with {' and '.join(others[:_MOST_NAMED])}"
    return f"{_took(measurement)} measured{like if others or nearest.is_same else ''} ({measurement.place})"


def starts_from_measured(run: Run) -> bool:
    """Whether what was measured moves the prediction."""
    nearest = run.placed.nearest_measured
    return nearest is not None and nearest.tells


def _took(measurement: Measurement) -> str:
    size = measurement.gpu
    return gib(size) if size is not None else f"{gib(measurement.host)} of host RAM"


def _otherwise(run: Run, measured: Plan, sections: tuple[str, ...]) -> Iterator[str]:
    """The settings that were others, by those that the files say where they say any."""
    plan = run.placed.plan
    leaves: list[Any] = [leaf for name in sections for leaf in below(getattr(f, name))]
    changed = [leaf for leaf in leaves if plan.get(leaf) != measured.get(leaf)]
    for leaf in [leaf for leaf in changed if run.is_explicit(leaf)] or changed:
        value = measured.get(leaf)
        yield f"{run.key(leaf)} {'unset' if value is None else value}"
