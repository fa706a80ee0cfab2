"""Whether the planner finds what worked: ``python -m benchmarks.planning``.

For the real failures with hardware and a fix that is confirmed or suggested in the thread, the
first or second way must contain that fix or lower the same memory; ``confirmed.toml`` puts the
fixes in plan fields. Misses are listed with what is offered in place of the fix. Nothing is planned
for a run that is predicted to fit: there it counts whether a rule's own fix is the one that worked.
Where a thread leaves out what decides (the model, the host's RAM) and what worked does not suffice
on what was assumed, the planner is not to blame.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from oomlint.errors import CannotEdit
from oomlint.files.workspace import Workspace
from oomlint.fix.planned import no_more_refused
from oomlint.judgement import judgement_of, settled
from oomlint.judgement.planner import Way, ways_to_fit
from oomlint.linting.engine import lint
from oomlint.linting.rule import Example, Finding, SetFields
from oomlint.linting.testing import example_options
from oomlint.runs.run import Run

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FAILURES = Path(__file__).resolve().parents[2] / "tests" / "real_failures"
CONFIRMED = Path(__file__).with_name("confirmed.toml")
# How many ways a reader looks at.
_READ = 2


@dataclass(frozen=True, slots=True)
class Outcome:
    """``word`` says how it went; only what was "reached" or "MISSED" counts."""

    word: str
    seconds: float
    offered: str


def tried(folder: Path, entry: Mapping[str, Any]) -> Outcome:
    """Plan for one rebuilt failure; ``entry`` is its part of ``confirmed.toml``."""
    workspace, files, example = _rebuilt(folder, entry)
    report = lint(workspace, files, example_options(example))
    fix = entry["fix"]
    start = time.perf_counter()
    failing = [run for run in report.runs if judgement_of(run).is_lost]
    if not failing:
        proposed = [d.rule.name for d in report.diagnoses if _proposes(d.finding, fix)]
        verdicts = ", ".join(judgement_of(run).verdict for run in report.runs)
        said = f"; a fix of {proposed[0]}" if proposed else ""
        return Outcome("proposed" if proposed else "fits", 0.0, f"predicted: {verdicts}{said}")
    run = failing[0]
    ways = ways_to_fit(run, accepts=no_more_refused(run, ()))
    seconds = time.perf_counter() - start
    read = ways[:_READ]
    offered = " | ".join("; ".join(move.title for move in way.moves) for way in read) or "no way"
    if any(_has(run, way, fix, entry["lowers"]) for way in read):
        return Outcome("reached", seconds, offered)
    return Outcome("MISSED" if _suffices(run, fix) else "too little", seconds, offered)


def _rebuilt(folder: Path, entry: Mapping[str, Any]) -> tuple[Workspace, Sequence[str], Example]:
    """The files of a failure: a folder of the tests, or written down in the entry itself."""
    told = entry
    if "files" in entry:
        workspace = Workspace(
            Path("/nowhere"), {name: text.encode() for name, text in entry["files"].items()}
        )
        files = list(entry["files"])
    else:
        told = tomllib.loads((folder / "case.toml").read_text("utf-8"))
        workspace = Workspace(folder)
        found = (p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
        files = sorted(name for name in found if name != "case.toml")
    example = Example({}, hardware=told.get("hardware"), host_memory=told.get("host_memory"),
                      values=told.get("values", {}))  # fmt: skip
    return workspace, files, example


def _proposes(finding: Finding, fix: Mapping[str, Any]) -> bool:
    """Whether a rule's own fix sets all of ``fix``."""
    for proposal in finding.proposals:
        values: dict[str, Any] = {}
        for wish in proposal.wishes:
            if isinstance(wish, SetFields):
                values.update(wish.values)
        if all(values.get(name) == value for name, value in fix.items()):
            return True
    return False


def _suffices(run: Run, fix: Mapping[str, Any]) -> bool:
    """Whether what worked for the reporter would do on what was assumed for the rebuilt run."""
    try:
        return not judgement_of(settled(run.what_if(fix))).is_lost
    except CannotEdit:
        return True


def _has(run: Run, way: Way, fix: Mapping[str, Any], lowers: str) -> bool:
    if all(way.run.plan.get(name) == value for name, value in fix.items()):
        return True
    device, _, component = lowers.partition(".")
    old, new = settled(run).estimate, way.estimate
    was = (old.host if device == "host" else old.gpu).components.get(component) or 0
    now = (new.host if device == "host" else new.gpu).components.get(component) or 0
    return now < was


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning", description=__doc__)
    parser.add_argument("--failures", type=Path, default=FAILURES)
    given = parser.parse_args(arguments)
    confirmed = tomllib.loads(CONFIRMED.read_text("utf-8"))
    outcomes = {}
    for name, entry in confirmed.items():
        if "files" not in entry and not (given.failures / name).is_dir():
            continue
        outcome = outcomes[name] = tried(given.failures / name, entry)
        print(f"{name:28} {outcome.word:10} {outcome.seconds:5.2f} s  {outcome.offered}")
    words = Counter(outcome.word for outcome in outcomes.values())
    planned = words["reached"] + words["MISSED"]
    if not planned:
        print("no failure to plan for")
        return 1
    share = words["reached"] / planned
    middle = median(o.seconds for o in outcomes.values() if o.seconds)
    print(f"{words['reached']} of {planned} reached ({share:.0%}); median {middle:.2f} s")
    print(f"not planned for: {words['proposed']} are predicted to fit and mended by a rule, ")
    print(
        f"{words['fits']} are predicted to fit, of {words['too little']} the fix would be too little"
    )
    return 0 if share >= 0.8 else 1


if __name__ == "__main__":
    raise SystemExit(main())
