"""What the precision rules share: what the run's own cards can compute in."""

from __future__ import annotations

from typing import Any

from oomlint.linting.rule import Severity
from oomlint.plan.evidence import Level
from oomlint.plan.fields import f
from oomlint.runs.run import Run


def half_of(run: Run) -> str:
    """The 16-bit type of this run's cards: bf16, and fp16 where they have none."""
    return "bf16" if run.hardware is None or run.hardware.gpu.bf16 else "fp16"


def is_before_ampere(run: Run) -> bool:
    """Whether the run's cards are known to be NVIDIA's before compute capability 8.0."""
    if run.hardware is None or run.hardware.gpu.vendor != "NVIDIA":
        return False
    major = (run.hardware.gpu.compute_capability or "").partition(".")[0]
    return major.isdigit() and int(major) < 8


def severity_of_named_card(run: Run, severity: Severity) -> Severity:
    """How bad it is that a card cannot do something: a note where only a hint says which it is."""
    return Severity.INFO if run.level(f.device.type) >= Level.ASSUMED else severity


def said_in(run: Run, field: Any, values: frozenset[object], depth: int = 3) -> str | None:
    """The field, among ``field`` and what it was derived from, to which a file of this run
    gives one of ``values``."""
    setting = run.settings.get(field)
    if setting is None:
        return None
    if setting.origin.kind == "explicit":
        return field if setting.value in values else None
    if depth:
        for name in setting.origin.inputs:
            found = said_in(run, name, values, depth - 1)
            if found is not None:
                return found
    return None
