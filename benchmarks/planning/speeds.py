"""How near the throughput model comes to published step times: ``python -m benchmarks.planning.speeds``.

The planner uses ratios of two settings of one run, so rows are compared within a group: one model
on one kind of card by one publisher. Of each row the predicted over the published seconds of a
token is taken over the group's middle; 1.00 would be perfect.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from math import exp, log
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.accuracy.counters import card_of
from benchmarks.accuracy.published import plan_of

from oomlint.hardware import Hardware, parse_hardware
from oomlint.judgement.planner.throughput import Sizes, rates, seconds_per_token
from oomlint.plan import Plan

TRUTH = Path(__file__).resolve().parents[2] / ".." / "shared" / "truth"
_SECONDS = re.compile(r"([\d.]+) ?s/it")


def published(row: Mapping[str, Any]) -> float | None:
    """Seconds of an optimizer step, as the publisher prints them."""
    found = _SECONDS.search(str(row.get("peak_printed") or ""))
    return float(found[1]) if found else None


def predicted(row: Mapping[str, Any], plan: Plan) -> float | None:
    """Seconds of an optimizer step by the model; only ratios of them mean something."""
    dims = plan.model.dims
    tokens = plan.seq.max_len
    if dims is None or not dims.params_total or not tokens:
        return None
    total = dims.params_total
    trained = total if plan.trainable.method in ("full", None) else 0
    ranks = int(row.get("gpus") or 1)
    gpu = card_of(row) or parse_hardware("A100-80GB").gpu
    hardware = Hardware(
        name=gpu.name, nodes=max(1, ranks // 8), gpus_per_node=min(8, ranks), gpu=gpu
    )
    sizes = Sizes(dims.params_active or total, total, trained)
    steps = (plan.batch.micro or 1) * (plan.batch.grad_accum or 1)
    return seconds_per_token(plan, sizes, rates(hardware)) * tokens * steps


def groups(truth: Path) -> Mapping[tuple[str, ...], list[tuple[str, float]]]:
    """Group → rows by id with predicted over published seconds."""
    found: dict[tuple[str, ...], list[tuple[str, float]]] = defaultdict(list)
    for line in (truth / "published.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        real, plan = published(row), plan_of(row)
        if real is None or plan is None or plan.objective.kind not in (None, "sft", "pretrain"):
            continue
        if plan.parallel.backend == "megatron" or plan.quant.method == "gptq" or row["suspect"]:
            continue  # no move changes tensor parallelism or a checkpoint's own quantization
        told = predicted(row, plan)
        if told is not None:
            name = re.sub(r"-(Chat|Int4|Chat-Int4)$", "", str(row["model"]))
            publisher = re.split("[-:]", str(row["id"]))[0]
            cards = f"{row['gpus']} x {row['gpu_type']}"
            found[publisher, name, cards].append((str(row["id"]), told / real))
    return {key: rows for key, rows in found.items() if len(rows) > 1}


def errors_of(found: Mapping[tuple[str, ...], list[tuple[str, float]]]) -> list[float]:
    """How far each row lies from the middle of its group, as the logarithm of a factor."""
    errors: list[float] = []
    for rows in found.values():
        middle = mean(log(ratio) for _, ratio in rows)
        errors += [abs(log(ratio) - middle) for _, ratio in rows]
    return errors


def median_factor(errors: list[float]) -> float:
    return exp(median(errors))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning.speeds")
    parser.add_argument("--truth", type=Path, default=TRUTH)
    parser.add_argument("--rows", action="store_true", help="print every row")
    given = parser.parse_args(arguments)
    found = groups(given.truth)
    for key, rows in sorted(found.items()):
        spread = errors_of({key: rows})
        print(f"{' '.join(key):60} {len(rows):3} rows, median factor {median_factor(spread):.2f}")
        middle = mean(log(ratio) for _, ratio in rows)
        for name, ratio in rows if given.rows else ():
            print(f"    {name:50} {exp(log(ratio) - middle):.2f}")
    errors = errors_of(found)
    if errors:
        worst = exp(max(errors))
        print(f"{len(errors)} rows: median factor {median_factor(errors):.2f}, worst {worst:.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
