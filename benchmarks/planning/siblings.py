"""Whether plans are as mild as what others did: ``python -m benchmarks.planning.siblings``.

A row of ``fits.jsonl`` that does not fit often has a sibling that does: the same model on the same
cards with the same publisher, under other settings. For each such row the planner must find a way
that gives up no more, and of those that give up as much one that is not slower, than the mildest
sibling. Rows are plans without files, so every change can be written.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.accuracy.counters import card_of, usable_memory
from benchmarks.accuracy.published import plan_of
from msgspec.structs import replace

from oomlint.dialects.base import Dialect
from oomlint.dialects.cells import Cells
from oomlint.hardware import Hardware, parse_hardware
from oomlint.judgement import judgement_of
from oomlint.judgement.planner import Way, ways_to_fit
from oomlint.judgement.planner.search import Search
from oomlint.plan import Plan, leaf_paths
from oomlint.plan.fields import f
from oomlint.runs.parts import Parts
from oomlint.runs.run import Run, build_run

TRUTH = Path(__file__).resolve().parents[2] / ".." / "shared" / "truth"
# A way may take this much longer than a sibling and still count as no slower: the throughput model
# is a roofline.
_AS_FAST = 1.1
_EIGHT_BITS = ("adamw8bit", "paged_adamw8bit")
_ADAPTERS = ("lora", "qlora", "dora")


class Canonical(Dialect):
    """Says every canonical field itself."""

    name = "plan"

    def recognise(self, document: object) -> Iterable[Any]:
        return ()

    def express(self, changes: Mapping[Any, Any], run: Cells) -> dict[Any, Any]:
        own = dict(changes)
        if own.get(f.optimizer.kind) in _EIGHT_BITS:
            own[f.precision.optim_state] = "int8"
        if f.parallel.zero.stage in own and run[f.parallel.backend] == "ddp":
            own[f.parallel.backend] = "zero"
        return own


@dataclass(frozen=True, slots=True)
class Severity:
    """What a change costs: how many things it gives up, then the time of a token of training."""

    given_up: int
    slowdown: float

    def is_at_most(self, other: Severity) -> bool:
        if self.given_up != other.given_up:
            return self.given_up < other.given_up
        return self.slowdown <= _AS_FAST * other.slowdown


def run_of(row: Mapping[str, Any], plan: Plan, usable: int) -> Run:
    """The row as a run that can be changed, on its own cards."""
    gpu = card_of(row)
    if gpu is None:
        some = parse_hardware("A100-80GB").gpu
        gpu = replace(some, total_bytes=usable, total_low=usable, total_high=usable)
    ranks = int(row.get("gpus") or 1)
    hardware = Hardware(
        name=gpu.name, nodes=1, gpus_per_node=ranks, gpu=gpu, source=str(row["source"])
    )
    values = {p: plan.get(p) for p in leaf_paths() if plan.get(p) is not None}
    parts = Parts(Canonical(), (), (), options=values, hardware=hardware)
    return build_run(str(row["id"]), parts)


def given_up(old: Plan, new: Plan) -> int:
    """In how many ways ``new`` trains something else, or otherwise, than ``old``."""
    fewer_bits = (old.quant.method or "none") == "none" and (new.quant.method or "none") != "none"
    fewer_weights = old.trainable.method == "full" and new.trainable.method in _ADAPTERS
    shorter = (new.seq.max_len or 0) < (old.seq.max_len or 0)
    lighter = old.optimizer.kind != new.optimizer.kind
    narrower = old.precision.param != new.precision.param and not fewer_bits
    # An adapter over a quantized base is one thing to the planner.
    return (fewer_bits or fewer_weights) + shorter + lighter + narrower


def pairs(truth: Path) -> Iterator[tuple[Mapping[str, Any], list[Mapping[str, Any]]]]:
    """Rows that fail, each with the siblings that fit: documented so, or measured below the size
    of the card."""
    documented, measured = _rows(truth, "fits"), _rows(truth, "published")
    fitting = defaultdict[tuple[Any, ...], list[Mapping[str, Any]]](list)
    for row in documented:
        if row["fits"]:
            fitting[_family(row)].append(row)
    for row in measured:
        if _is_below(row):
            fitting[_family(row)].append(row)
    for row in documented:
        if not row["fits"]:
            found = fitting.get(_family(row))
            if found:
                yield row, found


def _rows(truth: Path, name: str) -> list[dict[str, Any]]:
    lines = (truth / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _is_below(row: Mapping[str, Any]) -> bool:
    usable, peak = usable_memory(row), row["peak_gib_per_gpu"]
    return bool(usable and peak) and peak * 2**30 < usable and not row["suspect"]


def _family(row: Mapping[str, Any]) -> tuple[Any, ...]:
    publisher = re.split("[-:]", str(row["id"]))[0]
    return publisher, row["model"], row["gpus"], usable_memory(row)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning.siblings")
    parser.add_argument("--truth", type=Path, default=TRUTH)
    given = parser.parse_args(arguments)
    mild = severe = 0
    for row, siblings in pairs(given.truth):
        word, told = compared(row, siblings)
        mild += word == "as mild"
        severe += word == "MORE SEVERE"
        print(f"{row['id']:28} {word:12} {told}")
    print(f"{mild} of {mild + severe} plans are at most as severe as the mildest sibling")
    return 1 if severe else 0


def compared(row: Mapping[str, Any], siblings: list[Mapping[str, Any]]) -> tuple[str, str]:
    plan, usable = plan_of(row), usable_memory(row)
    if plan is None or usable is None:
        return "unknown", "no plan for the row"
    run = run_of(row, plan, usable)
    risk = judgement_of(run).risk
    if risk is not None and not risk.is_lost:
        return "fits", "is predicted to fit"
    search = Search.of(run, None)
    if search is None:
        return "unknown", "no model"
    theirs: list[tuple[Severity, str]] = []
    for sibling in siblings:
        other = plan_of(sibling)
        if other is not None:
            severity = Severity(given_up(plan, other), search.slowdown(other))
            theirs.append((severity, str(sibling["id"])))
    if not theirs:
        return "unknown", "no plan for a sibling"
    mildest, name = min(theirs, key=lambda pair: (pair[0].given_up, pair[0].slowdown))
    ways = ways_to_fit(run)
    if not ways:
        return "MORE SEVERE", f"no way; {name} fits with {_told(mildest)}"
    own, way = min(
        ((Severity(len(way.gives_up), way.slowdown), way) for way in ways),
        key=lambda pair: (pair[0].given_up, pair[0].slowdown),
    )
    word = "as mild" if own.is_at_most(mildest) else "MORE SEVERE"
    return word, f"{_told(own)}: {_titles(way)}; {name}: {_told(mildest)}"


def _told(severity: Severity) -> str:
    return f"{severity.given_up} given up, {severity.slowdown:.2f}x"


def _titles(way: Way) -> str:
    return " + ".join(move.title for move in way.moves)


if __name__ == "__main__":
    raise SystemExit(main())
