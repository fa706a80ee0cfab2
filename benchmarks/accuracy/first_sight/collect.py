"""What a past state of oomlint said of a fresh set: one line of ``readings.jsonl`` for each of its rows.

Run as a file, with that state's packages before all others::

    git worktree add --detach FOLDER COMMIT
    PYTHONPATH=FOLDER:FOLDER/lint:FOLDER/rules:FOLDER/schemas \\
        python -P benchmarks/accuracy/first_sight/collect.py fresh-3 COMMIT

Only names that all of these states have are used here. Nothing is judged.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.accuracy import published
from benchmarks.accuracy.__main__ import HERE, class_of, scored
from benchmarks.accuracy.counters import bounds_of, kind_of
from benchmarks.accuracy.facts import known_of

from oomlint.dialects import registry
from oomlint.errors import FileError, UsageError
from oomlint.files.workspace import Workspace
from oomlint.judgement.evidence import rests_on
from oomlint.memory import bounds, estimate
from oomlint.memory.allocator import lengths_vary
from oomlint.plan import Plan
from oomlint.plan.evidence import Level
from oomlint.runs.linked import LinkOptions
from oomlint.runs.linking import Linker
from oomlint.runs.run import Run

_GIB = 2**30


class Watched:
    """What the last row went through: the run that its files make, and what its bounds were made of."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.totals: bounds.Totals | None = None

    def read_plan(self, files: Mapping[str, str], versions: Mapping[str, str]) -> Plan | None:
        space = Workspace(Path("/row"), {name: text.encode() for name, text in files.items()})
        options = {f"versions.{package}": release for package, release in versions.items()}
        try:
            found = Linker(space, registry(), LinkOptions(None, None, options)).link(list(files))
        except (FileError, UsageError):
            return None
        own = next(iter(files))
        self.run = next((run for run in found.runs if own in run.files), None)
        return None if self.run is None else self.run.plan

    def bounds(self, f: Any, limits: Any, at: bounds.Totals, **more: Any) -> bounds.Bounded:
        self.totals = at
        return bounds.bounds(f, limits, at, **more)


def readings(name: str, commit: str) -> Iterator[dict[str, Any]]:
    watched = Watched()
    whole = import_module("oomlint.memory.estimate")
    with (
        patch.object(published, "read_plan", watched.read_plan),
        patch.object(whole, "bounds", watched.bounds),
    ):
        for row, plan, gpu, got, real in scored(HERE, name):
            at, run = watched.totals, watched.run
            held = bounds_of(row, gpu)
            assert at is not None
            assert gpu.low_bytes is not None
            assert gpu.high_bytes is not None
            assert gpu.peak_bytes is not None
            point = at.point
            sizes = {
                "read": real, "predicted": got, "low": held.low, "high": held.high,
                "peak": gpu.peak_bytes, "least": gpu.low_bytes, "most": gpu.high_bytes,
                "allocated": at.allocated, "states": at.states, "activations": point.activations,
                "logits": point.logits, "moving": point.temporary + point.communication,
                "fixed": at.fixed, "reserved": at.reserved, "engine": at.engine,
                "context": gpu.context_bytes,
            }  # fmt: skip
            yield {
                "set": name, "at": commit, "id": row["id"], "publisher": row["family"],
                "counter": kind_of(row), "class": class_of(plan),
                **_facts_of(row, plan, run),
                **{key: round(value / _GIB, 3) for key, value in sizes.items()},
            }  # fmt: skip
            watched.run = None


def _facts_of(row: Mapping[str, Any], plan: Plan, run: Run | None) -> dict[str, Any]:
    quantised = plan.quant.method not in (None, "none")
    bases = rests_on(run) if run is not None else ()
    assumed = {a.field for a in estimate(plan).assumptions}

    def of(level: Level) -> list[str]:
        return sorted({str(basis.leaf) for basis in bases if basis.level is level})

    return {
        "said_as": known_of(row).language,
        "dialect": run.dialect.name if run is not None else None,
        "is_program": run is not None and any(claim.is_program for claim in run.claims),
        "trains": plan.trainable.method,
        "quantised": plan.quant.method if quantised else None,
        "objective": plan.objective.kind,
        "sharding": plan.parallel.backend,
        "stage": plan.parallel.zero.stage,
        "ranks": plan.parallel.world,
        "checkpointing": plan.checkpointing.mode,
        "attention": plan.model.attn_impl,
        "compiled": bool(plan.compile.enabled),
        "packing": plan.seq.packing,
        "length": plan.seq.max_len,
        "batch": plan.batch.micro,
        "lengths_vary": lengths_vary(plan),
        "model": None if plan.model.dims is None else plan.model.dims.arch,
        "chosen": sorted(str(field) for field in assumed),
        "assumed": of(Level.ASSUMED),
        "unread": of(Level.UNREAD),
    }


if __name__ == "__main__":
    for reading in readings(sys.argv[1], sys.argv[2]):
        print(json.dumps(reading))
