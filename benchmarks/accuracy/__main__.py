"""How near the memory model comes to measured runs: ``python -m benchmarks.accuracy``.

Reads the measured sets from ``--truth`` (a folder of JSON Lines; by default ``../shared/truth``
beside the checkout), turns every row into a plan and prints a table per set. Nothing is fitted
here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.accuracy.counters import (
    bounds_of,
    counted,
    kind_of,
    limits_of,
    measured,
    usable_memory,
)
from benchmarks.accuracy.deepspeed import tiny_plan
from benchmarks.accuracy.facts import left_out
from benchmarks.accuracy.host import host_rows, kept_row, kept_rows
from benchmarks.accuracy.peers import Run, compare
from benchmarks.accuracy.published import plan_of, why_unplanned
from benchmarks.accuracy.simulated import sharded_plan, single_plan
from benchmarks.accuracy.steps import condition_plan

from oomlint.judgement import Risk
from oomlint.memory import DeviceEstimate, GpuLimits, estimate, skeleton, state_bytes
from oomlint.memory.allocator import lengths_vary
from oomlint.memory.traits import is_read
from oomlint.plan import Plan

# The measured sets, where they lie beside the checkout.
SHARED = Path(__file__).resolve().parents[2] / ".." / "shared" / "truth"
HERE = Path(__file__).parent
FRESH = ("fresh", "fresh-2", "fresh-3", "fresh-4", "fresh-5", "fresh-6", "fresh-7")
"""The sets of publishers that nobody had brought the model to when they were collected, oldest first."""
# The simulated rows hold no cuBLAS workspace, no NCCL and no CUDA context.
_BARE = GpuLimits(cublas_workspace=0, nccl=0, nccl_high=0)


def rows(truth: Path, name: str) -> Iterator[dict[str, Any]]:
    with (truth / f"{name}.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def exact(truth: Path, name: str, make: Callable[[Mapping[str, Any]], Plan]) -> None:
    """Relative errors of the peak and of the states on the rows measured byte by byte."""
    errors: list[float] = []
    states: list[float] = []
    for row in rows(truth, name):
        plan = make(row)
        gpu = estimate(plan, _BARE).gpu
        if gpu.allocated_bytes is None:
            print(f"not predicted: {row['id']}, {row['model']}")
            continue
        errors.append(abs(gpu.allocated_bytes / row["peak_bytes"] - 1))
        kept = state_bytes(plan)
        assert kept is not None
        if row["param_bytes"]:
            states.append(abs(kept.parameters / row["param_bytes"] - 1))
    print(
        f"{name:<12} n={len(errors):<4} peak: median {statistics.median(errors):8.4%}  "
        f"p90 {quantile(errors, 0.9):8.4%}  max {max(errors):7.3%}   "
        f"parameters: max {max(states):.4%}"
    )


def deepspeed(truth: Path) -> None:
    """Resident and peak bytes of the tiny ZeRO runs; their peaks hold Python-side copies."""
    errors = defaultdict(list)
    for row in rows(truth, "deepspeed-tiny"):
        if "offload_optimizer" in row["case"].get("zero", {}):
            continue  # measured on a CPU, where device and host are one
        gpu = estimate(tiny_plan(row), _BARE).gpu
        assert gpu.allocated_bytes is not None
        peak = max(row["peaks"].values())
        errors[f"stage {row['case']['stage']}"].append(gpu.allocated_bytes / peak - 1)
    for stage, values in sorted(errors.items()):
        print(f"deepspeed {stage}: n={len(values)} median {statistics.median(values):+.1%}")


Scored: TypeAlias = tuple[dict[str, Any], Plan, DeviceEstimate, float, float]
"""A row with its plan, its estimate, and what was estimated and measured; bytes."""


def scored(truth: Path, name: str = "published") -> Iterator[Scored]:
    """The graded rows of a set of peaks that have plans and can be estimated."""
    for row in rows(truth, name):
        dropped = row.get("suspect") or row.get("capacity_claim") or row.get("duplicate_of")
        if row["quality"] not in "AB" or dropped or not row["peak_gib_per_gpu"]:
            continue
        plan = plan_of(row)
        if plan is None:
            continue
        plan = counted(row, plan)
        gpu = estimate(plan, limits_of(row, plan)).gpu
        if gpu.peak_bytes is not None:
            yield row, plan, gpu, *measured(row, gpu)


Outcome: TypeAlias = tuple[float, bool, float]
"""The relative error of an estimate, whether its bounds hold the reading, and how wide they are as a share of it."""


def outcome(row: Mapping[str, Any], gpu: DeviceEstimate, got: float, real: float) -> Outcome:
    bounds = bounds_of(row, gpu)
    width = (bounds.high - bounds.low) / got
    return abs(got / real - 1), bounds.low <= real <= bounds.high, width


def class_of(plan: Plan) -> str:
    """What widens a run's bounds most: a model that nobody read, a tower, experts, or lengths."""
    dims = plan.model.dims
    model = skeleton(dims) if dims is not None else None
    if model is not None and not is_read(model.arch):
        return "a class nobody read"
    if model is not None and model.vision_numel:
        return "a tower"
    if model is not None and model.expert_numel:
        return "experts"
    return "lengths differ" if lengths_vary(plan) else "one length"


def unplanned(truth: Path, *sets: str) -> None:
    """Graded rows without a plan, by what they lack."""
    for name in sets:
        lacks: dict[str, list[str]] = defaultdict(list)
        for row in rows(truth, name):
            if row["quality"] in "AB" and plan_of(row) is None:
                why = why_unplanned(row) or "its dialect makes no run of it"
                lacks[why].append(row["id"])
        for why, ids in lacks.items():
            print(f"{name}, no plan: {len(ids)} rows, {why}: {', '.join(ids)}")


def published(truth: Path) -> list[Run]:
    """Per family and class: error of the published quantity, coverage and width of its counter's bounds."""
    runs: list[Run] = []
    classes: dict[tuple[str, str], list[tuple[bool, float]]] = defaultdict(list)
    families: dict[str, list[Outcome]] = defaultdict(list)
    unscored: dict[str, list[float]] = defaultdict(list)
    why = left_out()
    for row, plan, gpu, got, real in scored(truth):
        assert gpu.peak_bytes is not None
        if row["id"] in why:
            unscored[row["family"]].append(abs(got / real - 1))
            print(f"left out: {row['id']} ({got / real - 1:+.0%}): {why[row['id']]}")
            continue
        error, inside, width = outcome(row, gpu, got, real)
        families[row["family"]].append((error, inside, width))
        classes[kind_of(row), class_of(plan)].append((inside, width))
        runs.append(Run(row["family"], plan, error, real))
    print()
    print_families(families)
    if not runs:
        return runs
    print(f"\n{'counter':<11}{'class':<30}{'n':>4}{'inside':>8}{'width':>7}")
    for (kind, name), of_class in sorted(classes.items()):
        inside = sum(hit for hit, _ in of_class) / len(of_class)
        width = statistics.median(width for _, width in of_class)
        print(f"{kind:<11}{name:<30}{len(of_class):>4}{inside:>8.0%}{width:>7.0%}")
    counted = {name: [error for error, _, _ in found] for name, found in families.items()}
    for name, more in unscored.items():
        counted[name] = counted.get(name, []) + more
    whole = statistics.mean(map(statistics.median, counted.values()))
    print(f"with the rows left out: mean of families {whole:.1%}")
    return runs


def peers(runs: Sequence[Run]) -> None:
    """Other estimators on the runs that their formulas cover, and ours on the same."""
    print(f"\n{'estimator':<28}{'n':>5}{'families':>10}{'theirs':>9}{'ours':>8}{'ratio':>7}")
    for found in compare(runs):
        print(
            f"{found.name:<28}{found.runs:>5}{found.families:>10}{found.theirs:>9.1%}"
            f"{found.ours:>8.1%}{found.ours / found.theirs:>7.2f}"
        )


def fresh() -> None:
    """Publishers that nobody had brought the model to: of each set those held back by a hash of their names, and the others.
    All have been opened since: docs/accuracy.md has what they were at first sight."""
    for name in FRESH:
        unplanned(HERE, name)
        for words, is_back in (("held back", True), ("not held back", False)):
            print(f"\n{name} publishers, {words}")
            print_families(by_publisher(name, is_back=is_back))


def by_publisher(name: str, *, is_back: bool) -> dict[str, list[Outcome]]:
    """How near the estimates come to the publishers of one half of a fresh set."""
    found: dict[str, list[Outcome]] = defaultdict(list)
    for row, _, gpu, got, real in scored(HERE, name):
        if is_held_back(row["family"]) == is_back:
            found[row["family"]].append(outcome(row, gpu, got, real))
    return found


def is_held_back(publisher: str) -> bool:
    """Drawn once, before any of their rows was estimated: the first byte of the name's hash is even."""
    return hashlib.sha256(publisher.encode()).digest()[0] % 2 == 0


def print_families(families: Mapping[str, Sequence[Outcome]]) -> None:
    """A line for each publisher, its mean over them, and the share of all rows inside their bounds."""
    print(f"{'family':<18}{'n':>4}{'median error':>14}{'coverage':>10}{'width':>8}")
    medians, covers = [], []
    for family, found in sorted(families.items(), key=lambda item: -len(item[1])):
        errors, hits, widths = zip(*found, strict=True)
        medians.append(statistics.median(errors))
        covers.append(sum(hits) / len(hits))
        print(
            f"{family:<18}{len(found):>4}{medians[-1]:>14.1%}{covers[-1]:>10.0%}"
            f"{statistics.median(widths):>8.0%}"
        )
    every = [row for found in families.values() for row in found]
    if every:
        print(
            f"{'mean of families':<18}{len(every):>4}{statistics.mean(medians):>14.1%}"
            f"{statistics.mean(covers):>10.0%}{statistics.median(w for _, _, w in every):>8.0%}"
        )
        print(f"all rows: {sum(hit for _, hit, _ in every) / len(every):.0%} inside their bounds")


def fits(truth: Path) -> None:
    """Balanced accuracy of the verdict on documented fits and out-of-memory failures."""
    right: dict[bool, list[bool]] = {True: [], False: []}
    unscored: dict[bool, list[bool]] = {True: [], False: []}
    for row in rows(truth, "fits"):
        if row["quality"] not in "AB":
            continue
        plan, usable = plan_of(row), usable_memory(row)
        if plan is None or usable is None:
            continue
        risk = Risk.by(estimate(plan, limits_of(row, plan)), usable, _ram_that_was_short(row))
        if risk.any is not None:
            kept = unscored if row["id"] in left_out() else right
            kept[row["fits"]].append(risk.is_lost != row["fits"])
    print()
    _balance("fits", right)
    _balance("fits, with the rows left out", {k: right[k] + unscored[k] for k in right})


def _ram_that_was_short(row: Mapping[str, Any]) -> int | None:
    """The node's RAM, of a failure that is its."""
    is_its = str(row["evidence"]).startswith("HOST RAM")
    return round(row["host_ram_gib"] * 2**30) if is_its and row.get("host_ram_gib") else None


def _balance(name: str, right: Mapping[bool, Sequence[bool]]) -> None:
    shares = {kind: sum(v) / len(v) for kind, v in right.items() if v}
    if shares:
        print(
            f"{name}: {len(right[True])} fit, {shares.get(True, 0):.1%} right; "
            f"{len(right[False])} fail, {shares.get(False, 0):.1%} right; "
            f"balanced {statistics.mean(shares.values()):.1%}"
        )


def host(truth: Path) -> None:
    """Host RAM: how many readings the estimate meets within a factor of 1.25."""
    found = [*host_rows(rows(truth, "published")), *map(kept_row, kept_rows())]
    near = sum(row.factor <= 1.25 for row in found)
    print(f"\nhost RAM: {near} of {len(found)} within a factor of 1.25")
    for row in found:
        print(f"  {row.name:<36}{row.measured:>7.1f} GiB, estimated {row.estimated:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("--truth", type=Path, default=SHARED)
    truth: Path = parser.parse_args().truth
    if not truth.is_dir():
        parser.error(f"no measured sets in {truth}; name their folder with --truth")
    exact(truth, "simulated", single_plan)
    exact(truth, "sharded", sharded_plan)
    exact(truth, "steps", condition_plan)
    deepspeed(truth)
    unplanned(truth, "published", "fits")
    peers(published(truth))
    fresh()
    fits(truth)
    host(truth)


if __name__ == "__main__":
    main()
