"""What one reading of a run tells of another: ``python -m benchmarks.accuracy.measured``.

Every published peak whose publisher measured another run like it (the same model, method and sharding) is
predicted by the model alone, and starting from the nearest of those other readings.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.accuracy.__main__ import SHARED, quantile, scored
from benchmarks.accuracy.counters import card_of, measured
from benchmarks.accuracy.facts import left_out
from msgspec import Struct

from oomlint.hardware import Hardware
from oomlint.memory import estimate
from oomlint.memory.limits import gpu_limits
from oomlint.memory.measured import Measurement, anchored, nearest_of
from oomlint.plan import Plan


class Row(Struct, frozen=True, eq=False):
    """A published peak. ``kind`` is what was measured."""

    source: dict[str, Any]
    plan: Plan
    measurement: Measurement


class Outcome(Struct, frozen=True):
    """Relative errors without and with the other reading, whether the bounds then hold, how wide either are, and
    whether the plans differ."""

    alone: float
    started: float
    holds: bool
    width_alone: float
    width: float
    differs: bool


def _rows(truth: Path) -> Iterator[Row]:
    for row, plan, gpu, got, real in scored(truth):
        card = card_of(row)
        if card is None or row["id"] in left_out() or gpu.peak_bytes is None:
            continue
        allocated, reserved = gpu.allocated_bytes, gpu.reserved_bytes
        kind = "allocated" if got == allocated else "reserved" if got == reserved else "device"
        hardware = Hardware(
            name=card.name, nodes=1, gpus_per_node=int(row.get("gpus") or 1), gpu=card
        )
        took = Measurement(plan, hardware, row["id"], **{kind: round(real)})
        yield Row(row, plan, took)


def _outcomes(rows: list[Row]) -> Iterator[Outcome]:
    for row in rows:
        others = [other.measurement for other in rows if other is not row]
        found = estimate(row.plan, gpu_limits(row.measurement.hardware, row.plan))
        nearest = nearest_of(row.plan, found, others)
        if nearest is None or not nearest.tells:
            continue
        alone, started = found.gpu, anchored(found, nearest).gpu
        assert None not in (alone.peak_bytes, alone.low_bytes, alone.high_bytes)
        assert None not in (started.peak_bytes, started.low_bytes, started.high_bytes)
        got, real = measured(row.source, alone)
        now, _ = measured(row.source, started)
        yield Outcome(
            abs(got / real - 1),
            abs(now / real - 1),
            started.low_bytes <= real + (started.peak_bytes - now) <= started.high_bytes,
            (alone.high_bytes - alone.low_bytes) / alone.peak_bytes,
            (started.high_bytes - started.low_bytes) / started.peak_bytes,
            bool(nearest.differing),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--truth", type=Path, default=SHARED)
    families: dict[str, list[Row]] = defaultdict(list)
    for row in _rows(parser.parse_args().truth):
        families[row.source["family"]].append(row)
    by_family = {name: list(_outcomes(rows)) for name, rows in families.items()}
    every = [each for outcomes in by_family.values() for each in outcomes]
    for words, chosen in (
        ("all", every),
        ("plans that differ", [each for each in every if each.differs]),
        ("plans that are the same", [each for each in every if not each.differs]),
    ):
        alone, started = [e.alone for e in chosen], [e.started for e in chosen]
        print(
            f"{words:<24} n={len(chosen):<4} median {statistics.median(alone):.1%} -> "
            f"{statistics.median(started):.1%}  p90 {quantile(alone, 0.9):.1%} -> {quantile(started, 0.9):.1%}  "
            f"width {statistics.median(e.width_alone for e in chosen):.0%} -> "
            f"{statistics.median(e.width for e in chosen):.0%}, {statistics.mean(e.holds for e in chosen):.0%} inside"
        )
    medians = [statistics.median(e.started for e in found) for found in by_family.values() if found]
    print(f"mean of {len(medians)} families: {statistics.mean(medians):.1%}")


if __name__ == "__main__":
    main()
