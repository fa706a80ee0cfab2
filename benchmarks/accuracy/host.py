"""Host RAM that publishers read, against the estimate of a node."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.accuracy.facts import known_of
from benchmarks.accuracy.published import dims_of, said_outright

from oomlint.memory import estimate, host_load_bytes
from oomlint.plan import Plan
from oomlint.plan.model import ModelDims

# Readings from public threads, each with its address and date, and our own of loading; what a run said is its plan.
KEPT = Path(__file__).parents[2] / "tests/memory/data/host.jsonl"
_USUAL = {
    "trainable.method": "full", "optimizer.kind": "adamw", "batch.micro": 1, "seq.max_len": 512,
}  # fmt: skip
# What DeepSpeed's estimator multiplies out is no measurement.
_FORMULAS = "deepspeed estimator"


class HostRow(NamedTuple):
    """One reading in GiB, and what the estimate says of it."""

    name: str
    measured: float
    estimated: float

    @property
    def factor(self) -> float:
        """How many times too high or too low, at least 1."""
        ratio = self.estimated / self.measured
        return max(ratio, 1 / ratio)


def host_rows(rows: Iterable[Mapping[str, Any]]) -> list[HostRow]:
    """The readings of host RAM with their estimates."""
    found: list[HostRow] = []
    for row in rows:
        if not row.get("host_ram_gib") or row.get("framework") == _FORMULAS:
            continue
        plan = _plan(row)
        host = estimate(plan).host if plan is not None else None
        if host is None:
            continue
        loading = "loading" in str(row.get("task"))
        # Resident memory never shrinks: what loading took counts too where shards stay behind it.
        noted = str(row["host_ram_note"])
        training = "offload" not in str(row.get("strategy")) and (
            "as printed" in noted or "reproduction" in noted
        )
        said = (
            host.phases["load" if loading else "train"] if loading or training else host.peak_bytes
        )
        if said:
            found.append(HostRow(row["id"], row["host_ram_gib"], said / 2**30))
    return found


def kept_rows() -> Iterator[dict[str, Any]]:
    """The readings that this repository keeps."""
    with KEPT.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def kept_row(row: Mapping[str, Any]) -> HostRow:
    """A kept reading with its estimate: of a phase, of the whole run, of the copies that loading makes, or of
    what saving gathers."""
    dims = dims_of(row["model"]) if "model" in row else ModelDims(params_total=row["params"])
    plan = Plan(name=row["id"]).with_values({"model.dims": dims, **_USUAL, **row["plan"]})
    if row["phase"] == "copies":
        said = host_load_bytes(plan)
    else:
        host = estimate(plan).host
        if row["phase"] == "gather":
            assert host.parts is not None
            said = host.parts["save"]["gather"]
        else:
            said = host.peak_bytes if row["phase"] == "peak" else host.phases[row["phase"]]
    assert said
    return HostRow(row["id"], row["read_gib"], said / 2**30)


def _plan(row: Mapping[str, Any]) -> Plan | None:
    """The plan of a reading: a thread seldom says how long samples are, which a node's RAM hardly depends on."""
    known = known_of(row)
    if known.language != "plan":
        return None
    dims = dims_of(str(row["model"]))
    if dims is None:
        dims = ModelDims(params_total=int(float(row.get("params_b") or 0) * 1e9))
    given = {
        **row,
        "seq_len": row.get("seq_len") or 512,
        "micro_batch": row.get("micro_batch") or 1,
    }
    nodes = max(1, -(-int(row.get("gpus") or 1) // 8))
    around: dict[str, Any] = {
        "model.dims": dims, "parallel.nodes": nodes, "eval.enabled": False, "save.strategy": "no",
    }  # fmt: skip
    return said_outright(given, known).with_values(around | known.plan)
