"""Fits the law of risk to reports that are shown or read, and to rows of published tables.

::

    python -m benchmarks.threads.fit [--truth FOLDER] [--bounds judged|told|none]

What one publisher lists resembles itself, and so do the reports among themselves, of whose runs most died: within the
tables each publisher counts by the root of its rows, and each set by the root of the number of its origins. Printed
are the numbers of :data:`oomlint.judgement.risk_model.LAW` with their loss (negative log-likelihood), the best numbers that a search around
them finds, and what such a search says of repositories and publishers that it did not see. Bounds are those by which runs are judged;
``told``, those that a person is told, which count in that a run may be another than it was read as; or there are none, and all
runs are as wide as ``least_width``.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.accuracy.__main__ import SHARED, rows
from benchmarks.accuracy.counters import limits_of, usable_memory
from benchmarks.accuracy.published import plan_of
from benchmarks.threads import READ, cases
from benchmarks.threads.__main__ import linted, worst_run
from msgspec.structs import replace

from oomlint.judgement.doubts import doubts, settled
from oomlint.judgement.risk_model import LAW, Law, risk_in
from oomlint.judgement.severity import EVEN
from oomlint.memory import Estimate, estimate

_STEPS = {"level": 0.3, "slope": 0.5, "least_width": 0.05, "floor": 0.02, "ceiling": 0.02}
_ROUNDS = 40
# Parts in which origins are held out.
_FOLDS = 6


@dataclass(frozen=True)
class Fact:
    """A run as it may have been, each reading with its probability, and whether it died."""

    origin: str
    """The repository or the publisher."""
    readings: tuple[tuple[float, Estimate], ...]
    limit: int
    died: bool
    weight: float
    is_report: bool

    def risk(self, law: Law) -> float:
        found = ((weight, risk_in(e, "gpu", self.limit, law=law)) for weight, e in self.readings)
        return sum(weight * (risk or 0.0) for weight, risk in found)


def reports() -> Iterator[Fact]:
    """The reports about GPUs that may be looked at and have a prediction."""
    for case in (case for half in READ for case in cases(half)):
        if case.resource != "gpu":
            continue
        with tempfile.TemporaryDirectory() as folder:
            run = worst_run(linted(case, Path(folder)))
            limit = None if run is None else run.limits.gpu_bytes
            if run is None or limit is None:
                continue
            base = settled(run)
            others = [(doubt.weight, doubt.estimate) for doubt in doubts(base)]
            own = (1.0 - sum(weight for weight, _ in others), base.estimate)
            yield Fact(case.repository, (own, *others), limit, case.died, 1.0, is_report=True)


def tables(truth: Path) -> Iterator[Fact]:
    """Rows of published tables of what fits on which card."""
    found = []
    for row in rows(truth, "fits"):
        plan, usable = plan_of(row), usable_memory(row)
        if row["quality"] not in "AB" or plan is None or usable is None:
            continue
        predicted = estimate(plan, limits_of(row, plan))
        if predicted.gpu.peak_bytes is not None:
            found.append((row["source"].partition(":")[0], predicted, usable, not row["fits"]))
    publishers = Counter(publisher for publisher, *_ in found)
    for publisher, predicted, usable, died in found:
        weight = 1.0 / math.sqrt(publishers[publisher])
        yield Fact(publisher, ((1.0, predicted),), usable, died, weight, is_report=False)


def _bounded(fact: Fact, *, told: bool) -> Fact:
    """A fact with the bounds that a person is told, or with none."""
    readings = tuple((weight, _within(found, told=told)) for weight, found in fact.readings)
    return dataclasses.replace(fact, readings=readings)


def _within(found: Estimate, *, told: bool) -> Estimate:
    gpu = found.gpu
    low, high = gpu.peak_bytes, gpu.peak_bytes
    if told and gpu.told is not None:
        low, high = gpu.told.low, gpu.told.high
    return replace(found, gpu=replace(gpu, low_bytes=low, high_bytes=high))


def loss(facts: Sequence[Fact], law: Law) -> float:
    """Negative log-likelihood of a fact, each set by the root of the number of its origins."""
    found, roots = 0.0, 0.0
    for kind in (True, False):
        group = [fact for fact in facts if fact.is_report is kind]
        if not group:
            continue
        root = math.sqrt(len({fact.origin for fact in group}))
        total = 0.0
        for fact in group:
            risk = min(1 - 1e-4, max(1e-4, fact.risk(law)))
            total -= fact.weight * math.log(risk if fact.died else 1 - risk)
        found += root * total / sum(fact.weight for fact in group)
        roots += root
    return found / roots


def best(facts: Sequence[Fact], law: Law) -> Law:
    """The law that a search along each number in turn ends at."""
    least, steps = loss(facts, law), dict(_STEPS)
    for turn in range(_ROUNDS):
        for name, step in steps.items():
            for change in (step, -step):
                value = max(0.0, getattr(law, name) + change)
                other = replace(law, **{name: value})
                found = loss(facts, other)
                if found < least:
                    least, law = found, other
        if turn % 5 == 4:
            steps = {name: step / 2 for name, step in steps.items()}
    return law


def held_out(facts: Sequence[Fact]) -> list[tuple[Fact, float]]:
    """Each fact with its risk by a law that saw none of its repository or publisher."""
    origins = sorted({fact.origin for fact in facts})
    found = []
    for fold in range(_FOLDS):
        away = set(origins[fold::_FOLDS])
        law = best([fact for fact in facts if fact.origin not in away], LAW)
        found += [(fact, fact.risk(law)) for fact in facts if fact.origin in away]
    return found


def _print(name: str, facts: Sequence[Fact], law: Law) -> None:
    numbers = ", ".join(f"{key} {getattr(law, key):.3f}" for key in _STEPS)
    print(f"{name}: {numbers}; loss {loss(facts, law):.4f}")
    _print_scores([(fact, fact.risk(law)) for fact in facts])


def _print_scores(scored: Sequence[tuple[Fact, float]]) -> None:
    for kind, group in ((True, "reports"), (False, "tables")):
        chosen = [(risk, fact.died) for fact, risk in scored if fact.is_report is kind]
        if not chosen:
            continue
        died = sum(died for _, died in chosen)
        brier = sum((risk - died) ** 2 for risk, died in chosen) / len(chosen)
        alarms = sum(risk >= EVEN for risk, died in chosen if died)
        false = sum(risk >= EVEN for risk, died in chosen if not died)
        print(
            f"  {group}: {len(chosen)}, Brier {brier:.3f}; alarms {alarms} of {died} that died,"
            f" {false} of {len(chosen) - died} that ran"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--truth", type=Path, default=SHARED)
    parser.add_argument("--bounds", choices=("judged", "told", "none"), default="judged")
    given = parser.parse_args()
    truth: Path = given.truth
    facts = [*reports(), *(tables(truth) if truth.is_dir() else ())]
    if given.bounds != "judged":
        facts = [_bounded(fact, told=given.bounds == "told") for fact in facts]
    _print("in force", facts, LAW)
    _print("best", facts, best(facts, LAW))
    print("best of those that were not seen:")
    _print_scores(held_out(facts))


if __name__ == "__main__":
    main()
