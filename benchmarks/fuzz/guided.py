"""``python -m benchmarks.fuzz.guided TARGET|all [libFuzzer options]``: inputs chosen by the code they reach.

Needs atheris (``pip install atheris``). TARGET is one of those of ``python -m benchmarks.fuzz
--list``; some of its seeds are the first inputs, for a dialect those of its projects, every other
one fixed too. ``all`` is all targets, one after another, so that ``-max_total_time=90`` is an hour
and a quarter. A line a target says how it went; an input that is found is written as ``crash-…``,
``timeout-…``, ``oom-…`` or ``slow-unit-…`` where ``-artifact_prefix=`` says, and what it did is printed.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import TypeVar

from benchmarks.fuzz.seeds import ROOT, seeds
from benchmarks.fuzz.targets import by_dialect, of_projects, targets

from oomlint.dialects import registry

T = TypeVar("T")

# Each is run under instrumentation before the first mutation: hundreds take longer than a short run.
_MOST_SEEDS = 40
# Bounds of libFuzzer, which ends at the first input beyond them; all but the last in seconds.
_BOUNDS = (
    "-max_total_time=90", "-timeout=60", "-report_slow_units=30", "-rss_limit_mb=2048",
    "-print_final_stats=1",
)  # fmt: skip
_STATISTICS = {
    "inputs": r"number_of_executed_units: *(\d+)",
    "branches": r"cov: (\d+)[^\n]*\n(?![\s\S]*cov: )",
    "MB": r"peak_rss_mb: *(\d+)",
    "s at most": r"slowest_unit_time_sec: *(\d+)",
}


def main() -> int:
    if find_spec("atheris") is None:
        sys.exit("guided fuzzing needs atheris: pip install atheris")
    known = names()
    asked, options = sys.argv[1:2], sys.argv[2:]
    if asked not in [["all"], *([name] for name in known)]:
        sys.exit(f"targets: all, {', '.join(known)}")
    return max([_fuzzed(name, options) for name in (known if asked == ["all"] else asked)])


def names() -> list[str]:
    dialects = (f"dialect:{entry.name}" for entry in registry().entries)
    return [*(name for name, _ in targets()), "projects", *dialects]


def _fuzzed(name: str, options: list[str]) -> int:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        lay_out(name, folder)
        words = [sys.executable, "-m", "benchmarks.fuzz.instrumented", name, place]
        path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
        done = subprocess.run(
            [*words, *_BOUNDS, *options], env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, cwd=Path.cwd(),
        )  # fmt: skip
    text = done.stdout.decode("utf-8", "replace")
    found = {what: re.search(pattern, text) for what, pattern in _STATISTICS.items()}
    said = ", ".join(f"{match[1]} {what}" for what, match in found.items() if match)
    is_trouble = done.returncode != 0 or "Slowest unit" in text
    print(f"{name}: {said or 'nothing ran'}", flush=True)
    if is_trouble:
        print(text[-4000:], flush=True)
    return int(is_trouble)


def lay_out(name: str, folder: Path) -> None:
    """The first inputs, in ``corpus``, and the ``projects`` that these are numbers of."""
    if name == "projects" or name.startswith("dialect:"):
        every = _some(seeds() if name == "projects" else by_dialect()[name.partition(":")[2]])
        (folder / "projects").write_bytes(pickle.dumps(every))
        target = of_projects(every)
    else:
        target = dict(targets())[name]
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, data in enumerate(_some(sorted(target.seeds()))):
        (corpus / str(number)).write_bytes(data)


def _some(every: Sequence[T]) -> list[T]:
    return Random(0).sample(every, min(len(every), _MOST_SEEDS))


if __name__ == "__main__":
    sys.exit(main())
