"""How long planning takes: ``python -m benchmarks.planning.pace CORPUS``.

Processor seconds of ``ways_to_fit`` for every run of a folder that does not fit, as ``oomlint fit``
asks for them, rules of refusal included; and how many states were priced.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import process_time

from oomlint.files.disk import walk
from oomlint.files.workspace import Workspace
from oomlint.fix.planned import no_more_refused
from oomlint.hardware import parse_hardware
from oomlint.judgement import judgement_of
from oomlint.judgement.planner import ways_to_fit
from oomlint.judgement.planner.search import Search
from oomlint.linting.engine import Options, lint
from oomlint.plan import Plan
from oomlint.runs.run import Run


def failing(corpus: Path, options: Options, every: int) -> Iterator[Run]:
    """The runs of each ``every``-th config file that do not fit."""
    for path in list(walk(corpus, (".yaml", ".yml", ".json")))[::every]:
        name = str(path.relative_to(corpus))
        for run in lint(Workspace(corpus), [name], options, rules=()).runs:
            if judgement_of(run).is_lost:
                yield run


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning.pace")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--hardware", default="8xT4-16GB")
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args(arguments)
    priced = 0
    price = Search.slowdown

    def counted(self: Search, plan: Plan) -> float:
        nonlocal priced
        priced += 1
        return price(self, plan)

    setattr(Search, "slowdown", counted)  # noqa: B010 - mypy refuses to assign a method
    options = Options(hardware=parse_hardware(given.hardware))
    times: list[tuple[float, int, str]] = []
    for run in failing(given.corpus.resolve(), options, given.every):
        start, priced = process_time(), 0
        ways_to_fit(run, accepts=no_more_refused(run, ()))
        times.append((process_time() - start, priced, run.name))
    if not times:
        print("nothing to plan for")
        return 1
    seconds = sorted(time for time, _, _ in times)
    states = sorted(count for _, count, _ in times)
    late = seconds[int(0.95 * (len(seconds) - 1))]
    print(f"{len(times)} runs: median {median(seconds):.2f} s, 95 % {late:.2f} s")
    print(f"states priced: median {median(states):.0f}, most {states[-1]}")
    worst = max(times)
    print(f"worst {worst[0]:.2f} s, {worst[1]} states: {worst[2]}")
    return 0 if median(seconds) <= 1 else 1


if __name__ == "__main__":
    raise SystemExit(main())
